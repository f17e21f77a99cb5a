package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// imaged validates the image, compares it with the Dockerfile, unpacks that of this machine's architecture and starts
// it.
func imaged(t *testing.T, out string, full bool) {
	index := indexOf(t, filepath.Join(out, "image"))
	manifest := must.Get(index.IndexManifest())(t)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image := must.Get(index.Image(m.Digest))(t)
		config := must.Get(image.ConfigFile())(t)
		if config.OS != m.Platform.OS || config.Architecture != m.Platform.Architecture ||
			m.MediaType != types.OCIManifestSchema1 {
			t.Errorf("the index says %v of an image that is for %s/%s", m.Platform, config.OS, config.Architecture)
		}
		likeTheDockerfile(t, config.Config)
		if config.Architecture == runtime.GOARCH {
			started(t, image, config.Config)
		}
	}
	want := []string{"linux/" + runtime.GOARCH}
	if full {
		want = []string{"linux/amd64", "linux/arm64"}
	}
	if !slices.Equal(platforms, want) {
		t.Errorf("the image is for %v, want %v", platforms, want)
	}
	packed(t, out)
}

// indexOf is the only index of a layout, valid, with the version as its name.
func indexOf(t *testing.T, folder string) v1.ImageIndex {
	t.Helper()
	whole := must.Get(layout.ImageIndexFromPath(folder))(t)
	err := validate.Index(whole)
	if err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	manifest, err := whole.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout holds %v: %v", manifest, err)
	}
	if name := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != version {
		t.Errorf("the image is called %q", name)
	}
	index := must.Get(whole.ImageIndex(manifest.Manifests[0].Digest))(t)
	return index
}

// likeTheDockerfile compares the image's configuration with the last stage of the Dockerfile.
func likeTheDockerfile(t *testing.T, c v1.Config) {
	t.Helper()
	file := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "Dockerfile")))(t)
	last := string(file[bytes.LastIndex(file, []byte("\nFROM ")):])
	one := func(expression string) string {
		found := regexp.MustCompile("(?m)" + expression).FindStringSubmatch(last)
		if found == nil {
			t.Fatalf("the Dockerfile has no %s", expression)
		}
		return found[1]
	}
	quote := func(words []string) string {
		text := must.Get(json.Marshal(words))(t)
		return strings.ReplaceAll(string(text), ",", ", ")
	}
	var ports []string
	for _, port := range strings.Fields(one(`^EXPOSE (.*)$`)) {
		ports = append(ports, port+"/tcp")
	}
	slices.Sort(ports)
	h := c.Healthcheck
	health := fmt.Sprintf("--interval=%v --timeout=%v --start-period=%v --retries=%d CMD %s", h.Interval, h.Timeout,
		h.StartPeriod, h.Retries, quote(h.Test[1:]))
	if c.User != one(`^USER (.*)$`) || quote(c.Entrypoint) != one(`^ENTRYPOINT (.*)$`) ||
		health != one(`^HEALTHCHECK (.*)$`) ||
		!slices.Equal(slices.Sorted(maps.Keys(c.ExposedPorts)), ports) {
		t.Errorf("the image says %q %q %q %v, the Dockerfile says otherwise", c.User, c.Entrypoint, health,
			c.ExposedPorts)
	}
	for _, label := range regexp.MustCompile(`(org\.opencontainers\.image\.\w+)="([^"]*)"`).FindAllStringSubmatch(last,
		-1) {
		want := strings.NewReplacer("$VERSION", version, "$REVISION", "0123abc").Replace(label[2])
		if c.Labels[label[1]] != want {
			t.Errorf("the label %s is %q, that of the Dockerfile %q", label[1], c.Labels[label[1]], want)
		}
	}
}

// started unpacks an image, starts its entry point with its environment, and asks for decisions.
func started(t *testing.T, image v1.Image, c v1.Config) {
	t.Helper()
	root := unpack(t, image)
	for name, says := range map[string]string{"sidecar": "spillway sidecar " + version,
		"ratelimit": "spillway sidecar " + version, "spillway": "spillway " + version} {
		printed, err := exec.Command(filepath.Join(root, "bin", name), "version").Output()
		if err != nil || strings.TrimSpace(string(printed)) != says {
			t.Errorf("%s version prints %q (%v), want %q", name, printed, err, says)
		}
	}
	authorities := must.Get(os.ReadFile(filepath.Join(root, certificates)))(t)
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(authorities) ||
		bytes.Count(authorities, []byte("BEGIN CERTIFICATE")) < 50 {
		t.Error("authorities are missing in the image")
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("domain: edge\ndescriptors:\n  - key: user\n"+
		"    rate_limit: { unit: day, requests_per_unit: 2 }\n"), 0o600))
	s := servers.StartProgram(t, filepath.Join(root, c.Entrypoint[0]),
		append(c.Env, "RULES="+rules, "RULES_REQUIRED=true")...)
	var said []int
	for range 3 {
		body := strings.NewReader(`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`)
		answer := must.Get(http.Post("http://"+s.HTTP+"/json", "application/json", body))(t)
		answer.Body.Close()
		said = append(said, answer.StatusCode)
	}
	if !slices.Equal(said, []int{200, 200, 429}) {
		t.Errorf("the image's sidecar answers %v, want two that pass and a refusal", said)
	}
}

// unpack writes the files of all layers into a folder.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	files := mutate.Extract(image)
	defer files.Close()
	var names []string
	for reader := tar.NewReader(files); ; {
		h, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			names = append(names, h.Name)
			err = place(filepath.Join(root, h.Name), root, h, reader)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	want := []string{"bin", "bin/ratelimit", "bin/sidecar", "bin/spillway", "etc", "etc/group", "etc/passwd", "etc/ssl",
		"etc/ssl/certs", certificates, "licenses", "licenses/spillway", "tmp"}
	if !slices.Equal(names, want) {
		t.Errorf("the image holds %v, want %v", names, want)
	}
	return root
}

func place(file, root string, h *tar.Header, from io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(file, 0o755)
	case tar.TypeLink:
		return os.Link(filepath.Join(root, h.Linkname), file)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, os.FileMode(h.Mode))
}

// packed: the tar holds the layout.
func packed(t *testing.T, out string) {
	t.Helper()
	file := must.Get(os.Open(filepath.Join(out, fmt.Sprintf("spillway_%s_image.tar", version))))(t)
	defer file.Close()
	_, texts := untar(t, file)
	for name, text := range contentsOf(t, filepath.Join(out, "image")) {
		if !bytes.Equal(texts[name], text) {
			t.Errorf("%s is not in the tar", name)
		}
	}
}
