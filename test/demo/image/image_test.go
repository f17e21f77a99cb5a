package image

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// version is what the programs under test are built as.
const version = "1.2.3-test"

// buildImage makes the programs of the build stage by its own commands, in a temporary folder in place of /out.
func buildImage(t *testing.T) string {
	t.Helper()
	build, _ := ourDockerfile(t)
	root := t.TempDir()
	for _, s := range build.steps {
		if s.verb != "RUN" {
			continue
		}
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(s.args, "/out/", root+"/"))
		cmd.Dir = servers.Root(t)
		cmd.Env = append(os.Environ(), build.one(t, "ENV").args, "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH,
			"VERSION="+version)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", s, err, out)
		}
	}
	return root
}

// ignored are the lines of .dockerignore: those that let files in, without their !, and the others.
func ignored(t *testing.T) (in, out []string) {
	t.Helper()
	for line := range strings.Lines(read(t, ".dockerignore")) {
		line = strings.TrimSpace(line)
		if pattern, ok := strings.CutPrefix(line, "!"); ok {
			in = append(in, pattern)
		} else if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return in, out
}

// TestFilesOfTheProgramsEnterTheBuild: what the programs embed is not left out.
func TestFilesOfTheProgramsEnterTheBuild(t *testing.T) {
	in, _ := ignored(t)
	cmd := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{if .Module.Main}}{{$dir := .Dir}}`+
		`{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "./cmd/sidecar", "./cmd/spillway")
	cmd.Dir = servers.Root(t)
	list, err := cmd.Output()
	if err != nil || len(strings.Fields(string(list))) < 20 {
		t.Fatalf("list the embedded files: %v\n%s", err, list)
	}
	for _, file := range append(strings.Fields(string(list)), "go.mod", "go.sum", "LICENSE", "cmd/sidecar/main.go") {
		name := strings.TrimPrefix(file, servers.Root(t)+"/")
		if !slices.ContainsFunc(in, func(pattern string) bool {
			tail, anywhere := strings.CutPrefix(pattern, "**/")
			of := name
			if anywhere {
				of = filepath.Base(name)
			}
			ok, err := filepath.Match(tail, of)
			return ok && err == nil
		}) {
			t.Errorf("%s does not enter the build, and the programs need it", name)
		}
	}
}

// TestCodeAloneEntersTheBuild: keys and other files in a user's folder stay out of the image.
func TestCodeAloneEntersTheBuild(t *testing.T) {
	in, out := ignored(t)
	code := []string{".go", ".lua", ".sql", ".html", ".css", ".js", ".json", ".mod", ".sum", ""}
	for _, pattern := range in {
		if !slices.Contains(code, filepath.Ext(pattern)) || strings.HasSuffix(pattern, "*") {
			t.Errorf(".dockerignore lets in %s, which may be more than code", pattern)
		}
	}
	want := []string{"**", "**/*_test.go", "**/testdata", ".*", "bench", "bin", "deploy", "docs", "examples", "test",
		"tools"}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("lines of .dockerignore that leave files out (-want +got):\n%s", diff)
	}
}

// The build image has the language version that go.mod asks for: an older one would download a toolchain, or fail.
func TestBuildImageHasTheGoOfTheModule(t *testing.T) {
	build, _ := ourDockerfile(t)
	asked := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	has := regexp.MustCompile(`^golang:(1\.\d+)\.\d+-`).FindStringSubmatch(build.base)
	if asked == nil || has == nil || asked[1] != has[1] {
		t.Errorf("the build image is %s, and go.mod asks for %q: want golang:VERSION.PATCH-…", build.base, asked)
	}
}

