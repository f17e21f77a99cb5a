package identity_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/identity"
)

const source = "https://issuer.example/jwks.json"

// endpoint is a place where keys are published, for use under synctest.
type endpoint struct {
	mu       sync.Mutex // guards all below
	document []byte
	status   int
	control  string // Cache-Control
	hangs    bool
	takes    time.Duration
	err      error
	fetches  []time.Time
}

func (e *endpoint) RoundTrip(request *http.Request) (*http.Response, error) {
	e.mu.Lock()
	e.fetches = append(e.fetches, time.Now())
	hangs, takes, err := e.hangs, e.takes, e.err
	response := &http.Response{StatusCode: e.status, Header: http.Header{"Cache-Control": {e.control},
		"Location": {source}},
		Body: io.NopCloser(strings.NewReader(string(e.document))), Request: request}
	e.mu.Unlock()
	<-time.After(takes)
	if hangs {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// set changes the endpoint.
func (e *endpoint) set(change func(*endpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// asked is when keys were asked for.
func (e *endpoint) asked() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]time.Time(nil), e.fetches...)
}

func newEndpoint(document []byte) *endpoint {
	return &endpoint{document: document, status: http.StatusOK}
}

// scene is an endpoint with a Resolver that uses it, on synctest's clock.
type scene struct {
	*endpoint
	sets     *identity.KeySets
	resolver *identity.Resolver
}

// play runs a script on an endpoint that publishes a document.
func play(t *testing.T, document []byte, script func(t *testing.T, s *scene)) {
	t.Helper()
	playOn(t, newEndpoint(document), script)
}

// playOn runs a script on an endpoint.
func playOn(t *testing.T, e *endpoint, script func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{endpoint: e}
		s.sets = identity.NewKeySets(identity.KeySetsConfig{Transport: s.endpoint})
		defer s.sets.Close()
		s.resolver = identity.New(jwtOnly(source), s.sets, identity.Options{})
		defer s.resolver.Close()
		script(t, s)
	})
}

// user is who a token names.
func (s *scene) user(token string) string {
	client, _ := s.resolver.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer "+token), Peer: peer})
	return client.User
}

// missing is a token of which the key is not there, another one for each number. Its signature is not checked.
func missing(i int) string {
	_, rest, _ := strings.Cut(edToken, ".")
	return b64(fmt.Appendf(nil, `{"alg":"EdDSA","kid":"kid%d"}`, i)) + "." + rest
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

var (
	edKeys  = keySet(publicJWK("ed", edKey.Public()))
	edToken = sign("EdDSA", "ed", edKey, good)
)

func TestAHangingEndpointAddsNoLatency(t *testing.T) {
	e := newEndpoint(edKeys)
	e.hangs = true
	playOn(t, e, func(t *testing.T, s *scene) {
		start := time.Now()
		for i := range 1000 {
			if user := s.user(missing(i)); user != "" {
				t.Fatalf("a token without a key yields %q", user)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("1,000 tokens took %s while the endpoint hung, want no time at all", took)
		}
		pass(3 * time.Second)
		if got := s.sets.Stats().Failures; got != 1 {
			t.Errorf("%d fetches failed after 3 s, want the one that hung", got)
		}
		s.set(func(e *endpoint) { e.hangs = false })
		pass(31 * time.Second)
		if user := s.user(edToken); user != "alice" {
			t.Errorf("once the endpoint answers, the token yields %q", user)
		}
	})
}

func TestUnknownKidsFetchOnceInThirtySeconds(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		for i := range 10_000 {
			s.user(missing(i))
			if i%10 == 0 {
				pass(100 * time.Millisecond) // 100 s in all
			}
		}
		asked := s.asked()
		if len(asked) < 3 || len(asked) > 4 {
			t.Errorf("%d fetches in 100 s of misses, want one in 30 s and one at the start", len(asked))
		}
		for i := 1; i < len(asked); i++ {
			if gap := asked[i].Sub(asked[i-1]); gap < 30*time.Second {
				t.Errorf("fetch %d came %s after the one before, want 30 s at least", i, gap)
			}
		}
	})
}

