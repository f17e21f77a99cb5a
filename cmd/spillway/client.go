package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// server is one of the two APIs that commands ask: what it is called, the flag that names it, and where it usually is.
type server struct{ what, flag, usual, hint, port string }

var (
	sidecarAPI = &server{"sidecar", "server", "http://127.0.0.1:6070", "--server names its debug port",
		"the admin API is on the debug port (DEBUG_PORT)"}
	controlAPI = &server{"control", "control", "http://127.0.0.1:8090", "--control names its API, --server a sidecar",
		"the API of a control is on CONTROL_LISTEN"}
)

// refusal is the error of a server that cannot be reached, or refuses.
type refusal struct {
	status int // 0 without an answer
	error
}

// Unwrap is the cause.
func (r *refusal) Unwrap() error { return r.error }

// refused makes the error of an answer that a command cannot continue with.
func refused(format string, args ...any) error { return &refusal{error: fmt.Errorf(format, args...)} }

// missing reports whether an error is that of something that does not exist.
func missing(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// hints are what to do about refusals that many operations answer with.
var hints = map[int]string{
	http.StatusForbidden:          "a token of a higher role is needed: --token-file names its file",
	http.StatusPreconditionFailed: "it was changed meanwhile, and nothing was done: look at it and try again",
}

const (
	askWithin = 15 * time.Second
	maxAnswer = 64 << 20
)

// client asks one server.
type client struct {
	server *server
	base   string // its URL
	domain string // of the flag or the context; empty: the only one
	token  string
	calls  *http.Client
	ctx    context.Context
	flags  *pflag.FlagSet // of the command
}

// newClient makes the client of a server of the target.
func newClient(cmd *cobra.Command, t *target, of *server) (*client, error) {
	p := t.place(of)
	c := &client{server: of, base: strings.TrimSuffix(p[of.flag], "/"), domain: p["domain"], ctx: cmd.Context(),
		flags: cmd.Flags()}
	if !strings.Contains(c.base, "://") {
		c.base = "http://" + c.base
	}
	if file := p["token-file"]; file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c.token = strings.TrimSpace(string(token))
	}
	secure, err := tlsOf(p)
	transport := &http.Transport{TLSClientConfig: secure, Proxy: nil, ExpectContinueTimeout: 5 * time.Second}
	c.calls = &http.Client{Timeout: askWithin, Transport: transport}
	return c, err
}

// tlsOf is how servers of a place are reached.
func tlsOf(p place) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if p["ca"] != "" {
		text, err := os.ReadFile(p["ca"])
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New(p["ca"] + " must hold a certificate in PEM")
		}
	}
	if p["cert"] != "" {
		pair, err := tls.LoadX509KeyPair(p["cert"], p["key-file"])
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// answer is what a server has under a path.
type answer struct {
	object   object          // nil: nothing
	document json.RawMessage // of the object
	etag     string
	force    *force // of a change that a control has made
}

// parse reads a document. Numbers stay as they are written.
func parse(document []byte) (o object, err error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	err = decoder.Decode(&o)
	return o, err
}

// request makes a request. Headers come as name and value.
func (c *client) request(method, path string, body any, params url.Values, headers ...string) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	at := c.base + path
	if len(params) > 0 {
		at += "?" + params.Encode()
	}
	request, err := http.NewRequestWithContext(c.ctx, method, at, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request, nil
}

// open sends a request, and returns the answer while it comes in. A problem is an error with its detail.
func (c *client) open(request *http.Request) (*http.Response, error) {
	got, err := c.calls.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if got.StatusCode < 300 {
		return got, nil
	}
	defer got.Body.Close()
	var problem struct{ Detail *string }
	err = json.NewDecoder(io.LimitReader(got.Body, maxAnswer)).Decode(&problem)
	if err != nil || problem.Detail == nil {
		return nil, c.foreign(got)
	}
	return nil, &refusal{got.StatusCode, errors.New(c.problem(got.StatusCode, plainLines(*problem.Detail)))}
}

// problem is what a server refuses with, in words of the command.
func (c *client) problem(status int, detail string) string {
	switch {
	case status == http.StatusPreconditionFailed:
		return hints[status]
	case status == http.StatusUnauthorized && c.token == "":
		return fmt.Sprintf("the %s at %s wants a token: --token-file names the file that holds it", c.server.what, c.base)
	case status == http.StatusUnauthorized:
		return fmt.Sprintf("the %s at %s does not know the token: --token-file names the file of another", c.server.what,
			c.base)
	case hints[status] != "":
		return detail + "\n" + hints[status]
	}
	return parameters.ReplaceAllStringFunc(detail, func(words string) string {
		flag := strings.ReplaceAll(strings.TrimPrefix(words, "the parameter "), "_", "-")
		if c.flags.Lookup(flag) != nil {
			return "--" + flag
		}
		return words
	})
}

// parameters are the words by which a problem names a parameter. The command has a flag for most of them.
var parameters = regexp.MustCompile(`the parameter [a-z_]+`)

// unreachable is the error of a request without an answer. A gRPC port speaks HTTP/2 at once.
func (c *client) unreachable(err error) error {
	if strings.Contains(err.Error(), "malformed HTTP response") {
		return refused("%s answers with HTTP/2: this is a gRPC port; %s, which is %s unless set", c.base, c.server.port,
			c.server.usual)
	}
	return refused("%w; is a %s there? %s", err, c.server.what, c.server.hint)
}

// foreign is the error of an answer of another program.
func (c *client) foreign(got *http.Response) error {
	return refused("%s answers %s without JSON: is a %s there? %s", got.Request.URL.Host, got.Status, c.server.what,
		c.server.hint)
}

// send sends a request, and returns the whole answer.
func (c *client) send(request *http.Request) (*answer, error) {
	got, err := c.open(request)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	a := &answer{etag: got.Header.Get("ETag"), force: forceOf(got.Header)}
	if got.StatusCode == http.StatusNoContent {
		return a, nil
	}
	a.document, err = io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	if err == nil {
		a.object, err = parse(a.document)
	}
	if err != nil {
		return nil, c.foreign(got)
	}
	return a, nil
}