func TestFinalStage(t *testing.T) {
	_, final := ourDockerfile(t)
	if !regexp.MustCompile(`^gcr\.io/distroless/static-debian\d+:nonroot$`).MatchString(final.base) {
		t.Errorf("the image is made from %s, want distroless static, nonroot", final.base)
	}
	// Kubernetes does not know that a name is not root (runAsNonRoot): it has to be a number.
	if user := final.one(t, "USER").args; user != "65532:65532" {
		t.Errorf("the image runs as %s, want 65532:65532", user)
	}
	if got := final.one(t, "ENTRYPOINT").list(t); !slices.Equal(got, []string{"/bin/sidecar"}) {
		t.Errorf("the entry point is %q", got)
	}
	if got := final.one(t, "HEALTHCHECK").list(t); !slices.Equal(got, []string{"/bin/sidecar", "healthcheck"}) {
		t.Errorf("the health check is %q", got)
	}
	cfg := must.Get(settings.FromEnvironment(nil, "sidecar"))(t)
	want := []string{port(cfg.Listen.Port), port(cfg.Listen.GRPCPort), port(cfg.Listen.DebugPort)}
	if diff := cmp.Diff(want, strings.Fields(final.one(t, "EXPOSE").args)); diff != "" {
		t.Errorf("exposed ports (-where the sidecar listens +Dockerfile):\n%s", diff)
	}
	for _, label := range []string{"title", "description", "source", "licenses", "version", "revision"} {
		if !strings.Contains(final.one(t, "LABEL").args, "org.opencontainers.image."+label+"=") {
			t.Errorf("the image has no label org.opencontainers.image.%s", label)
		}
	}
}

func TestImage(t *testing.T) {
	root := buildImage(t)
	t.Run("holds three names and a licence", func(t *testing.T) { holds(t, root) })
	t.Run("is static", func(t *testing.T) {
		static(t, filepath.Join(root, "bin", "sidecar"))
		static(t, filepath.Join(root, "bin", "spillway"))
	})
	t.Run("knows its version", func(t *testing.T) { knowsVersion(t, root) })
	t.Run("knows its name", func(t *testing.T) { knowsName(t, root) })
	t.Run("follows a management server", func(t *testing.T) { followsXDS(t, root) })
	t.Run("takes the reference server's place", func(t *testing.T) { dropsIn(t, root) })
	t.Run("runs as the sidecar", func(t *testing.T) { runs(t, root) })
}

func holds(t *testing.T, root string) {
	entries, err := os.ReadDir(filepath.Join(root, "bin"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"ratelimit", "sidecar", "spillway"}, names); diff != "" || err != nil {
		t.Errorf("programs of the image (-want +got):\n%s%v", diff, err)
	}
	_, final := ourDockerfile(t)
	for _, copied := range []string{"LICENSE /licenses/spillway", "--from=build /out/bin/ /bin/"} {
		if !slices.ContainsFunc(final.steps, func(s step) bool { return s.verb == "COPY" && s.args == copied }) {
			t.Errorf("the image does not COPY %s", copied)
		}
	}
	first := must.Get(os.ReadFile(filepath.Join(root, "bin", "sidecar")))(t)
	second, err := os.ReadFile(filepath.Join(root, "bin", "ratelimit"))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("sidecar and ratelimit are not one program (%v)", err)
	}
}

// static fails when the program needs a loader or a library, neither of which the image has.
func static(t *testing.T, file string) {
	program := must.Get(elf.Open(file))(t)
	defer program.Close()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a segment %v: it is not static", file, part.Type)
		}
	}
	if libraries, _ := program.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("%s needs %v", file, libraries)
	}
}

