package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// ask is a request as Envoy describes it. Its texts may hold the caller's placeholders.
type ask struct {
	domain, method, path, host string
	peer, principal            string
	headers                    [][2]string
}

// trick is one way around a limiter: how the request differs from the usual one, and which limit refuses it all the
// same. want is that limit's name, or 400 for a request that is not decided on at all.
type trick struct {
	name   string
	change func(a *ask, c *caller)
	want   string
}

// family is tricks that are tried on one limit. Each caller first spends the limit of one an hour by the usual request;
// then the trick is tried on top of another.
type family struct {
	name   string
	spend  ask
	base   ask
	tricks []trick
}

// families is the corpus. The rows of a family that begin with another spelling of who asks end on the same counter;
// those whose credential is worth nothing end on the counter of their address, which a client without one has spent.
func families() []family {
	return slices.Concat(pathFamilies(), keyFamilies(), tokenFamilies(), addressFamilies(), costFamilies())
}

// caller is who tries one trick in one encoding. No other caller has its user, keys and addresses.
type caller struct {
	id   string
	n    int
	fill *strings.Replacer
}

func newCaller(n int) *caller {
	c := &caller{id: fmt.Sprintf("caller-%d", n), n: n}
	octets := fmt.Sprintf("%d.%d", n>>8, n&255)
	network := fmt.Sprintf("2001:db8:%x", n)
	c.fill = strings.NewReplacer("{id}", c.id, "{key}", "key-"+c.id, "{old}", "old-"+c.id, "{late}", "late-"+c.id,
		"{home}", "198."+octets+".1", "{away}", "198."+octets+".2", "{proxy}", "10."+octets+".1", "{proxy2}",
		"10."+octets+".2",
		"{octets}", octets, "{net6}", network)
	return c
}

// of is the request with the caller's own names in it.
func (c *caller) of(a ask, change func(a *ask, c *caller)) ask {
	a.headers = slices.Clone(a.headers)
	if change != nil {
		change(&a, c)
	}
	for _, text := range []*string{&a.path, &a.host, &a.peer, &a.principal} {
		*text = c.fill.Replace(*text)
	}
	for i := range a.headers {
		a.headers[i][1] = c.fill.Replace(a.headers[i][1])
	}
	return a
}

// Changes that most tricks are made of.
func path(p string) func(*ask, *caller)   { return func(a *ask, _ *caller) { a.path = p } }
func method(m string) func(*ask, *caller) { return func(a *ask, _ *caller) { a.method = m } }
func host(h string) func(*ask, *caller)   { return func(a *ask, _ *caller) { a.host = h } }
func peer(p string) func(*ask, *caller)   { return func(a *ask, _ *caller) { a.peer = p } }

// header adds headers, which come in pairs of name and value.
func header(pairs ...string) func(*ask, *caller) {
	return func(a *ask, _ *caller) {
		for i := 0; i+1 < len(pairs); i += 2 {
			a.headers = append(a.headers, [2]string{pairs[i], pairs[i+1]})
		}
	}
}

// A limiter is gone around when a request that is the same to the application is another to the limiter.
func TestBypassCorpus(t *testing.T) {
	all, rows := families(), corpusRows()
	if rows < 150 {
		t.Fatalf("the corpus has %d rows, want at least 150", rows)
	}
	s := startBypass(t, rows*len(encodings))
	n := 0
	for _, f := range all {
		for _, row := range f.tricks {
			for _, e := range encodings {
				c := newCaller(n)
				n++
				t.Run(f.name+"/"+row.name+"/"+e.name, func(t *testing.T) { s.try(t, f, row, e, c) })
			}
		}
	}
}

func corpusRows() int {
	rows := 0
	for _, f := range families() {
		rows += len(f.tricks)
	}
	return rows
}

// It prints this line.
func TestBypassCount(t *testing.T) {
	identities, paths := corpusRows(), len(readingRows())
	t.Logf("corpus: %d ways around a limiter, %d of them in %d encodings, %d through Envoy with %d settings at both "+
		"services",
		identities+paths, identities, len(encodings), paths, len(pathSettings()))
}

// try spends a limit and goes around it.
func (s *bypass) try(t *testing.T, f family, row trick, e encoding, c *caller) {
	first := s.check(t, e.encode(c.of(f.spend, nil)))
	if first.status != 200 {
		t.Fatalf("the usual request was answered with %+v, want 200", first)
	}
	got := s.check(t, e.encode(c.of(f.base, row.change)))
	if row.want == "400" {
		if got.status != 400 {
			t.Errorf("answered with %+v, want 400", got)
		}
		return
	}
	if got.status != 429 || len(got.violated) != 1 || got.violated[0] != row.want {
		t.Errorf("answered with %+v, want 429 by %s alone", got, row.want)
	}
	if row.want == "per-address" && strings.Contains(got.policies, "per-user") {
		t.Errorf("limits of a user were asked, and the credential is worth nothing: %+v", got)
	}
}

