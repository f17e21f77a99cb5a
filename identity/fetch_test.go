package identity_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// published serves a key set and counts who asks.
func published(t *testing.T, document []byte, start func(*httptest.Server)) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Write(document)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(server)
	t.Cleanup(server.Close)
	return server, &asked
}

func TestKeysOverHTTPS(t *testing.T) {
	server, asked := published(t, edKeys, (*httptest.Server).StartTLS)
	sets := identity.NewKeySets(identity.KeySetsConfig{Transport: server.Client().Transport})
	defer sets.Close()
	r := identity.New(jwtOnly(server.URL), sets, identity.Options{Now: atNoon})
	defer r.Close()
	s := &scene{resolver: r}
	awaitRefresh(t, sets)
	if user := s.user(edToken); user != "alice" {
		t.Errorf("the token yields %q", user)
	}
	for i := range 10_000 {
		s.user(missing(i))
	}
	if got := asked.Load(); got != 1 {
		t.Errorf("%d fetches with 10,000 unknown kids, want the first alone", got)
	}
}

// awaitRefresh waits until every set was loaded or failed once.
func awaitRefresh(t *testing.T, sets *identity.KeySets) {
	t.Helper()
	servers.Await(t, "the first load of all key sets", func() error {
		for _, status := range sets.Status() {
			if status.Loaded.IsZero() && status.Err == nil {
				return errors.New(status.Source + " was not loaded")
			}
		}
		return nil
	})
}

func TestWhichSourcesAreAsked(t *testing.T) {
	server, _ := published(t, edKeys, (*httptest.Server).Start)
	secure, _ := published(t, edKeys, (*httptest.Server).StartTLS)
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for name, c := range map[string]struct {
		source   string
		loopback bool
		problem  string // empty: it is taken
	}{
		"http":                      {server.URL, false, "not https"},
		"http on loopback, allowed": {server.URL, true, ""},
		"http of a name":            {"http://localhost" + port, true, "not https"},
		"http of another address":   {"http://192.0.2.1" + port, true, "not https"},
		"another scheme":            {"ftp://127.0.0.1" + port, true, "not https"},
		"no host":                   {"https:///jwks", true, "neither"},
		"relative path":             {"jwks.json", true, "neither"},
		"empty":                     {"", true, "neither"},
		"broken":                    {"https://[::1", true, "neither"},
		"unknown certificate":       {secure.URL, true, "certificate"},
		"link-local, metadata":      {"https://169.254.169.254/keys", true, "link-local"},
		"link-local, IPv4 in IPv6":  {"https://[::ffff:169.254.169.254]/keys", true, "link-local"},
		"link-local, IPv6":          {"https://[fe80::1]/keys", true, "link-local"},
		"file that is not there":    {"/nonexistent/jwks.json", true, "no such file"},
		"folder":                    {os.TempDir(), true, "must be a plain file"},
	} {
		t.Run(name, func(t *testing.T) {
			sets := identity.NewKeySets(identity.KeySetsConfig{LoopbackHTTP: c.loopback})
			defer sets.Close()
			r := identity.New(jwtOnly(c.source), sets, identity.Options{Now: atNoon})
			defer r.Close()
			awaitRefresh(t, sets)
			status := sets.Status()[0]
			if c.problem == "" && status.Err != nil {
				t.Errorf("not taken: %v", status.Err)
			}
			if c.problem != "" && (status.Err == nil || !strings.Contains(status.Err.Error(), c.problem)) {
				t.Errorf("error %v, want one about %q", status.Err, c.problem)
			}
		})
	}
}

// TestAProxyIsNotAskedForLinkLocalAddresses: it would reach them in place of this process. Private addresses are asked
// for: identity providers are in the cluster as a rule.
func TestAProxyIsNotAskedForLinkLocalAddresses(t *testing.T) {
	var mu sync.Mutex // guards asked
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host)
		mu.Unlock()
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	at := must.Get(url.Parse(proxy.URL))(t)
	for _, source := range []string{"https://169.254.169.254/keys", "https://[fe80::1]/keys",
		"https://[::ffff:169.254.169.254]:444/keys", "https://10.0.0.1/keys", "https://idp.internal/keys"} {
		sets := identity.NewKeySets(identity.KeySetsConfig{Transport: &http.Transport{Proxy: http.ProxyURL(at),
			DisableKeepAlives: true}})
		r := identity.New(jwtOnly(source), sets, identity.Options{Now: atNoon})
		awaitRefresh(t, sets)
		if sets.Status()[0].Err == nil {
			t.Errorf("%s has a key set", source)
		}
		r.Close()
		sets.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"CONNECT 10.0.0.1:443", "CONNECT idp.internal:443"}; !slices.Equal(asked, want) {
		t.Errorf("the proxy was asked for %q, want %q", asked, want)
	}
}

func TestAPipeIsNoKeySet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	_, sets := resolver(t, jwtOnly(path), atNoon)
	if status := sets.Status()[0]; status.Err == nil {
		t.Error("a pipe was taken for a key set")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	evil, asked := published(t, edKeys, (*httptest.Server).Start)
	server := httptest.NewServer(http.RedirectHandler(evil.URL, http.StatusFound))
	defer server.Close()
	sets := identity.NewKeySets(identity.KeySetsConfig{LoopbackHTTP: true})
	defer sets.Close()
	r := identity.New(jwtOnly(server.URL), sets, identity.Options{Now: atNoon})
	defer r.Close()
	awaitRefresh(t, sets)
	if status := sets.Status()[0]; status.Err == nil || status.Keys != 0 || asked.Load() != 0 {
		t.Errorf("status %+v, the place redirected to was asked %d times: want an error and no keys", status,
			asked.Load())
	}
}