// program runs one of the image's programs to its end, a minute at most, with nothing in its environment but env.
func program(t *testing.T, root, name string, env []string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", name), args...)
	cmd.Env = append([]string{"PATH=/nowhere"}, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("start %s: %v", name, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func knowsVersion(t *testing.T, root string) {
	for _, name := range []string{"sidecar", "ratelimit"} {
		code, out := program(t, root, name, nil, "--version")
		if code != 0 || out != "spillway sidecar "+version+"\n" {
			t.Errorf("%s --version = %d, %q", name, code, out)
		}
	}
	code, out := program(t, root, "spillway", nil, "version")
	if code != 0 || out != "spillway "+version+"\n" {
		t.Errorf("spillway version = %d, %q", code, out)
	}
}

// knowsName reads where it would listen from a complaint, so that nothing listens beyond loopback.
func knowsName(t *testing.T, root string) {
	for name, host := range map[string]string{"sidecar": "127.0.0.1", "ratelimit": "0.0.0.0"} {
		code, out := program(t, root, name, []string{"PORT=7000", "GRPC_PORT=7000"})
		if code != 2 || !strings.Contains(out, `"`+host+`:7000" is not free`) {
			t.Errorf("%s with one port for two listeners = %d, %q, want 2 and a complaint about %s", name, code, out,
				host)
		}
	}
}

// followsXDS starts /bin/ratelimit as Envoy Gateway does: rules come from a management server, and the folder that
// RUNTIME_ROOT names is not there.
func followsXDS(t *testing.T, root string) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", &configv3.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http",
		Descriptors: []*configv3.RateLimitDescriptor{{
			Key: "route", Value: "route", RateLimit: &configv3.RateLimitPolicy{Unit: configv3.RateLimitUnit_DAY,
				RequestsPerUnit: 2},
		}}})
	env := append(loopback(t),
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true",
		"RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info", "USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+m.Addr, "CONFIG_GRPC_XDS_NODE_ID="+
			servers.ManagementNode, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	start(t, root, "ratelimit", env)
	ask := `{"domain":"default/eg/http","descriptors":[{"entries":[{"key":"route","value":"route"}]}]}`
	var statuses []int
	for range 3 {
		statuses = append(statuses, post(t, "http://"+value(env, "HOST")+":"+value(env, "PORT")+"/json", ask))
	}
	if diff := cmp.Diff([]int{200, 200, 429}, statuses); diff != "" {
		t.Errorf("answers of /json (-want +got):\n%s", diff)
	}
}

// dropsIn starts /bin/ratelimit with the environment that the reference server's users have.
func dropsIn(t *testing.T, root string) {
	data := t.TempDir()
	config := "domain: mongo_cps\ndescriptors:\n  - key: database\n    rate_limit:\n      unit: day\n" +
		"      requests_per_unit: 2\n"
	write(t, filepath.Join(data, "ratelimit", "config", "mongo.yaml"), config)
	redis := servers.StartRedis(t)
	env := append(loopback(t),
		"USE_STATSD=false", "LOG_LEVEL=debug", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr,
		"RUNTIME_ROOT="+data, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	start(t, root, "ratelimit", env)
	ask := `{"domain":"mongo_cps","descriptors":[{"entries":[{"key":"database","value":"users"}]}]}`
	var statuses []int
	for range 3 {
		statuses = append(statuses, post(t, "http://"+value(env, "HOST")+":"+value(env, "PORT")+"/json", ask))
	}
	if diff := cmp.Diff([]int{200, 200, 429}, statuses); diff != "" {
		t.Errorf("answers of /json (-want +got):\n%s", diff)
	}
}

// runs starts the image's entry point and ends it, and asks the image's own health check before and after.
func runs(t *testing.T, root string) {
	env := append(loopback(t), "RULES="+t.TempDir())
	child := start(t, root, "sidecar", env)
	must.Do(t, child.Process.Signal(os.Interrupt))
	if code := child.Exit(t); code != 0 {
		t.Errorf("it ends with %d, want 0:\n%s", code, child.Output())
	}
	code, out := program(t, root, "sidecar", env, "healthcheck")
	if code != 1 || !strings.HasPrefix(out, "unhealthy: ") {
		t.Errorf("the health check of a sidecar that is gone = %d, %q, want 1 and a line", code, out)
	}
}

// start starts one of the image's programs and waits until the image's health check is content.
func start(t *testing.T, root, name string, env []string) *servers.Process {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "bin", name))
	cmd.Env = append([]string{"PATH=/nowhere"}, env...)
	child := servers.Start(t, cmd)
	var code int
	var out string
	servers.Await(t, name+" to be healthy", func() error {
		code, out = program(t, root, "sidecar", env, "healthcheck")
		if code != 0 {
			return errors.New(out)
		}
		return nil
	})
	if !strings.HasPrefix(out, "healthy: ok") || strings.Count(out, "\n") != 1 {
		t.Errorf("the health check says %q, want one line", out)
	}
	return child
}

// loopback is an environment in which all listeners are on loopback, on ports that were free a moment ago.
func loopback(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, prefix := range []string{"", "GRPC_", "DEBUG_"} {
		host, port, _ := net.SplitHostPort(servers.FreeAddr(t))
		env = append(env, prefix+"HOST="+host, prefix+"PORT="+port)
	}
	return env
}

func value(env []string, name string) string {
	for _, pair := range env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			return v
		}
	}
	return ""
}

func port(n uint16) string { return strconv.Itoa(int(n)) }

func post(t *testing.T, url, body string) int {
	t.Helper()
	r := must.Get(http.Post(url, "application/json", strings.NewReader(body)))(t)
	r.Body.Close()
	return r.StatusCode
}

func write(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
