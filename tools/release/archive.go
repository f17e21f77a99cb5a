package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// entry is one file of a tar: in the order in which it is written, with nothing of the machine that writes it.
type entry struct {
	name string // with a slash at the end: a folder
	mode int64
	text []byte
	link string // a hard link to this name
}

// writeTar writes entries, all of root and of one time.
func writeTar(w io.Writer, made time.Time, entries []entry) error {
	to := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), ModTime: made,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch {
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeLink, e.link
		case strings.HasSuffix(e.name, "/"):
			header.Typeflag = tar.TypeDir
		}
		err := to.WriteHeader(header)
		if err != nil {
			return err
		}
		_, err = to.Write(e.text)
		if err != nil {
			return err
		}
	}
	return to.Close()
}

// writeTarGz writes entries into a compressed file.
func writeTarGz(file string, made time.Time, entries []entry) error {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	err := writeTar(compressed, made, entries)
	if err != nil {
		return err
	}
	err = compressed.Close()
	if err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// archives writes one archive for each platform, with its programs, the licence and the README.
func (r *release) archives(programs []program, results string) error {
	for _, p := range r.platforms {
		folder := fmt.Sprintf("spillway_%s_%s", r.version, p)
		entries := []entry{{name: folder + "/", mode: 0o755}}
		for _, name := range []string{"LICENSE", "README.md"} {
			text, err := os.ReadFile(filepath.Join(r.source, name))
			if err != nil {
				return err
			}
			entries = append(entries, entry{name: folder + "/" + name, mode: 0o644, text: text})
		}
		for _, of := range programs {
			if of.platform != p {
				continue
			}
			text, err := os.ReadFile(of.file)
			if err != nil {
				return err
			}
			entries = append(entries, entry{name: folder + "/" + of.name, mode: 0o755, text: text})
		}
		err := writeTarGz(filepath.Join(results, folder+".tar.gz"), r.made, entries)
		if err != nil {
			return fmt.Errorf("write the archive of %s: %w", p, err)
		}
	}
	return nil
}

var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart writes the Helm chart, with this version as its own and as the tag of the image.
func (r *release) chart(_ []program, results string) error {
	from := os.DirFS(filepath.Join(r.source, "deploy", "helm"))
	number := strings.TrimPrefix(r.version, "v")
	var entries []entry
	err := fs.WalkDir(from, "spillway", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path.Base(name) == "ci" { // values of the tests, left out as in .helmignore
				return fs.SkipDir
			}
			return nil
		}
		text, err := fs.ReadFile(from, name)
		if name == "spillway/Chart.yaml" {
			text = chartVersion.ReplaceAllFunc(text, func(line []byte) []byte {
				if bytes.HasPrefix(line, []byte("version")) {
					return []byte("version: " + number)
				}
				return []byte("appVersion: " + r.version)
			})
		}
		entries = append(entries, entry{name: name, mode: 0o644, text: text})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	return writeTarGz(filepath.Join(results, "spillway-"+number+".tgz"), r.made, entries)
}

// sums writes SHA256SUMS of all files beside it, in the form that sha256sum -c reads.
func (r *release) sums(_ []program, results string) error {
	found, err := os.ReadDir(results)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range found {
		if e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(results, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	return os.WriteFile(filepath.Join(results, "SHA256SUMS"), []byte(lines.String()), 0o644)
}