func TestANewKeyIsFoundByItsFirstToken(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		pass(10 * time.Second)
		s.set(func(e *endpoint) { e.document = keySet(publicJWK("new", edKey.Public())) })
		token := sign("EdDSA", "new", edKey, good)
		if user := s.user(token); user != "" {
			t.Fatalf("a token whose key is not there yet yields %q", user)
		}
		pass(19 * time.Second)
		if user := s.user(token); user != "" {
			t.Errorf("29 s after the last fetch the token yields %q: fetched too early", user)
		}
		pass(time.Second)
		if user := s.user(token); user != "alice" {
			t.Errorf("30 s after the last fetch the token yields %q: its rejection is still remembered, or nothing "+
				"was fetched", user)
		}
		if user := s.user(edToken); user != "" {
			t.Errorf("a token of a key that left yields %q", user)
		}
	})
}

func TestAKeyThatIsJustBeingFetchedIsNotAskedForAgain(t *testing.T) {
	e := newEndpoint(edKeys)
	e.takes = time.Second
	playOn(t, e, func(t *testing.T, s *scene) {
		pass(500 * time.Millisecond)
		if user := s.user(edToken); user != "" {
			t.Fatalf("before the fetch is over the token yields %q", user)
		}
		pass(time.Minute)
		if user := s.user(edToken); user != "alice" || len(s.asked()) != 1 {
			t.Errorf("after it the token yields %q with %d fetches, want alice with one", user, len(s.asked()))
		}
	})
}

func TestAKeyThatLeftEndsWhatIsRemembered(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		pass(4*time.Minute + 29*time.Second)
		if user := s.user(edToken); user != "alice" {
			t.Fatalf("the token yields %q", user)
		}
		s.set(func(e *endpoint) { e.document = keySet() })
		for range 31 {
			pass(time.Second)
		}
		if user := s.user(edToken); user != "" {
			t.Errorf("the token is remembered though its key left: %q", user)
		}
	})
}

func TestTheEndpointSaysWhenToAskAgain(t *testing.T) {
	for control, want := range map[string]time.Duration{
		"": 5 * time.Minute, "public": 5 * time.Minute, "max-age=600": 10 * time.Minute,
		"public, Max-Age=\"600\"": 10 * time.Minute,
		"max-age=1":               time.Minute, "max-age=86400": time.Hour, "max-age=-1": 5 * time.Minute,
		"max-age=99999999999999999999": 5 * time.Minute,
		"no-store":                     time.Minute, "no-cache, max-age=600": time.Minute,
	} {
		e := newEndpoint(edKeys)
		e.control = control
		playOn(t, e, func(t *testing.T, s *scene) {
			pass(2 * time.Hour)
			asked := s.asked()
			if len(asked) < 2 {
				t.Fatalf("Cache-Control %q: never asked again", control)
			}
			if gap := asked[1].Sub(asked[0]); gap > want || gap < want*9/10 {
				t.Errorf("Cache-Control %q: asked again after %s, want %s less a tenth at most", control, gap, want)
			}
		})
	}
}

func TestBadAnswersKeepTheLastGoodKeys(t *testing.T) {
	many := make([]object, 65)
	for i := range many {
		many[i] = publicJWK(fmt.Sprint(i), edKey.Public())
	}
	large := append(keySet(), strings.Repeat(" ", 256<<10)...)
	evil := keySet(publicJWK("evil", edKey.Public()))
	for name, change := range map[string]func(*endpoint){
		"500":             func(e *endpoint) { e.status, e.document = 500, evil },
		"404":             func(e *endpoint) { e.status, e.document = 404, evil },
		"no content":      func(e *endpoint) { e.status, e.document = 204, nil },
		"redirect":        func(e *endpoint) { e.status, e.document = 302, evil },
		"reset":           func(e *endpoint) { e.err = errors.New("connection reset") },
		"hangs":           func(e *endpoint) { e.hangs = true },
		"HTML":            func(e *endpoint) { e.document = []byte("<html>") },
		"empty":           func(e *endpoint) { e.document = nil },
		"an object":       func(e *endpoint) { e.document = []byte("{}") },
		"null":            func(e *endpoint) { e.document = []byte("null") },
		"keys are null":   func(e *endpoint) { e.document = []byte(`{"keys":null}`) },
		"keys are a text": func(e *endpoint) { e.document = []byte(`{"keys":"x"}`) },
		"65 keys":         func(e *endpoint) { e.document = keySet(many...) },
		"256 KiB and 1":   func(e *endpoint) { e.document = large[:256<<10+1] },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, edKeys, func(t *testing.T, s *scene) {
				synctest.Wait()
				s.set(change)
				pass(6 * time.Minute)
				if stats := s.sets.Stats(); stats.Failures == 0 || stats.Fetches < 2 {
					t.Errorf("%+v: the answer was not taken for a failure", stats)
				}
				if user := s.user(edToken); user != "alice" {
					t.Errorf("the token yields %q, want the last good keys", user)
				}
				if status := s.sets.Status(); len(status) != 1 || status[0].Err == nil || status[0].Keys != 1 {
					t.Errorf("status %+v, want one set with a key and what failed", status)
				}
			})
		})
	}
}

