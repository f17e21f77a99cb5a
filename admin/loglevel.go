package admin

import (
	"io"
	"net/http"
	"strings"

	"github.com/spillway-mesh/spillway/httpapi"
)

// LogLevel shows the level of the log, and changes it while the sidecar runs. Both functions are required.
type LogLevel struct {
	Get func() string
	Set func(name string) error // an error lists the names that it may be
}

// maxLevelName is more than any level's name has bytes.
const maxLevelName = 64

// ServeHTTP answers GET with the level, and takes another one by PUT from this machine. No other method does: a browser
// would send a POST for any page that asks it to.
func (l LogLevel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpapi.Plain(w)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		io.WriteString(w, l.Get()+"\n")
	case http.MethodPut:
		l.put(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		w.WriteHeader(http.StatusMethodNotAllowed)
		io.WriteString(w, "GET shows the level, PUT with a level as the body changes it\n")
	}
}

// put changes the level to the body's.
func (l LogLevel) put(w http.ResponseWriter, r *http.Request) {
	if !httpapi.FromHere(r.RemoteAddr) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "the level changes from this machine only: ask 127.0.0.1, or forward the port\n")
		return
	}
	// A browser sends the origin with every PUT of a page, which may have made its own name lead here.
	if r.Header.Get("Origin") != "" {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "the level does not change for a page in a browser: use curl\n")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxLevelName))
	if err == nil {
		err = l.Set(strings.TrimSpace(string(body)))
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, err.Error()+"\n")
		return
	}
	io.WriteString(w, l.Get()+"\n")
}
