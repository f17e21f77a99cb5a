package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates is where Go looks for authorities first.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// image writes an OCI image of the programs for Linux, as a layout in a folder and as the same in one tar.
func (r *release) image(programs []program, results string) error {
	index, images := mutate.IndexMediaType(empty.Index, types.OCIImageIndex), 0
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		made, err := r.imageFor(p, programs)
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", p, err)
		}
		images++
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: made, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	if images == 0 {
		return nil // nothing was built that a container could run
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	folder := filepath.Join(results, "image")
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = to.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	if err != nil {
		return err
	}
	return r.pack(folder, filepath.Join(results, fmt.Sprintf("spillway_%s_image.tar", r.version)))
}

// imageFor makes the image of one architecture: what the Dockerfile makes, on a base of its own.
func (r *release) imageFor(p platform, programs []program) (v1.Image, error) {
	base, err := r.base()
	if err != nil {
		return nil, err
	}
	own, err := r.programs(p, programs)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range []struct {
		about   string
		entries []entry
	}{{"users, authorities, a folder for temporary files", base}, {"programs and licence", own}} {
		made, err := r.layer(layer.entries)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image,
			mutate.Addendum{Layer: made, History: v1.History{Created: v1.Time{Time: r.made}, CreatedBy: "make release",
				Comment: layer.about}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Config = p.os, p.arch, v1.Time{Time: r.made}, r.config()
	return mutate.ConfigFile(image, config)
}

// config is the last stage of the Dockerfile, and the environment of its base.
func (r *release) config() v1.Config {
	return v1.Config{
		User:       "65532:65532",
		WorkingDir: "/",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SSL_CERT_FILE=/" +
			certificates},
		Entrypoint:   []string{"/bin/sidecar"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "6070/tcp": {}},
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/bin/sidecar", "healthcheck"}, Interval: 5 * time.Second, Timeout: 3 * time.Second,
			StartPeriod: 5 * time.Second, Retries: 3,
		},
		Labels: r.labels(),
	}
}

// labels describe the image, by the names of the OCI.
func (r *release) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       "Spillway",
		prefix + "description": "A rate-limiting sidecar for Envoy: rate limit service and ext_authz",
		prefix + "source":      "https://github.com/spillway-mesh/spillway",
		prefix + "licenses":    "Apache-2.0",
		prefix + "version":     r.version,
		prefix + "revision":    r.revision,
		prefix + "created":     r.made.Format(time.RFC3339),
	}
}

// base are the files that programs expect of a system: users, authorities, a folder for temporary files.
func (r *release) base() ([]entry, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file does not know under which conditions it holds
		}
		_, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("read an authority: %w", err)
		}
		err = pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		if err != nil {
			return nil, err
		}
	}
	users := "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, text: []byte("root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, text: []byte(users)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: certificates, mode: 0o644, text: roots.Bytes()},
		{name: "tmp/", mode: 0o1777},
	}, nil
}

// programs are the files that the Dockerfile copies: the sidecar under two names, the command, the licence.
func (r *release) programs(p platform, programs []program) ([]entry, error) {
	entries := []entry{{name: "bin/", mode: 0o755}}
	for _, of := range programs {
		if of.platform != p {
			continue
		}
		text, err := os.ReadFile(of.file)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "bin/" + of.name, mode: 0o755, text: text})
	}
	licence, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	return append(entries,
		entry{name: "bin/ratelimit", mode: 0o755, link: "bin/sidecar"},
		entry{name: "licenses/", mode: 0o755},
		entry{name: "licenses/spillway", mode: 0o644, text: licence},
	), err
}

// layer makes a layer of entries.
func (r *release) layer(entries []entry) (v1.Layer, error) {
	var text bytes.Buffer
	err := writeTar(&text, r.made, entries)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// pack writes a layout into one tar, which tools call an OCI archive.
func (r *release) pack(folder, file string) error {
	var entries []entry
	from := os.DirFS(folder)
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			entries = append(entries, entry{name: name + "/", mode: 0o755})
			return nil
		}
		text, err := fs.ReadFile(from, name)
		entries = append(entries, entry{name: name, mode: 0o644, text: text})
		return err
	})
	if err != nil {
		return err
	}
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	err = writeTar(to, r.made, entries)
	if err != nil {
		to.Close()
		return err
	}
	return to.Close()
}
