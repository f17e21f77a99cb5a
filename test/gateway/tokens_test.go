package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// chat is the route to a model.
const chat = `---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: model, namespace: default}
spec: {endpoints: [{fqdn: {hostname: upstream.example, port: PORT}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: chat, namespace: default}
spec:
  parentRefs: [{name: eg}]
  rules: [{matches: [{path: {type: PathPrefix, value: /chat}}], backendRefs: [{group: gateway.envoyproxy.io,
      kind: Backend, name: model}]}]
`

// free is the cost of a request before its answer. It is left out, and is 1 then: where Envoy Gateway 1.9.1 takes
// resources from files, a number there ends it ("panic: unsupported type: uint64").
const free = "          request: {from: Number, number: 0} # is anything left?\n"

// startModel starts a server that answers with the parts of the body that it gets, and returns its port.
func startModel(t *testing.T) (port string) {
	t.Helper()
	socket := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for part := range strings.SplitSeq(string(body), "|") {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(socket) // it ends with Close
	}()
	t.Cleanup(func() { server.Close(); <-done })
	_, port, err := net.SplitHostPort(socket.Addr().String())
	must.Do(t, err)
	return port
}

// ask is the status of a request to the model, which answers with a text.
func ask(user, answer string) error {
	request, err := http.NewRequest(http.MethodPost, front+"chat", strings.NewReader(answer))
	if err != nil {
		return err
	}
	request.Header.Set("x-user-id", user)
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("it is answered %d", r.StatusCode)
	}
	return err
}

// TestTokens: ai-tokens.yaml charges what a model has used, as Envoy Gateway configures Envoy and the sidecar from it.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	port := startModel(t)
	w.apply(t, "base", strings.ReplaceAll(base+chat, "PORT", port)+"---\n"+w.secret(t))
	w.apply(t, "tokens", strings.NewReplacer("namespace: shop", "namespace: default", free, "").Replace(read(t,
		filepath.Join(servers.Root(t), "examples", "envoy-gateway", "ai-tokens.yaml"))))
	w.startSidecar(t)
	w.startGateway(t)
	awaitPage(t, "6070", "/rlconfig", "requests_per_unit=100000")
	servers.Await(t, "an answer of the model", func() error { return ask("first", "{}") })
	for name, row := range map[string]struct {
		answer string
		spent  bool // a second request is refused
	}{
		"whole":         {`{"usage":{"total_tokens":150000}}`, true},
		"stream":        {"data: {}\n\n|data: {\"usage\": {\"total_tok|ens\": 150|000}}\n\n|data: [DONE]\n\n", true},
		"less":          {`{"usage":{"total_tokens":20000}}`, false},
		"without usage": {`{"content":"none"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			must.Do(t, ask(name, row.answer))
			if !row.spent {
				must.Do(t, ask(name, row.answer))
				return
			}
			servers.Await(t, "the charge after the answer", func() error {
				if err := ask(name, "{}"); err == nil || !strings.HasSuffix(err.Error(), "429") {
					return fmt.Errorf("not 429: %v", err)
				}
				return nil
			})
			must.Do(t, ask(name+"'s neighbour", "{}"))
		})
	}
}
