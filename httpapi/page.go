package httpapi

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// shared are the files that every page may be made of.
//
//go:embed page/*.css page/*.js
var shared embed.FS

// pageKinds are the content types of the files of a page.
var pageKinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// pagePolicy keeps a page to its own files and its own API: no inline code, no other host, no frame around it, and no
// text that becomes markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// ServePage adds a page to the routes: page/index.html of its files at /, the others and the shared ones under /page/.
// A client at / that does not want HTML, such as curl, gets list: what there is.
func ServePage(m *http.ServeMux, files fs.FS, list string) {
	for _, of := range []fs.FS{files, shared} {
		names, err := fs.Glob(of, "page/*")
		if err != nil {
			panic(err) // the pattern is right
		}
		for _, name := range names {
			text, err := fs.ReadFile(of, name)
			if err != nil {
				panic(err) // it is part of the program
			}
			f := pageFile{text: text, kind: pageKinds[path.Ext(name)], tag: tagOf(text), list: list}
			if path.Base(name) == "index.html" {
				m.HandleFunc("/{$}", f.orList)
				continue
			}
			m.HandleFunc("/"+name, f.serve)
		}
	}
}

// pageFile is one file of a page.
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

// orList answers with the page, or with the list of what there is.
func (f pageFile) orList(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		f.serve(w, r)
		return
	}
	Plain(w)
	_, _ = io.WriteString(w, f.list) // likewise
}

// Plain makes an answer plain text.
func Plain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