func TestAnswersAtTheBoundsAreTaken(t *testing.T) {
	many := make([]object, 64)
	for i := range many {
		many[i] = publicJWK(fmt.Sprint(i), edKey.Public())
	}
	many[63] = publicJWK("ed", edKey.Public())
	document := keySet(many...)
	document = append(document, strings.Repeat(" ", 256<<10-len(document))...)
	play(t, document, func(t *testing.T, s *scene) {
		synctest.Wait()
		if user := s.user(edToken); user != "alice" {
			t.Errorf("with 64 keys in 256 KiB the token yields %q", user)
		}
	})
}

func TestStaleKeysAreDroppedAndComeBack(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		s.set(func(e *endpoint) { e.status = 500 })
		pass(23 * time.Hour)
		if user := s.user(edToken); user != "alice" {
			t.Errorf("after 23 h of failures the token yields %q, want the last good keys", user)
		}
		pass(time.Hour + 6*time.Minute)
		if user := s.user(edToken); user != "" {
			t.Errorf("after a day of failures the token yields %q, want nothing", user)
		}
		s.set(func(e *endpoint) { e.status = 200 })
		pass(6 * time.Minute)
		if user := s.user(edToken); user != "alice" {
			t.Errorf("when the endpoint is back the token yields %q", user)
		}
	})
}

func TestFailuresAreRepeatedSlowly(t *testing.T) {
	e := newEndpoint(edKeys)
	e.status = 503
	playOn(t, e, func(t *testing.T, s *scene) {
		pass(time.Hour)
		asked := s.asked()
		if len(asked) < 10 || len(asked) > 20 {
			t.Errorf("%d fetches in an hour of failures, want one in 5 minutes after a quicker start", len(asked))
		}
		for i := 1; i < len(asked); i++ {
			if gap := asked[i].Sub(asked[i-1]); gap < 30*time.Second {
				t.Errorf("fetch %d came %s after a failure, want 30 s at least", i, gap)
			}
		}
	})
}

func TestWhoeverCannotBeReachedIsTriedAgainSoon(t *testing.T) {
	e := newEndpoint(edKeys)
	e.err = &net.OpError{Op: "dial", Err: errors.New("refused")}
	playOn(t, e, func(t *testing.T, s *scene) {
		pass(8 * time.Second)
		if got := len(s.asked()); got != 4 {
			t.Errorf("%d tries in 8 s without a network, want 4: at 0, 1, 3 and 7 s", got)
		}
		s.set(func(e *endpoint) { e.err = nil })
		pass(8 * time.Second)
		if user := s.user(edToken); user != "alice" {
			t.Errorf("when the network is there the token yields %q", user)
		}
	})
}

func TestCloseInterruptsAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(edKeys)
		e.hangs = true
		sets := identity.NewKeySets(identity.KeySetsConfig{Transport: e})
		r := identity.New(jwtOnly(source), sets, identity.Options{})
		synctest.Wait()
		start := time.Now()
		sets.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %s of a fetch that hangs", took)
		}
		late := identity.New(jwtOnly(source+"?2"), sets, identity.Options{})
		late.Close()
		r.Close()
		r.Close()
		sets.Close()
		if got := len(e.asked()); got != 1 {
			t.Errorf("%d fetches, want none after closing", got)
		}
	})
}