func TestFilesAreReadAtOnceAndAgain(t *testing.T) {
	path := writeKeys(t, edKeys)
	synctest.Test(t, func(t *testing.T) {
		sets := identity.NewKeySets(identity.KeySetsConfig{})
		defer sets.Close()
		s := &scene{resolver: identity.New(jwtOnly(path), sets, identity.Options{})}
		defer s.resolver.Close()
		if user := s.user(edToken); user != "alice" {
			t.Fatalf("at once the token yields %q", user)
		}
		replaceFile(t, path, keySet(publicJWK("new", edKey.Public())))
		token := sign("EdDSA", "new", edKey, good)
		s.user(token)
		pass(5 * time.Second)
		if user := s.user(token); user != "alice" {
			t.Errorf("5 s after the file changed its new key's token yields %q", user)
		}
		replaceFile(t, path, []byte("{"))
		pass(5 * time.Second)
		if user := s.user(token); user != "alice" || sets.Stats().Failures != 1 {
			t.Errorf("with a broken file the token yields %q after %d failures, want the last good keys and one", user,
				sets.Stats().Failures)
		}
		must.Do(t, os.Remove(path))
		pass(time.Minute)
		if user := s.user(token); user != "alice" {
			t.Errorf("without the file the token yields %q, want the last good keys", user)
		}
	})
}

// replaceFile puts another file in the place of one, as a ConfigMap does.
func replaceFile(t *testing.T, path string, document []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path+".new", document, 0o600))
	must.Do(t, os.Rename(path+".new", path))
}

func TestUnusableKeysAreLeftOut(t *testing.T) {
	ed, rs := publicJWK("k", edKey.Public()), publicJWK("k", &rsaKey().PublicKey)
	edT, rsT := sign("EdDSA", "k", edKey, good), sign("RS256", "k", rsaKey(), good)
	short := must.Value(newRSA(1024))
	for name, c := range map[string]struct {
		keys  []object
		token string
		want  string
	}{
		"for signatures":        {[]object{with(ed, object{"use": "sig"})}, edT, "alice"},
		"for encryption":        {[]object{with(ed, object{"use": "enc"})}, edT, ""},
		"to verify":             {[]object{with(ed, object{"key_ops": []string{"verify"}})}, edT, "alice"},
		"to encrypt":            {[]object{with(ed, object{"key_ops": []string{"encrypt"}})}, edT, ""},
		"for this algorithm":    {[]object{with(rs, object{"alg": "RS256"})}, rsT, "alice"},
		"for another algorithm": {[]object{with(rs, object{"alg": "RS512"})}, rsT, ""},
		"for Ed25519":           {[]object{with(ed, object{"alg": "Ed25519"})}, edT, "alice"},
		"for key wrapping":      {[]object{with(rs, object{"alg": "RSA-OAEP"})}, rsT, ""},
		"1,024 bits":            {[]object{publicJWK("k", &short.PublicKey)}, sign("RS256", "k", short, good), ""},
		"a shared secret": {[]object{{"kty": "oct", "kid": "k", "k": b64([]byte("secret"))}},
			sign("HS256", "k", []byte("secret"), good), ""},
		"beside keys of other kinds": {[]object{{"kty": "EC", "crv": "secp256k1", "kid": "x", "x": "AA", "y": "AA"},
			{"kty": "new"}, ed}, edT, "alice"},
		"with a private part": {[]object{with(ed, object{"d": b64(edKey.Seed())})}, edT, "alice"},
		"with a foreign certificate": {
			[]object{with(ed, object{"x5c": []string{"AAAA"}, "x5u": "https://evil.example", "x5t": "x"})}, edT,
			"alice"},
		"the same id twice": {[]object{rs, ed}, edT, "alice"},
		"not on the curve": {[]object{{"kty": "EC", "crv": "P-256", "kid": "k", "x": b64([]byte{1}),
			"y": b64([]byte{1})}}, sign("ES256", "k", p256Key(), good), ""},
		"ES256 with a longer curve": {[]object{publicJWK("k", &p384Key().PublicKey)},
			sign("ES256", "k", p256Key(), good), ""},
		"no numbers":    {[]object{{"kty": "RSA", "kid": "k"}}, rsT, ""},
		"even exponent": {[]object{with(rs, object{"e": "Ag"})}, rsT, ""},
		"no keys":       {[]object{}, edT, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, sets := resolver(t, jwtOnly(writeKeys(t, keySet(c.keys...))), atNoon)
			if err := sets.Status()[0].Err; err != nil {
				t.Fatalf("the set is refused as a whole: %v", err)
			}
			if user := (&scene{resolver: r}).user(c.token); user != c.want {
				t.Errorf("the token yields %q, want %q", user, c.want)
			}
		})
	}
}

func TestAResolverThatIsGarbageLetsGoOfItsSets(t *testing.T) {
	sets := identity.NewKeySets(identity.KeySetsConfig{})
	defer sets.Close()
	path := writeKeys(t, edKeys)
	for range 10 {
		identity.New(jwtOnly(path), sets, identity.Options{})
	}
	servers.Await(t, "the set to be let go of", func() error {
		runtime.GC()
		if sets.Stats().Sets > 0 {
			return errors.New("it is in use")
		}
		return nil
	})
}
