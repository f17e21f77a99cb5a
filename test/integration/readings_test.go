package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// readingRules refuse what they limit: the limits of one an hour are spent first, /admin is blocked, and one request to
// /dear costs more than the budget. Beside these stand an exempt endpoint, a looser one, and all that no rule names.
const readingRules = `
domain: api
headers: both
costs:
  - { match: { endpoints: ["/dear/**"] }, cost: 2_000_000 }
rules:
  - { name: status, match: { endpoints: ["/status"] }, action: allow }
  - { name: admin, match: { endpoints: ["/admin/**"] }, action: block }
  - { name: pay, scope: endpoint, match: { endpoints: ["/pay"] }, limit: 1/1h }
  - { name: vault, scope: endpoint, match: { endpoints: ["/vault/**"] }, limit: 1/1h }
  - { name: item, scope: endpoint, match: { endpoints: ["/item/*"] }, limit: 1/1h }
  - { name: depot, scope: ip, match: { endpoints: ["/depot/**"] }, limit: 1/1h }
  - { name: assets, scope: ip, match: { endpoints: ["/depot/assets/**"] }, limit: 1_000_000/1h }
  - { name: budget, scope: global, limit: 1_000_000/1h }
`

// limited reports whether a path that a server has read is one that the rules refuse by now.
func limited(path string) bool {
	first, rest, deep := strings.Cut(strings.Trim(path, "/"), "/")
	switch first {
	case "vault", "admin", "dear":
		return true
	case "pay":
		return !deep
	case "item":
		return deep && rest != "" && !strings.Contains(rest, "/")
	case "depot":
		return rest != "assets" && !strings.HasPrefix(rest, "assets/")
	}
	return false
}

// towards are spellings of a limited endpoint. V is its path, A its first segment and B the others; those with B are
// for endpoints of several segments.
var towards = []string{
	"//V", "//o/V", "///o/V", `/\o/V`, `//o\p/V`, "/V/", "/./V", "/o/../V", "/o/%2e%2e/V", "/o/..;/V", "/o/..;a=b/V",
	"/o/%2e%2e;/V", "/o/..%3b/V", "/o/..%2fV", "/o%2f..%2fV",
	"/o%2fp/..%2f../V", "/%2fV", "/o/..%5cV", `/o\..\V`, `/\V`, "/;/V", "/;a/V", "/;a=b/;c/V", "/V;", "/V;a=b", "/V;%1",
	"/V;%zz", "/V;%",
	"/V?/../o", "/V;a?b", "/o//../V", "/o/../../V", "/.;/V", "/V/.;a", "/o;p/../V", "/o;%2f../V",
	"/A//B", "/A;a/B", "/A;/B", "/A%3ba/B", "/A%2fB", "/A%5cB", `/A\B`, "/A/./B", "/A/;/B", "/A/o/../B", "/A/o/..;/B",
	"/A/o/..%2fB",
	"/A;%2f/B", "/A;x%2fy/B", "/A;%/B", "/A%2fB;v=1",
}

// away are spellings that a limiter may take for the endpoint E, which is exempt, cheaper, looser or not named, while a
// server stays within the limited V.
var away = []string{
	"/V/..%3b/E", "/V/..%3B../E", "/V/..;/E", "/V/..%2fE", "/V/..%5cE", `/V/..\E`, "/V/%2e%2e%2fE", "/V/%2e%2e%3b/E",
	"/V%2f../..%2fE",
	"/V%2fa%2f../../E", `/V\a\../../E`, "/V/..%252fE", "/V/..%3ba=b/..%3b/E", "/V/..;a=b/..;c/E", "/V/.%2e%5cE",
	"/V/;/..;/E", "/V/%2e;/../E",
}

var (
	victims = []string{"pay", "vault/x", "admin/x", "dear/x", "item/7", "depot/buy"}
	refuges = []string{"status", "open", "depot/assets/a"}
)

// readingRow is one target, with the servers for which it is a limited endpoint.
type readingRow struct {
	target  string
	servers []string
}

// readingRows are the corpus of paths that servers read in different ways.
func readingRows() []readingRow {
	var rows []readingRow
	for _, victim := range victims {
		a, b, deep := strings.Cut(victim, "/")
		for _, spelling := range towards {
			if deep || !strings.Contains(spelling, "B") {
				rows = append(rows, newReadingRow(strings.NewReplacer("V", victim, "A", a, "B", b).Replace(spelling)))
			}
		}
	}
	for _, victim := range []string{"vault/x", "admin/x", "dear/x", "depot/buy"} {
		for i, spelling := range away {
			refuge := refuges[i%len(refuges)]
			rows = append(rows, newReadingRow(strings.NewReplacer("V", victim, "E", refuge).Replace(spelling)))
		}
	}
	return rows
}

