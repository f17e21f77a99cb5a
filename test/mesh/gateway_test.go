package mesh

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// gatewayAddr is where the gateway of the tests listens.
const gatewayAddr = podIP + ":8888"

// front is an ingress gateway as readers have it: a pod, a Gateway, a route to the workload, and tokens.
const front = `apiVersion: v1
kind: Pod
metadata: {name: gateway-0, namespace: istio-ingress, labels: {istio: ingressgateway}}
spec: {nodeName: node, containers: [{name: istio-proxy, image: "proxy:v1"}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: istio-ingress}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8888, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: istio-ingress}
spec:
  hosts: ["*"]
  gateways: [public]
  http: [{route: [{destination: {host: checkout.shop-behind.svc.cluster.local, port: {number: 80}}}]}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: istio-ingress}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  jwtRules: [{issuer: test, jwks: 'JWKS', forwardOriginalToken: true}]
`

// issuer signs tokens.
type issuer struct{ key *rsa.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	return issuer{must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)}
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// keys are the public keys, as RequestAuthentication takes them.
func (i issuer) keys() string {
	return fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"1","alg":"RS256","e":"AQAB","n":"%s"}]}`,
		encode(string(i.key.N.Bytes())))
}

// bearer is the header with the token of a user.
func (i issuer) bearer(t *testing.T, user string) []string {
	t.Helper()
	text := encode(`{"alg":"RS256","kid":"1"}`) + "." + encode(`{"iss":"test","sub":"`+user+`"}`)
	sum := sha256.Sum256([]byte(text))
	signature := must.Get(rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:]))(t)
	return []string{"Authorization", "Bearer " + text + "." + encode(string(signature))}
}

// startGateway starts the ingress gateway and Spillway as in the examples, in front of the workload.
func startGateway(t *testing.T, c *cluster, tokens issuer, app http.HandlerFunc) {
	t.Helper()
	startApp(t, app)
	c.startPod(t, strings.ReplaceAll(workload, "namespace: shop", "namespace: shop-behind"))
	pod := c.startPod(t, strings.Replace(front, "JWKS", tokens.keys(), 1))
	gateway := parse(t, patient.Replace(example(t, "ingress-gateway.yaml")))
	ai := parse(t, patient.Replace(example(t, "ai-tokens.yaml")))
	c.mustApply(t, gateway...)
	c.mustApply(t, ai...)
	c.mustApply(t, parse(t, strings.ReplaceAll(spillwayEndpoint, "namespace: shop", "namespace: istio-ingress"))...)
	s := &scene{cluster: c, all: append(gateway, ai...)}
	startSpillway(t, c, s.kind("Deployment")[0], s.kind("ConfigMap")...)
	s.proxy = startProxy(t, bootstrapOf(t, "router", pod))
	s.proxy.await(t, "envoy.filters.http.jwt_authn")
	s.proxy.await(t, "spillway.ai")
	s.proxy.await(t, "outbound|8081||spillway.istio-ingress.svc.cluster.local")
	awaitLimits(t, request{to: gatewayAddr, path: "/"})
	servers.Await(t, "the gateway's way to the workload", func() error {
		status, _, err := request{to: gatewayAddr, path: "/"}.send()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("it answers %d", status)
		}
		return err
	})
}

// TestIngressGateway: ingress-gateway.yaml and ai-tokens.yaml in a gateway that istiod configures.
func TestIngressGateway(t *testing.T) {
	c, tokens := startCluster(t), newIssuer(t)
	startIstiod(t, c)
	startGateway(t, c, tokens, answerAsModel)

	login := request{to: gatewayAddr, path: "/login"}
	wants(t, 5, http.StatusOK, login)
	if header := wants(t, 1, http.StatusTooManyRequests, login); header.Get("retry-after") == "" {
		t.Errorf("a refusal has no retry-after: %v", header)
	}
	login.header = []string{"X-Forwarded-For", "203.0.113.9"}
	wants(t, 1, http.StatusTooManyRequests, login) // the address is that of the peer
	wants(t, 1, http.StatusOK, request{to: gatewayAddr, path: "/login", from: "10.1.9.9"})

	reports := request{to: gatewayAddr, path: "/reports/all", header: tokens.bearer(t, "alice")}
	wants(t, 10, http.StatusOK, reports)
	wants(t, 1, http.StatusTooManyRequests, reports)
	reports.header = tokens.bearer(t, "bob")
	wants(t, 1, http.StatusOK, reports)
	reports.header = newIssuer(t).bearer(t, "alice")
	wants(t, 1, http.StatusUnauthorized, reports) // what Istio refuses is not counted

	wants(t, 1, http.StatusBadRequest, request{to: gatewayAddr, path: "/", header: []string{"x_user", "eve"}})
	t.Run("tokens of a model", func(t *testing.T) { chargesTokens(t, tokens) })
}

// answerAsModel answers as a language model does. The body of the request chooses the answer.
func answerAsModel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for part := range strings.SplitSeq(string(body), "|") {
		io.WriteString(w, part)
		w.(http.Flusher).Flush()
	}
}

func chargesTokens(t *testing.T, tokens issuer) {
	for name, row := range map[string]struct {
		answer string
		more   int // what a second request is answered
	}{
		"whole": {`{"usage":{"total_tokens":150000}}`, http.StatusTooManyRequests},
		"stream": {"data: {}\n\n|data: {\"usage\": {\"total_tok|ens\": 150|000}}\n\n|data: [DONE]\n\n",
			http.StatusTooManyRequests},
		"less":          {`{"usage":{"total_tokens":20000}}`, http.StatusOK},
		"words":         {`{"content":"\"total_tokens\": 100000"}`, http.StatusOK},
		"without usage": {`{"content":"none"}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			ask := request{to: gatewayAddr, method: http.MethodPost, path: "/v1/chat/completions", body: row.answer,
				header: tokens.bearer(t, name)}
			wants(t, 1, http.StatusOK, ask)
			wants(t, 1, http.StatusOK, request{to: gatewayAddr, path: "/other", header: tokens.bearer(t, name)})
			if row.more == http.StatusOK {
				wants(t, 3, row.more, ask)
				return
			}
			servers.Await(t, "the charge after the answer", func() error {
				ask.body = "{}"
				status, _, err := ask.send()
				if err == nil && status != row.more {
					err = fmt.Errorf("it is answered %d", status)
				}
				return err
			})
		})
	}
}
