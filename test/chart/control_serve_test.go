package chart

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	core "k8s.io/api/core/v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// cluster is what the pods of a rendering with a control find: servers, Secrets and a bucket.
type cluster struct {
	t        *testing.T
	r        rendering
	postgres *servers.Postgres
	redis    *servers.Redis
	bucket   string // URL of the service
	control  string // URL of the API
}

const redisPassword = "0123456789abcdef0123456789abcdef" // what mount writes into each file of a password

// newCluster starts the servers.
func newCluster(t *testing.T, values string) *cluster {
	t.Helper()
	backend := s3mem.New()
	must.Do(t, backend.CreateBucket("limits"))
	service := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "values.yaml")
	must.Do(t, os.WriteFile(file, []byte(values), 0o600))
	return &cluster{
		t: t, r: render(t, "--values", file), postgres: servers.StartPostgres(t), bucket: service.URL,
		redis: servers.StartRedis(t, "--requirepass", redisPassword),
	}
}

// run starts a container of the control's pods: its own words and environment, with paths and servers of this machine.
func (c *cluster) run(of core.Container, folders map[string]string) *exec.Cmd {
	c.t.Helper()
	m := mount(c.t, c.r, of)
	m.write(c.t, root+"/database/url", c.postgres.URL)
	words := append(slices.Clone(of.Command), of.Args...)
	for at, word := range words {
		for folder, here := range folders {
			if rest, found := strings.CutPrefix(word, folder); found {
				words[at] = here + rest
			}
		}
	}
	if words[0] == "/bin/spillway" {
		words[0] = servers.SpillwayBin(c.t)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + c.t.TempDir()}
	for _, e := range of.Env {
		value := m.path(e.Value)
		switch e.Name {
		case "CONTROL_LISTEN":
			value = "127.0.0.1:0"
		case "DATABASE_URL":
			value = c.postgres.URL
		case "REDIS_URL":
			value = c.redis.Addr
		case "CONTROL_S3_ENDPOINT":
			value = c.bucket
		case "CONTROL_S3_ACCESS_KEY", "CONTROL_S3_SECRET_KEY":
			value = "the login of the bucket"
		}
		cmd.Env = append(cmd.Env, e.Name+"="+value)
	}
	return cmd
}

// finish runs a container to its end.
func (c *cluster) finish(of core.Container, folders map[string]string) {
	c.t.Helper()
	out, err := c.run(of, folders).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", of.Name, err, out)
	}
}

var controlListens = regexp.MustCompile(`msg=listening control=(\S+)`)

// serve starts the container of the control's Deployment, and waits until its probe is good.
func (c *cluster) serve(of core.Container) {
	c.t.Helper()
	p := servers.Start(c.t, c.run(of, nil))
	servers.Await(c.t, "readiness of the control", func() error {
		at := controlListens.FindStringSubmatch(p.Output())
		if at == nil {
			return fmt.Errorf("its log lacks where it listens:\n%s", p.Output())
		}
		c.control = "http://" + at[1]
		answer, err := http.Get(c.control + of.ReadinessProbe.HTTPGet.Path)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s: %w", answer.Status, text, err)
		}
		return err
	})
}

// call asks the API with the token of the Secret, and returns the answer, which has to be good.
func (c *cluster) call(method, path, body string) string {
	c.t.Helper()
	request := must.Get(http.NewRequest(method, c.control+path, strings.NewReader(body)))(c.t)
	request.Header.Set("Authorization", "Bearer "+controlToken)
	request.Header.Set("Content-Type", "application/json")
	answer := must.Get(http.DefaultClient.Do(request))(c.t)
	defer answer.Body.Close()
	text := string(must.Get(io.ReadAll(answer.Body))(c.t))
	if answer.StatusCode >= 300 {
		c.t.Fatalf("%s %s: %s %s", method, path, answer.Status, text)
	}
	return text
}

const controlValues = `
redis: {addresses: ["redis:6379"], auth: {existingSecret: redis-auth}}
keySecret: {existingSecret: spillway-key}
settings: {CACHE_KEY_PREFIX: edge, STORE_SILENCE: 1s, STORE_PATIENCE: 2s}
control:
  enabled: true
  database: {existingSecret: database}
  tokens: {existingSecret: tokens}
  s3: {endpoint: "https://s3.example.com", existingSecret: s3}
  backup:
    enabled: true
    to: s3://limits/backups
    postgresImage: postgres:15
    redisImage: redis:7.0
    excludeTableData: ["events*", "*_minutes*"]
`

