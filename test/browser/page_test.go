package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// pageRules let a user through three times an hour.
const pageRules = `domain: shop
rules:
  - { name: per-user, scope: user, limit: 3/1h }
  - { name: gold, scope: user, match: { tiers: [gold] }, limit: 100/1h }
  - { name: search, scope: [user, endpoint], match: { endpoints: ["/search"] }, limit: 50/1h }
  - { name: per-address, scope: ip, limit: 1000/1m }
`

// world is a sidecar with its page in a browser.
type world struct {
	*servers.Sidecar
	browser *servers.Chromium
	tab     *servers.Tab
	calls   ratelimitv3.RateLimitServiceClient
}

// write writes a file into a folder of the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// sidecar starts a sidecar with rules and settings.
func sidecar(t *testing.T, rules string, environ ...string) *servers.Sidecar {
	t.Helper()
	return servers.StartSidecar(t, append([]string{"RULES=" + write(t, "rules.yaml", rules), "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s"}, environ...)...)
}

// watch opens the page of a sidecar, and waits until it shows numbers and refusals.
func watch(t *testing.T, s *servers.Sidecar) *world {
	t.Helper()
	w := &world{Sidecar: s, browser: servers.StartChromium(t), calls: dial(t, s.GRPC)}
	w.tab = w.browser.Open(t, "http://"+s.Debug+"/")
	w.tab.Await(t, `document.body.dataset.state === "live" && document.body.dataset.events === "on"`)
	return w
}

// dial connects to the rate limit service of a sidecar.
func dial(t *testing.T, address string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	conn := must.Get(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	return ratelimitv3.NewRateLimitServiceClient(conn)
}

// ask asks for a user over gRPC, and reports whether the request may pass.
func (w *world) ask(t *testing.T, user string) bool {
	t.Helper()
	return w.askIn(t, "shop", user)
}

// askIn is ask in a domain.
func (w *world) askIn(t *testing.T, domain, user string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer := must.Get(w.calls.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: domain,
		Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
		}}))(t)
	return answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
}

// spend asks for a user until a request is refused.
func (w *world) spend(t *testing.T, user string) {
	t.Helper()
	for range 10 {
		if !w.ask(t, user) {
			return
		}
	}
	t.Fatalf("%s is not refused after 10 requests", user)
}

// text is a JavaScript literal.
func text(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return string(quoted)
}

// set fills in a field, as typing does.
func (w *world) set(t *testing.T, id, value string) {
	t.Helper()
	var done bool
	w.tab.Evaluate(t, fmt.Sprintf(`(() => { const f = document.getElementById(%s); f.value = %s; `+
		`f.dispatchEvent(new Event("input", {bubbles: true})); f.dispatchEvent(new Event("change", {bubbles: `+
		`true})); return f.value === %[2]s; })()`,
		text(id), text(value)), &done)
	if !done {
		t.Fatalf("%s cannot be %q", id, value)
	}
}

// click clicks what a selector finds.
func (w *world) click(t *testing.T, selector string) {
	t.Helper()
	var done bool
	w.tab.Evaluate(t, fmt.Sprintf(`(() => { const f = document.querySelector(%s); f?.click(); return Boolean(f); })()`,
		text(selector)), &done)
	if !done {
		t.Fatalf("there is no %s", selector)
	}
}

// inside is an expression for whether an element holds a text.
func inside(id, part string) string {
	return fmt.Sprintf("document.getElementById(%s).textContent.includes(%s)", text(id), text(part))
}

// own checks that the page asked for nothing but this sidecar, and that the browser has nothing to complain about.
func (w *world) own(t *testing.T) {
	t.Helper()
	requests := w.browser.Events("Network.requestWillBeSent")
	for _, e := range requests {
		var sent struct{ Request struct{ URL string } }
		must.Do(t, json.Unmarshal(e.Params, &sent))
		at, err := url.Parse(sent.Request.URL)
		if err != nil || at.Scheme != "data" && at.Host != w.Debug {
			t.Errorf("the page asks for %s", sent.Request.URL)
		}
	}
	for _, method := range []string{"Log.entryAdded", "Runtime.exceptionThrown"} {
		for _, e := range w.browser.Events(method) {
			t.Errorf("%s: %s", method, e.Params)
		}
	}
}

