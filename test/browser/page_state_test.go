package browser

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestPageAsksForAToken signs in with the role view, which sees and changes nothing, and then with operate.
func TestPageAsksForAToken(t *testing.T) {
	tokens := write(t, "tokens", "view vera 0123456789abcdef\noperate olga fedcba9876543210\n")
	s := sidecar(t, pageRules, "ADMIN_TOKEN_FILE="+tokens)
	w := &world{Sidecar: s, browser: servers.StartChromium(t), calls: dial(t, s.GRPC)}
	w.tab = w.browser.Open(t, "http://"+s.Debug+"/")
	sign := func(token string) {
		w.set(t, "token", token)
		w.click(t, "#sign button")
	}
	w.tab.Await(t, `!document.getElementById("sign").hidden && `+inside("state", "no permission"))
	sign("no such token at all")
	w.tab.Await(t, inside("sign-why", "not one that it knows"))
	sign("0123456789abcdef")
	w.tab.Await(t, `document.body.dataset.state === "live" && document.getElementById("sign").hidden && `+
		`document.getElementById("changes").hidden`)
	w.tab.Await(t, inside("may-not", "vera has the role view")+" && "+inside("caller", "vera, role view"))
	w.tab.Await(t, inside("refusals-note", "vera may not read events"))
	w.click(t, "#forget")
	w.tab.Await(t, `!document.getElementById("sign").hidden && sessionStorage.length === 0`)
	sign("fedcba9876543210")
	w.tab.Await(t, `document.body.dataset.events === "on" && !document.getElementById("changes").hidden && `+
		`localStorage.length === 0 && document.cookie === ""`)
}

// TestPageOutlivesItsSidecar takes the sidecar away: the page shows that, and continues when it is back.
func TestPageOutlivesItsSidecar(t *testing.T) {
	_, port, err := net.SplitHostPort(servers.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"DEBUG_PORT=" + port, "REDIS_URL=" + servers.StartRedis(t).Addr}
	w := watch(t, sidecar(t, pageRules, environ...))
	w.spend(t, "alice")
	w.tab.Await(t, inside("refusal-list", "alice"))
	w.End(t)
	w.tab.Await(t, inside("state", "not connected"))
	s := sidecar(t, pageRules+"  - { name: later, scope: tenant, limit: 9/1h }\n", environ...)
	w.Sidecar, w.calls = s, dial(t, s.GRPC)
	w.tab.Await(t, inside("state", "live")+` && document.body.dataset.events === "on"`)
	w.tab.Await(t, inside("rule-list", "later"))
	w.spend(t, "bob")
	w.tab.Await(t, inside("refusal-list", "bob")+" && "+inside("refusal-list", "alice"))
}

// TestPageShowsAFleetThatDisagrees starts two sidecars with different rules on one Redis, and takes Redis away.
func TestPageShowsAFleetThatDisagrees(t *testing.T) {
	redis := servers.StartRedis(t)
	w := watch(t, sidecar(t, pageRules, "REDIS_URL="+redis.Addr))
	w.tab.Await(t, inside("tile-fleet-note", "all with the same rules"))
	sidecar(t, pageRules+"  - { name: later, scope: tenant, limit: 9/1h }\n", "REDIS_URL="+redis.Addr)
	w.tab.Await(t, inside("notices", "do not run the same rules")+" && "+inside("tile-fleet", "2 sidecars")+
		` && document.querySelector("#fleet-list .pill.bad, #fleet-list .pill.warn")`)
	redis.Kill(t)
	servers.Await(t, "the breaker on the page", func() error {
		w.ask(t, "alice")
		var state string
		w.tab.Evaluate(t, `document.getElementById("tile-breaker").textContent`, &state)
		if state == "closed" {
			return fmt.Errorf("it is closed")
		}
		return nil
	})
	w.tab.Await(t, inside("notices", "Redis does not decide"))
}

// TestPageWeighsLittle loads the page and adds up what comes over the wire until it shows numbers, rules and the fleet.
func TestPageWeighsLittle(t *testing.T) {
	w := watch(t, sidecar(t, pageRules))
	w.tab.Await(t, inside("rule-list", "per-user")+" && "+inside("tile-fleet", "sidecar"))
	const most = 150 << 10
	total := 0
	for _, e := range w.browser.Events("Network.dataReceived") {
		var got struct{ DataLength int }
		must.Do(t, json.Unmarshal(e.Params, &got))
		total += got.DataLength
	}
	if total < 10<<10 || total > most {
		t.Errorf("the page takes %d bytes, want at most %d", total, most)
	}
	t.Logf("the page takes %d bytes in all; its first paints came after %v", total, w.paints(t))
}

