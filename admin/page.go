package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

// pageFiles are the live page: HTML, CSS and JavaScript that ask /v1 and nothing else.
//
//go:embed page/*.html page/*.css page/*.js
var pageFiles embed.FS

// pageKinds are the content types of the files.
var pageKinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

// pagePolicy keeps the page to its own files and its own API: no inline code, no other host, no frame around it, and no text that
// becomes markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; " +
	"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// servePage adds the live page to the routes: at /, its other files under /page/. A client at / that does not want HTML, such as curl,
// gets the list of what the port serves.
func servePage(m *http.ServeMux) { serveFiles(m, pageFiles, index, nil) }

// shared are the files that another page may be made of, too.
var shared = []string{"page.css", "api.js", "dom.js", "chart.js"}

// ServePage adds a page with the look and the manners of the live page to the routes of another API: page/index.html of its files at /, the
// others and what the live page shares under /page/. A client at / that does not want HTML gets list.
func ServePage(m *http.ServeMux, files fs.FS, list string) {
	serveFiles(m, files, list, nil)
	serveFiles(m, pageFiles, list, shared)
}

// serveFiles adds the files of a page to the routes: all of them, or only some.
func serveFiles(m *http.ServeMux, files fs.FS, list string, only []string) {
	entries, err := fs.ReadDir(files, "page")
	if err != nil {
		panic(err) // it is part of the program
	}
	for _, e := range entries {
		if only != nil && !slices.Contains(only, e.Name()) {
			continue
		}
		text, err := fs.ReadFile(files, "page/"+e.Name())
		if err != nil {
			panic(err) // likewise
		}
		f := pageFile{text: text, kind: pageKinds[path.Ext(e.Name())], tag: tagOf(text), list: list}
		if e.Name() == "index.html" {
			m.HandleFunc("/{$}", f.orIndex)
			continue
		}
		m.HandleFunc("/page/"+e.Name(), f.serve)
	}
}

// pageFile is one file of the page.
type pageFile struct {
	text      []byte
	kind, tag string
	list      string // what programs get at /
}

func tagOf(text []byte) string {
	digest := sha256.Sum256(text)
	return `"` + hex.EncodeToString(digest[:8]) + `"`
}

// serve answers with the file. A browser keeps it, and asks whether it has changed.
func (f pageFile) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Content-Type", f.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.text) // it fails only when the client has gone
}

// orIndex answers with the page, or with the list of what the port serves.
func (f pageFile) orIndex(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		f.serve(w, r)
		return
	}
	plain(w)
	io.WriteString(w, f.list)
}
