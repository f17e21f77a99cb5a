package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The part of CycloneDX 1.6 that a bill of this release needs.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string      `json:"type"`
		Ref        string      `json:"bom-ref"`
		Name       string      `json:"name"`
		Version    string      `json:"version"`
		Licenses   []licensed  `json:"licenses,omitempty"`
		Purl       string      `json:"purl,omitempty"`
		Hashes     []hash      `json:"hashes,omitempty"`
		Components []component `json:"components,omitempty"`
	}
	licensed struct {
		License license `json:"license"`
	}
	license struct {
		ID string `json:"id"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// bill writes a software bill of materials: what the programs themselves record that they were built from.
func (r *release) bill(programs []program, results string) error {
	files, modules, err := r.contents(programs)
	if err != nil {
		return err
	}
	licences, err := r.licences(modules)
	if err != nil {
		return err
	}
	own := component{
		Type: "application", Ref: purl(module, r.version), Name: module, Version: r.version,
		Purl:     purl(module, r.version),
		Licenses: []licensed{{license{"Apache-2.0"}}}, Components: files,
	}
	list := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{r.made.Format(time.RFC3339), own}}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		c := component{Type: "library", Ref: purl(path, modules[path]), Name: path, Version: modules[path],
			Purl: purl(path, modules[path])}
		if id := licences[path]; id != "" {
			c.Licenses = []licensed{{license{id}}}
		}
		list.Components = append(list.Components, c)
	}
	list.Dependencies, err = r.dependencies(own.Ref, modules)
	if err != nil {
		return err
	}
	text, err := encode(list)
	if err != nil {
		return err
	}
	// The serial number follows from the contents, so that the same release has the same.
	sum := sha256.Sum256(text)
	list.Serial = uuid(sum)
	text, err = encode(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(results, fmt.Sprintf("spillway_%s.cdx.json", r.version)), text, 0o644)
}

// module is Spillway's own.
const module = "github.com/spillway-mesh/spillway"

func encode(list bom) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(list)
	return text.Bytes(), err
}

// uuid makes a UUID of version 8, whose bits are free, from a sum.
func uuid(sum [sha256.Size]byte) string {
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// contents returns the programs as components, and the versions of the modules in them.
func (r *release) contents(programs []program) (files []component, modules map[string]string, err error) {
	modules = map[string]string{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p.file)
		if err != nil {
			return nil, nil, fmt.Errorf("read what %s was built from: %w", p.file, err)
		}
		modules["std"] = strings.TrimPrefix(info.GoVersion, "go")
		for _, m := range info.Deps {
			if m.Replace != nil {
				return nil, nil, fmt.Errorf("%s is replaced by %s: a release must not have replaced modules", m.Path,
					m.Replace.Path)
			}
			modules[m.Path] = m.Version
		}
		text, err := os.ReadFile(p.file)
		if err != nil {
			return nil, nil, err
		}
		name := p.platform.String() + "/" + p.name
		files = append(files, component{
			Type: "file", Ref: name, Name: name, Version: r.version,
			Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(text))}},
		})
	}
	return files, modules, nil
}

// purl is a package's URL.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// dependencies are the edges of Go's module graph between the modules that are in the programs.
func (r *release) dependencies(own string, modules map[string]string) ([]dependency, error) {
	cmd := exec.Command("go", "mod", "graph")
	cmd.Dir, cmd.Env = r.source, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the graph of modules: %w", err)
	}
	edges := map[string]map[string]bool{own: {purl("std", modules["std"]): true}}
	for path, version := range modules {
		edges[purl(path, version)] = map[string]bool{}
	}
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		ref := own
		if path, version, found := strings.Cut(from, "@"); found {
			ref = purl(path, version)
		}
		path, _, _ := strings.Cut(to, "@")
		if version, built := modules[path]; built && edges[ref] != nil {
			edges[ref][purl(path, version)] = true
		}
	}
	var all []dependency
	for _, ref := range slices.Sorted(maps.Keys(edges)) {
		all = append(all, dependency{ref, slices.Sorted(maps.Keys(edges[ref]))})
	}
	return all, nil
}