func newReadingRow(target string) readingRow {
	row := readingRow{target: target}
	path, _, _ := strings.Cut(target, "?")
	for _, s := range pathServers {
		if read, ok := s.read(path); ok && limited(read) {
			row.servers = append(row.servers, s.name)
		}
	}
	return row
}

// Each row is a way around a limiter: there is a server for which it is a limited endpoint.
func TestReadingRowsAreLimitedSomewhere(t *testing.T) {
	rows := readingRows()
	seen, by := map[string]bool{}, map[string]int{}
	for _, row := range rows {
		if len(row.servers) == 0 {
			t.Errorf("%s is a limited endpoint for no server", row.target)
		}
		if seen[row.target] {
			t.Errorf("%s is there twice", row.target)
		}
		seen[row.target] = true
		for _, name := range row.servers {
			by[name]++
		}
	}
	if len(rows) < 200 {
		t.Errorf("%d rows, want at least 200", len(rows))
	}
	for _, s := range pathServers {
		if by[s.name] < 50 {
			t.Errorf("%s reads %d rows as limited endpoints, want at least 50", s.name, by[s.name])
		}
	}
}

// pathSetting is what Envoy does to a path before it asks.
type pathSetting struct {
	name  string
	swaps [][2]string
}

func pathSettings() []pathSetting {
	const action = "path_with_escaped_slashes_action: "
	var all []pathSetting
	for _, name := range []string{"IMPLEMENTATION_SPECIFIC_DEFAULT", "REJECT_REQUEST", "UNESCAPE_AND_REDIRECT",
		"UNESCAPE_AND_FORWARD"} {
		all = append(all, pathSetting{name, [][2]string{{action + "UNESCAPE_AND_REDIRECT", action + name}}})
	}
	return append(all, pathSetting{"as it came", [][2]string{
		{action + "UNESCAPE_AND_REDIRECT", action + "KEEP_UNCHANGED"},
		{"normalize_path: true", "normalize_path: false"}, {"merge_slashes: true", "merge_slashes: false"},
	}})
}