// TestPageShowsWhatIsRefused lets users spend their limit, one of them with a name that tries to be markup.
func TestPageShowsWhatIsRefused(t *testing.T) {
	w := watch(t, sidecar(t, pageRules, "REDIS_URL="+servers.StartRedis(t).Addr))
	const hostile = `<img src=x onerror="document.title='owned'"><script>document.title="owned"</script>`
	for _, user := range []string{"alice", hostile} {
		w.spend(t, user)
		w.tab.Await(t, inside("refusal-list", user))
	}
	var shown struct {
		Title         string
		Rules, Images int
		Seen          float64
	}
	w.tab.Evaluate(t,
		`({ Title: document.title, Images: document.querySelectorAll("main img, main script, main iframe").length,
		Rules: [...document.querySelectorAll("#refusal-list li")].filter(
			li => li.textContent.includes(" / per-user / shop1 × refused")).length,
		Seen: (Date.now() - Date.parse(document.querySelector("#refusal-list time").dateTime)) / 1000 })`, &shown)
	if shown.Title != "Spillway" || shown.Images != 0 || shown.Rules != 2 {
		t.Errorf("a client's name is not shown as text: %+v", shown)
	}
	t.Logf("the last refusal is shown, and was made %.3f s ago", shown.Seen)
	w.tab.Await(t, inside("top-refused", "alice")+` && document.querySelectorAll("#top-refused li").length === 2`)
	w.tab.Await(t, `document.querySelector("#chart path.o-allowed").getAttribute("d") !== ""`)
	w.tab.Await(t, `document.querySelector("#chart path.o-refused").getAttribute("d") !== ""`)
	w.click(t, "input[name=by][value=rule]")
	w.tab.Await(t, `document.querySelector(".legend").textContent.includes("per-user")`)
	w.tab.Await(t, inside("tile-breaker", "closed"))
	w.tab.Await(t, inside("store", "ok"))
	w.tab.Await(t, inside("rule-list", "rules.yaml:4"))
	w.tab.Await(t, inside("tile-fleet", "1 sidecar"))
	w.click(t, "#refusal-list li:last-child button[aria-label^=Explain]")
	w.click(t, "#ask button")
	w.tab.Await(t, inside("explained", "refused by per-user, HTTP status 429"))
	w.own(t)
}