// A flood of tokens whose keys are unknown is decided by the address it comes from, and keeps no other client out.
func TestBypassUnknownKeyFlood(t *testing.T) {
	s := startBypass(t, 2)
	flooder, other := newCaller(0), newCaller(1)
	base := ask{domain: "tokens", method: "GET", path: "/", host: "shop.example", peer: "{away}"}
	s.check(t, encodings[0].encode(flooder.of(base, nil)))
	for i := range 2000 {
		unknown := heading(ecKey(), object{"kid": fmt.Sprintf("unknown-%d", i)})
		got := s.check(t, encodings[0].encode(flooder.of(base, unknown)))
		if got.status != 429 || strings.Contains(got.policies, "per-user") {
			t.Fatalf("token %d of the flood was answered with %+v, want 429 by the address alone", i, got)
		}
	}
	got := s.check(t, encodings[0].encode(other.of(base, authorization("Bearer TOKEN"))))
	if got.status != 200 {
		t.Errorf("a good token was answered with %+v after the flood, want 200", got)
	}
}

// bypass is a sidecar with the rules of the corpus, asked past Envoy so that all bytes arrive.
type bypass struct {
	*servers.Sidecar
	conn *grpc.ClientConn
}

func startBypass(t *testing.T, callers int) *bypass {
	t.Helper()
	dir := t.TempDir()
	for name, text := range bypassRules(callers) {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := &bypass{Sidecar: servers.StartSidecar(t, "RULES="+dir)}
	// The sidecar waits for its rules only so long, and a busy machine takes its time with thousands of keys.
	servers.Await(t, "the rules of the corpus", func() error {
		if !strings.Contains(s.Output(), `msg="rules loaded"`) {
			return errors.New(s.Output())
		}
		return nil
	})
	var err error
	s.conn, err = grpc.NewClient("passthrough:///"+s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// checked is what a CheckResponse comes to.
type checked struct {
	status   int
	violated []string // limits that refuse, by the body
	policies string   // limits that apply
}

// check sends a CheckRequest. An error, and an empty answer, would leave the request to Envoy's failure mode.
func (s *bypass) check(t *testing.T, request []byte) checked {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var reply []byte
	err := s.conn.Invoke(ctx, authv3.Authorization_Check_FullMethodName, &request, &reply,
		grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		t.Fatalf("the call failed: %v", err)
	}
	var answer authv3.CheckResponse
	err = proto.Unmarshal(reply, &answer)
	if err != nil || answer.GetStatus() == nil || answer.GetHttpResponse() == nil {
		t.Fatalf("the answer says nothing: %v in %x", err, reply)
	}
	if answer.GetStatus().GetCode() == 0 {
		return checked{status: 200}
	}
	denied := answer.GetDeniedResponse()
	got := checked{status: int(denied.GetStatus().GetCode())}
	for _, option := range denied.GetHeaders() {
		if option.GetHeader().GetKey() == "ratelimit-policy" {
			got.policies = option.GetHeader().GetValue()
		}
	}
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	err = json.Unmarshal([]byte(denied.GetBody()), &problem)
	if err != nil {
		t.Fatalf("the body is no problem document: %v in %q", err, denied.GetBody())
	}
	got.violated = problem.Violated
	return got
}

// bypassRules are rule files: a domain for each way to identify clients, all with limits of one an hour.
func bypassRules(callers int) map[string]string {
	var keys strings.Builder
	for n := range callers {
		c := newCaller(n)
		for _, kind := range [][2]string{{"key-", ""}, {"old-", ", revoked: true"},
			{"late-", ", expires: 2020-01-01T00:00:00Z"}} {
			fmt.Fprintf(&keys, "      - { id: %s, sha256: \"%x\", user: %s%s }\n", kind[0]+c.id,
				sha256.Sum256([]byte(kind[0]+c.id)), c.id, kind[1])
		}
	}
	return map[string]string{
		"keys.json": keySet(),
		"tokens.yaml": "domain: tokens\nidentity:\n  order: [jwt, api_key, ip]\n" + tokenIssuer +
			"  api_keys:\n    header: x-api-key\n    keys:\n" + keys.String() + perClient,
		"query.yaml": "domain: query\nidentity:\n  order: [api_key, ip]\n  api_keys:\n    query: api_key\n    keys:\n" +
			keys.String() + perClient,
		"certs.yaml":   "domain: certs\nidentity: { order: [mtls, ip] }\n" + perClient,
		"direct.yaml":  "domain: direct\n" + perClient,
		"hops.yaml":    "domain: hops\nidentity: { client_ip: { trusted_hops: 2 } }\n" + perClient,
		"proxies.yaml": "domain: proxies\nidentity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }\n" + perClient,
		"costs.yaml":   "domain: costs\ncost_header: x-request-cost\n" + perClient,
		"paths.yaml":   pathRules,
		"words.yaml":   wordRules,
	}
}

const perClient = `
headers: both
rules:
  - { name: per-user, scope: user, limit: 1/1h }
  - { name: per-address, scope: ip, limit: 1/1h }
`

const tokenIssuer = `
  jwt:
    - { issuer: https://issuer.example, jwks: file:keys.json, audiences: [shop], algorithms: [RS256, ES256, EdDSA],
        claims: { user: sub } }
`