// startReadings starts a world whose Envoy asks over one of the two services.
func startReadings(t *testing.T, door string, setting pathSetting) *world {
	t.Helper()
	rules := map[string]string{"authz.yaml": readingRules}
	if door == "ext_authz" {
		return startAuthz(t, authzSetup{memory: true, rules: rules, swaps: setting.swaps})
	}
	w := &world{app: servers.StartUpstream(t), rules: t.TempDir(), log: filepath.Join(t.TempDir(), "access.log")}
	w.writeRules(t, rules)
	w.sidecar = servers.StartSidecar(t, "RULES="+w.rules)
	changes := append(addresses(w.app.Addr, socketAddress(w.sidecar.GRPC), w.log), setting.swaps...)
	changes = append(changes, [2]string{" timeout: 0.025s", " timeout: " + filterTimeout},
		[2]string{"domain: edge\n", "domain: api\n"},
		[2]string{"\n              - actions:\n                - request_headers: {header_name: x-user, " +
			"descriptor_key: user}",
			"\n              - actions:\n                - remote_address: {}\n" +
				"                - request_headers: {header_name: ':path', descriptor_key: path}"})
	w.envoy = servers.StartEnvoy(t, rewritten(t, exampleFile(t), changes))
	w.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// No spelling gets past a limit, for every way in which Envoy changes paths, at either service. Where Envoy forwards
// another path than the client sent, that one counts.
func TestReadingsThroughEnvoy(t *testing.T) {
	rows := readingRows()
	for _, door := range []string{"ext_authz", "rate limit service"} {
		for _, setting := range pathSettings() {
			t.Run(door+"/"+setting.name, func(t *testing.T) {
				w := startReadings(t, door, setting)
				for _, path := range []string{"/pay", "/vault/x", "/item/7", "/depot/buy"} {
					w.wants(t, 1, http.StatusOK, path)
				}
				w.withoutErrors(t, door, func() {
					refused := 0
					for _, row := range rows {
						refused += w.wantsHeld(t, row)
					}
					t.Logf("Spillway refused %d rows of %d", refused, len(rows))
					if refused < 150 {
						t.Errorf("Spillway refused %d rows of %d, want at least 150", refused, len(rows))
					}
					for _, path := range []string{"/open", "/open/a;v=1", "/open/a%40b", "/open/100%25", "/status",
						"/item/7/parts", "/depot/assets/a;v=1", "/pay;v=1/x"} {
						if got, body := w.raw(t, path, ""); got.StatusCode != http.StatusOK {
							t.Errorf("%s was answered with %d, want 200: no server reads it as a limited endpoint (%q)",
								path, got.StatusCode, body)
						}
					}
				})
			})
		}
	}
}

// withoutErrors fails when Envoy could not ask the sidecar meanwhile.
func (w *world) withoutErrors(t *testing.T, door string, run func()) {
	t.Helper()
	counters := []string{"cluster.app.ratelimit.error"}
	if door == "ext_authz" {
		counters = authzErrors
	}
	before := make([]int64, len(counters))
	for i, counter := range counters {
		before[i] = w.envoy.Stat(t, counter)
	}
	run()
	for i, counter := range counters {
		if after := w.envoy.Stat(t, counter); after != before[i] {
			t.Errorf("Envoy's %s went from %d to %d", counter, before[i], after)
		}
	}
}

// wantsHeld sends a row, and where Envoy redirects it that. It fails when the request reaches the application with a
// target that some server reads as a limited endpoint, and returns 1 if Spillway refused it.
func (w *world) wantsHeld(t *testing.T, row readingRow) int {
	t.Helper()
	target := row.target
	for range 3 {
		got, body := w.raw(t, target, "")
		switch got.StatusCode {
		case http.StatusOK:
			seen := newReadingRow(got.Header.Get("x-seen-target"))
			if len(seen.servers) > 0 {
				t.Errorf("%s reached the application as %s, a limited endpoint for %s", row.target, seen.target,
					strings.Join(seen.servers, ", "))
			}
			return 0
		case http.StatusTemporaryRedirect:
			next, err := url.Parse(got.Header.Get("location"))
			if err != nil {
				t.Fatalf("%s was redirected to %q", target, got.Header.Get("location"))
			}
			target = next.RequestURI()
			continue
		case http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests:
			if got.Header.Get("content-type") == "application/problem+json" {
				return 1
			}
			return 0
		}
		t.Fatalf("%s was answered with %d (%q)", row.target, got.StatusCode, body)
	}
	t.Errorf("%s was redirected again and again", row.target)
	return 0
}

// The first report: with an allow for one endpoint, a late dot segment freed everything behind every limit.
func TestLateDotSegmentsThroughEnvoy(t *testing.T) {
	const rules = `
domain: api
rules:
  - { name: health, match: { endpoints: ["/healthz"] }, action: allow }
  - { name: admin, match: { endpoints: ["/admin/**"] }, action: block }
  - { name: all, scope: global, limit: 1/1h }
`
	w := startAuthz(t, authzSetup{memory: true, rules: map[string]string{"authz.yaml": rules}})
	w.wants(t, 1, http.StatusOK, "/other")
	w.wants(t, 1, http.StatusTooManyRequests, "/other")
	for i := range 30 {
		for _, target := range []string{"/other/..%3b/healthz", "/export/..%3b/healthz", "/admin/..%3b/x"} {
			got, body := w.raw(t, target, "")
			if got.StatusCode != http.StatusBadRequest || !strings.Contains(body, "dot segments") {
				t.Fatalf("request %d to %s was answered with %d, want 400 (%q)", i+1, target, got.StatusCode, body)
			}
		}
	}
	if got, _ := w.raw(t, "/healthz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("the exempt endpoint was answered with %d, want 200", got.StatusCode)
	}
}

// A bad percent over the rate limit service was a fresh counter for each spelling.
func TestBadPercentThroughEnvoy(t *testing.T) {
	w := startReadings(t, "rate limit service", pathSettings()[4])
	w.wants(t, 1, http.StatusOK, "/pay")
	w.withoutErrors(t, "rate limit service", func() {
		for i := range 10 {
			for _, spelling := range []string{"/pay;%%%d", "/pay;%%zz%d", "//pay;%%?%d", "/x/../pay;%%%d",
				"/pay;x/;%%%d"} {
				target := fmt.Sprintf(spelling, i)
				if got, body := w.raw(t, target, ""); got.StatusCode != http.StatusTooManyRequests {
					t.Errorf("%s was answered with %d, want 429 (%q)", target, got.StatusCode, body)
				}
			}
		}
	})
}