// TestPageExplains asks for the explanation of a request over HTTP and of one as RLS.
func TestPageExplains(t *testing.T) {
	w := watch(t, sidecar(t, pageRules))
	w.spend(t, "alice")
	w.set(t, "ask-path", "/search?q=1")
	w.set(t, "ask-peer", "192.0.2.7")
	w.click(t, "#ask button")
	for _, part := range []string{"allowed by per-address, HTTP status 200", "192.0.2.7", "known by", "rules.yaml:6",
		"1000 of 1000"} {
		w.tab.Await(t, inside("explained", part))
	}
	w.click(t, "input[name=form][value=rls]")
	w.set(t, "ask-json", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"},{"key":"tier",`+
		`"value":"gold"}]}]}`)
	w.click(t, "#ask button")
	for _, part := range []string{"allowed by gold", "per-user", "beaten by gold", "rules.yaml:4", "100 of 100"} {
		w.tab.Await(t, inside("explained", part))
	}
	w.set(t, "ask-json", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`)
	w.click(t, "#ask button")
	for _, part := range []string{"refused by per-user, HTTP status 429", "0 of 3, refuses"} {
		w.tab.Await(t, inside("explained", part))
	}
	w.set(t, "ask-json", `{"domain":`)
	w.click(t, "#ask button")
	w.tab.Await(t, inside("explained", "not JSON"))
	w.own(t)
}

// TestPageBlocksAClientByKeyboard blocks a client with Tab, Enter and letters alone, after reading what will happen.
func TestPageBlocksAClientByKeyboard(t *testing.T) {
	w := watch(t, sidecar(t, strings.Replace(pageRules, "3/1h", "1000000/1h", 1),
		"REDIS_URL="+servers.StartRedis(t).Addr))
	if !w.ask(t, "mallory") {
		t.Fatal("mallory is refused before the block")
	}
	w.tab.Await(t, `document.getElementById("who-domain").value === "shop"`)
	w.tabTo(t, `document.activeElement.id === "who-name"`)
	w.tab.Type(t, "mallory")
	w.tabTo(t, `document.activeElement.dataset.change === "block"`)
	w.tab.Press(t, "Enter")
	w.tab.Await(t, `document.getElementById("confirm").open`)
	w.tabTo(t, `document.activeElement.id === "block-reason"`)
	w.tab.Type(t, "Contact support.")
	w.tab.Await(t, inside("confirm-what", "All requests of user mallory in the domain shop are refused, until"))
	w.tab.Await(t, inside("confirm-what", "The client is told: Contact support."))
	w.tab.Press(t, "Enter") // leads to the button, and does not press it
	w.tab.Await(t, `document.activeElement.id === "confirm-yes" && document.getElementById("confirm").open`)
	for range 6 {
		w.tab.Press(t, "Tab")
		w.tab.Await(t, `document.activeElement === document.body || `+
			`document.getElementById("confirm").contains(document.activeElement)`)
	}
	w.tabTo(t, `document.activeElement.id === "confirm-yes"`)
	if !w.ask(t, "mallory") {
		t.Fatal("mallory is refused before the block is confirmed")
	}
	w.tab.Press(t, "Enter")
	w.tab.Await(t, `!document.getElementById("confirm").open`)
	servers.Await(t, "the block", func() error {
		if w.ask(t, "mallory") {
			return fmt.Errorf("mallory still gets through")
		}
		return nil
	})
	w.tab.Await(t, inside("left", "It is blocked"))
	w.tab.Await(t, inside("refusal-list", "blocked"))
	w.click(t, "[data-change=unblock]")
	w.tab.Await(t, inside("confirm-what", "The block of user mallory in the domain shop ends."))
	w.tab.Press(t, "Escape")
	w.tab.Await(t, `!document.getElementById("confirm").open`)
	if w.ask(t, "mallory") {
		t.Error("Escape ended the block")
	}
	w.own(t)
}

// tabTo presses Tab until an expression is true.
func (w *world) tabTo(t *testing.T, expression string) {
	t.Helper()
	for range 100 {
		var there, seen bool
		w.tab.Evaluate(t, "Boolean("+expression+")", &there)
		if there {
			w.tab.Evaluate(t, `getComputedStyle(document.activeElement).outlineStyle !== "none"`, &seen)
			if !seen {
				t.Errorf("%s: the focus is not to be seen", expression)
			}
			return
		}
		w.tab.Press(t, "Tab")
	}
	t.Fatalf("100 tabs do not lead to %s", expression)
}

// TestPageOperates uses the other buttons: each shows what will happen, and then it happens.
func TestPageOperates(t *testing.T) {
	w := watch(t, sidecar(t, "penalty: { cool_down: 1h, threshold: 2 }\n"+pageRules,
		"REDIS_URL="+servers.StartRedis(t).Addr))
	w.spend(t, "alice")
	w.tab.Await(t, inside("refusal-list", "alice"))
	w.click(t, "#refusal-list button")
	w.tab.Await(t, inside("left", "0 of 3"))
	for _, c := range []struct{ change, field, value, will, then string }{
		{"reset", "", "", "of user alice in the domain shop become full", "3 of 3"},
		{"tier", "tier-name", "gold", "The tier of user alice in the domain shop becomes gold",
			"Not used: per-user (gold takes its place)"},
		{"pardon", "", "", "cool-downs of user alice in the domain shop end", "It has the tier gold"},
		{"block", "block-for", "10m", "All requests of user alice in the domain shop are refused, until ",
			"It is blocked"},
		{"unblock", "", "", "The block of user alice in the domain shop ends", "It has the tier gold"},
	} {
		w.click(t, "[data-change="+c.change+"]")
		if c.field != "" {
			w.set(t, c.field, c.value)
		}
		w.tab.Await(t, inside("confirm-what", c.will)+` && !document.getElementById("confirm-yes").disabled`)
		w.click(t, "#confirm-yes")
		w.tab.Await(t, `!document.getElementById("confirm").open`)
		w.tab.Await(t, inside("left", c.then))
	}
	w.tab.Await(t, "!"+inside("left", "It is blocked"))
	w.click(t, "[data-change=block]")
	w.set(t, "block-for", "soon")
	w.tab.Await(t, inside("confirm-what", "one unit")+` && document.getElementById("confirm-yes").disabled`)
	if strings.Contains(w.Output(), "soon") {
		t.Error("a block that cannot be read was logged as a change")
	}
}