// paints are how long after the beginning of the first load, and of some more, something was to be seen.
func (w *world) paints(t *testing.T) (all []time.Duration) {
	t.Helper()
	for range 6 {
		w.tab.Await(t, `performance.getEntriesByName("first-contentful-paint").length > 0 && !window.measured`)
		var paint float64
		w.tab.Evaluate(t, `(window.measured = true, `+
			`performance.getEntriesByName("first-contentful-paint")[0].startTime)`, &paint)
		all = append(all, time.Duration(paint*float64(time.Millisecond)).Round(time.Millisecond))
		w.tab.Call(t, "Page.reload", map[string]any{"ignoreCache": true}, nil)
	}
	return all
}

// contrasts is the lowest contrast of the page's texts with their grounds, and the luminance of the page.
const contrasts = `(() => {
	const parse = colour => {
		const n = colour.match(/[\d.]+/g).map(Number);
		return { rgb: n.slice(0, 3), alpha: n[3] ?? 1 };
	};
	const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	const light = rgb => rgb.map(n => linear(n / 255)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = node => {
		for (; node; node = node.parentElement) {
			const c = parse(getComputedStyle(node).backgroundColor);
			if (c.alpha === 1) return c.rgb;
		}
		return [255, 255, 255];
	};
	let least = 99, where = "";
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node; node = walk.nextNode();) {
		const parent = node.parentElement;
		if (!node.textContent.trim() || !parent.checkVisibility()) continue;
		if (parent.closest("button:disabled, noscript")) continue;
		const a = light(parse(getComputedStyle(parent).color).rgb), b = light(ground(parent));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast >= least) continue;
		least = contrast;
		where = node.textContent.trim().slice(0, 40) + " in " + parent.outerHTML.slice(0, 80);
	}
	const width = document.documentElement.scrollWidth;
	return { Least: least, Where: where, Page: light(ground(document.body)), Width: width };
})()`

// TestPageCanBeRead looks at the page in light and dark, on a wide screen and on a phone, with all its parts filled.
func TestPageCanBeRead(t *testing.T) {
	w := watch(t, sidecar(t, pageRules, "REDIS_URL="+servers.StartRedis(t).Addr))
	w.fill(t)
	w.readable(t)
}

// readable looks at a page in light and dark, on a wide screen and on a phone.
func (w *world) readable(t *testing.T) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1920, 1280, 800, 375} {
			w.tab.Screen(t, width, 800, scheme)
			w.tab.Await(t, `[...document.querySelectorAll("main details")].every(d => d.open) || `+
				`(document.querySelectorAll("main details").forEach(d => d.open = true), false)`)
			var seen struct {
				Least, Page float64
				Where       string
				Width       int
			}
			w.tab.Evaluate(t, contrasts, &seen)
			if seen.Least < 4.5 {
				t.Errorf("%s, %d pixels: a text has a contrast of %.2f, want 4.5: %s", scheme, width, seen.Least,
					seen.Where)
			}
			if dark := seen.Page < 0.2; dark != (scheme == "dark") {
				t.Errorf("%s: the page's luminance is %.2f", scheme, seen.Page)
			}
			if seen.Width > width {
				t.Errorf("%s: on a screen of %d pixels the page is %d wide", scheme, width, seen.Width)
			}
		}
	}
	var unnamed []string
	w.tab.Evaluate(t, `[...document.querySelectorAll("main input, main select, main textarea")].filter(f => `+
		`!f.labels.length).map(f => f.id)`, &unnamed)
	if len(unnamed) > 0 {
		t.Errorf("fields without a label: %q", unnamed)
	}
}

// fill makes all parts of the page show something, with long names among it.
func (w *world) fill(t *testing.T) {
	t.Helper()
	const long = "a-user-with-a-name-without-a-place-to-break-that-is-longer-than-any-phone-is-wide@example.com"
	for _, user := range []string{"alice", "bob", long} {
		w.spend(t, user)
	}
	w.tab.Await(t, inside("refusal-list", long)+` && document.querySelectorAll("#top-refused li").length === 3 && `+
		inside("fleet-list", "this one"))
	w.set(t, "who-name", "alice")
	w.click(t, "#look")
	w.click(t, "input[name=form][value=rls]")
	w.set(t, "ask-json", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"},{"key":"tier",`+
		`"value":"gold"}]}]}`)
	w.click(t, "#ask button")
	w.tab.Await(t, inside("left", "0 of 3")+" && "+inside("explained", "beaten by gold"))
	w.click(t, "[data-change=block]")
	w.tab.Await(t, inside("confirm-what", "All requests"))
	w.click(t, "#confirm-no")
}
