package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// treeRules are in the reference server's format, where a limit has a name and its node a path.
const treeRules = `domain: edge
descriptors:
  - key: user
    rate_limit: {name: per-user, unit: hour, requests_per_unit: 2}
---
domain: shop
rules:
  - { name: bucket, scope: user, limit: { count: 100, per: 1h, algorithm: token_bucket } }
`

// twoDomains starts a sidecar with a folder of files, one for each domain.
func twoDomains(t *testing.T) *servers.Sidecar {
	t.Helper()
	tree, shop, _ := strings.Cut(treeRules, "---\n")
	folder := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(folder, "tree.yaml"), []byte(tree), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte(shop), 0o600))
	return servers.StartSidecar(t, "RULES="+folder, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
}

// TestARuleHasOneNameOnThePage: the name in headers is the one of refusals, top keys, the chart, usage and rules. A
// counter goes by its client, rule and domain.
func TestARuleHasOneNameOnThePage(t *testing.T) {
	w := watch(t, twoDomains(t))
	for range 3 {
		w.askIn(t, "edge", "alice")
	}
	const who = "alice / per-user / edge"
	w.tab.Await(t, inside("refusal-list", who)+" && "+inside("top-refused", who)+" && "+inside("top-asked", who))
	w.tab.Await(t, `!document.querySelector("main").textContent.includes("rl1:")`)
	w.tab.Await(t, inside("rule-list", "per-user"))
	w.click(t, "input[name=by][value=rule]")
	w.tab.Await(t, `document.querySelector(".legend").textContent.includes("per-user")`)
	w.click(t, "#top-refused button")
	w.tab.Await(t, inside("left", "0 of 2, ends in "))
	w.set(t, "who-domain", "shop")
	w.set(t, "who-kind", "user")
	w.set(t, "who-name", "alice")
	w.click(t, "#look")
	w.tab.Await(t, inside("left", "100 of 100, full")+" && !"+inside("left", "full in"))
	w.own(t)
}

// TestAnIdlePageShowsAnOutage takes Redis away from a sidecar that gets no requests.
func TestAnIdlePageShowsAnOutage(t *testing.T) {
	redis := servers.StartRedis(t)
	w := watch(t, sidecar(t, pageRules, "REDIS_URL="+redis.Addr))
	w.tab.Await(t, inside("tile-breaker", "closed")+` && document.getElementById("notices").textContent === ""`)
	redis.Kill(t)
	w.tab.Await(t, inside("notices", "Redis does not decide: it cannot be reached")+" && "+
		inside("tile-store", "away")+" && "+inside("state", "degraded"))
	var calm int
	w.tab.Evaluate(t, `document.querySelectorAll(".tile .good, #state.good").length`, &calm)
	if calm > 0 {
		t.Errorf("%d parts are green in an outage", calm)
	}
}

// TestDialogsNameTheDomainAndWarnByColour opens the dialogs of a client.
func TestDialogsNameTheDomainAndWarnByColour(t *testing.T) {
	w := watch(t, sidecar(t, pageRules))
	w.tab.Await(t, `document.getElementById("who-domain").value === "shop"`)
	w.set(t, "who-name", "alice")
	colours := map[string]string{}
	for _, change := range []string{"block", "unblock", "reset", "pardon", "tier"} {
		w.click(t, "[data-change="+change+"]")
		w.tab.Await(t, inside("confirm-title", "user alice in the domain shop"))
		var colour string
		w.tab.Evaluate(t, `getComputedStyle(document.getElementById("confirm-yes")).backgroundColor`, &colour)
		colours[change] = colour
		w.click(t, "#confirm-no")
	}
	for _, harmless := range []string{"unblock", "pardon", "tier"} {
		if colours[harmless] == colours["block"] || colours["block"] != colours["reset"] {
			t.Errorf("the buttons of the dialogs have the colours %v", colours)
		}
	}
}

// TestThePageOfAPhoneIsShort loads the page with 39 rules on a phone: lists are folded, and refusals of a client are
// one entry.
func TestThePageOfAPhoneIsShort(t *testing.T) {
	var rules strings.Builder
	rules.WriteString(pageRules)
	for i := range 35 {
		fmt.Fprintf(&rules, "  - { name: rule-%d, scope: tenant, limit: %d/1h }\n", i, i+1)
	}
	w := watch(t, sidecar(t, rules.String()))
	w.tab.Screen(t, 375, 812, "light")
	w.tab.Call(t, "Page.reload", map[string]any{}, nil)
	w.tab.Await(t, `document.body.dataset.events === "on" && `+inside("rules-note", "39 in 1 domain"))
	for range 9 {
		w.ask(t, "alice")
	}
	w.tab.Await(t, inside("refusal-list", "6 × refused")+
		` && document.querySelectorAll("#refusal-list li").length === 1`)
	var seen struct{ High, Wide, Nav, Open int }
	w.tab.Evaluate(t, `({ High: document.documentElement.scrollHeight, Wide: document.documentElement.scrollWidth,
		Nav: new Set([...document.querySelectorAll("nav a")].map(a => a.offsetTop)).size,
		Open: document.querySelectorAll("details[open]").length })`, &seen)
	if seen.High > 4*812 || seen.Wide > 375 || seen.Nav != 1 || seen.Open > 0 {
		t.Errorf("the page of a phone: %+v, want at most %d high, 375 wide, 1 line of links, no open fold", seen,
			4*812)
	}
	w.click(t, "nav a[href='#rules']")
	w.tab.Await(t, `document.querySelector("#rules > details").open`)
	w.click(t, "#rule-list summary")
	w.tab.Evaluate(t, `({ Wide: document.documentElement.scrollWidth, High: Math.max(...[...document.querySelectorAll(
		"#rule-list .whole")].map(line => line.getClientRects().length)) })`, &seen)
	if seen.Wide > 375 || seen.High != 1 {
		t.Errorf("with rules open the page is %d wide, and a line number is in %d parts", seen.Wide, seen.High)
	}
}

// TestThePageIsASkeletonUntilItKnows holds back all answers.
func TestThePageIsASkeletonUntilItKnows(t *testing.T) {
	w := watch(t, sidecar(t, pageRules))
	w.tab.Call(t, "Page.addScriptToEvaluateOnNewDocument",
		map[string]any{"source": "window.fetch = () => new Promise(() => {})"}, nil)
	w.tab.Call(t, "Page.reload", map[string]any{}, nil)
	w.tab.Await(t, `!document.body.dataset.state && ["tile-rate", "tile-breaker", "state", "rule-list"].every(id => `+
		`getComputedStyle(document.getElementById(id), "::before").animationName === "wait")`)
	var dash bool
	w.tab.Evaluate(t, `/connecting|–/.test(document.querySelector(".tiles").innerText + `+
		`document.querySelector("header").innerText)`, &dash)
	if dash {
		t.Error("a page that waits shows dashes")
	}
}