// TestAControlOfTheChartServes runs the Job's command and then the Deployment's on a real PostgreSQL and Redis. A block
// reaches a sidecar of the same rendering, which has published rules and records usage. Then the CronJob's containers
// run one after the other, and what they sent is restored.
func TestAControlOfTheChartServes(t *testing.T) {
	c := newCluster(t, controlValues)
	pods := controlPods(t, c.r)
	c.finish(pods["migrate"].Spec.Containers[0], nil)
	c.serve(pods["control"].Spec.Containers[0])
	var s *servers.Sidecar
	ask := func() int {
		answer := must.Get(http.Post("http://"+s.HTTP+"/json", "application/json", strings.NewReader(
			`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)))(t)
		answer.Body.Close()
		return answer.StatusCode
	}
	status := func(want int) {
		t.Helper()
		servers.Await(t, fmt.Sprintf("the answer %d to ann", want), func() error {
			if got := ask(); got != want {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
	}
	publish := func(limit string) {
		c.call("POST", "/v1/domains/shop/versions",
			`{"text":"domain: shop\nrules: [{ name: all, scope: user, limit: `+limit+` }]","note":"first"}`)
	}
	publish("1/1h")
	of := container(t, pod(t, c.r))
	env := machine(t, mount(t, c.r, of).environment(of))
	s = servers.StartSidecar(t, append(env, "REDIS_URL="+c.redis.Addr)...)
	status(http.StatusTooManyRequests)
	publish("1000/1h")
	status(http.StatusOK)
	c.call("PUT", "/v1/domains/shop/users/ann", `{"quota_month": 1000}`)
	c.call("PUT", "/v1/domains/shop/blocks/user/ann", `{"reason":"unpaid"}`)
	status(http.StatusTooManyRequests)
	c.backUp(pods["backup"].Spec)
}

// backUp runs the containers of the CronJob, fetches what they sent, and restores it on servers of its own.
func (c *cluster) backUp(of core.PodSpec) {
	c.t.Helper()
	folders := map[string]string{"/scripts": c.t.TempDir(), "/backup": c.t.TempDir()}
	for name, text := range configMap(c.r, "-backup").Data {
		must.Do(c.t, os.WriteFile(filepath.Join(folders["/scripts"], name), []byte(text), 0o600))
	}
	for _, one := range containersOf(of) {
		c.finish(one, folders)
	}
	send := of.Containers[0]
	spillway := func(words ...string) string {
		c.t.Helper()
		cmd := c.run(send, nil)
		cmd.Args = append(cmd.Args[:1], words...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			c.t.Fatalf("spillway %v: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	place, fetched := send.Command[len(send.Command)-1], filepath.Join(c.t.TempDir(), "fetched")
	spillway("backups", "fetch", place, spillway("backups", "list", place), fetched)
	restored := servers.StartPostgres(c.t)
	script := func(words ...string) {
		c.t.Helper()
		cmd := exec.Command("/bin/sh", words...)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+restored.URL)
		out, err := cmd.CombinedOutput()
		if err != nil {
			c.t.Fatalf("%v: %v\n%s", words, err, out)
		}
	}
	script(folders["/scripts"]+"/postgres.sh", "load", filepath.Join(fetched, "postgres"))
	data := filepath.Join(c.t.TempDir(), "data")
	script(folders["/scripts"]+"/redis.sh", "restore", filepath.Join(fetched, "redis"), data)
	c.redis.Kill(c.t)
	c.redis.StartIn(c.t, data)
	if got := fmt.Sprint(c.redis.Do(c.t, "KEYS", "edgerl1:*:all:*")); got == "[]" {
		c.t.Errorf("the restored Redis has %v, and no counter of ann", c.redis.Do(c.t, "KEYS", "*"))
	}
	c.postgres = restored
	c.serve(controlPods(c.t, c.r)["control"].Spec.Containers[0])
	if got := c.call("GET", "/v1/domains/shop/users/ann", ""); !strings.Contains(got, `"quota_month": 1000`) {
		c.t.Errorf("ann is restored as %s", got)
	}
}
