// Package browser shows pages in a real browser.
package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
	"github.com/spillway-mesh/spillway/whatif/replay"
)

const (
	before = "domain: shop\nrules:\n  - { name: per-user, scope: user, limit: 2/1m }\n" +
		"  - { name: per-address, scope: ip, limit: 40/1m }\n"
	evil = `<script>document.title=1</script><img src=http://192.0.2.1/x>`
)

// report writes the report of a log of two minutes, with a client's text that tries to be markup.
func report(t *testing.T) (path string, r *replay.Report) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	var log strings.Builder
	for i := range 120 {
		user := must.Get(json.Marshal([]string{"alice", "bob", evil}[i%3]))(t)
		fmt.Fprintf(&log, `{"start_time":"2026-03-01T00:%02d:%02dZ","method":"GET","path":"/",`+
			`"x_forwarded_for":"192.0.2.7","user":%s}`+"\n", i/60, i%60, user)
	}
	log.WriteString("broken " + evil + "\n")
	r = must.Get(replay.Run(replay.Config{
		Logs: []string{write("access.log", log.String())}, Rules: []string{write("before.yaml", before)},
		Against: []string{write("after.yaml", strings.Replace(before, "2/1m", "1/1m", 1))},
		Mapping: replay.Mapping{Fields: map[string]string{"user": "user"}},
	}))(t)
	path = filepath.Join(folder, "report.html")
	file := must.Get(os.Create(path))(t)
	defer file.Close()
	must.Do(t, r.WriteHTML(file))
	return path, r
}

// TestReplayReport looks at the report of a replay: numbers, charts, both colour schemes, a phone, and nothing from the
// network.
func TestReplayReport(t *testing.T) {
	path, want := report(t)
	browser := servers.StartChromium(t)
	tab := browser.Open(t, "file://"+path)

	var shown struct {
		Title, Refused, Against string
		Bars, Drawn, Scripts    int
		Rows, Evil              int
	}
	tab.Evaluate(t, `({
		Title: document.title, Refused: document.getElementById("refused").textContent,
		Against: document.getElementById("against").textContent,
		Bars: document.querySelectorAll("svg.chart rect").length,
		Drawn: [...document.querySelectorAll("svg.chart rect")].map(bar => bar.getBoundingClientRect()).filter(
			box => box.width > 0.5 && box.height > 0.5).length,
		Scripts: document.querySelectorAll("script, img, iframe").length,
		Rows: document.querySelectorAll("tbody tr").length,
		Evil: [...document.querySelectorAll("td.who")].filter(cell => cell.textContent.includes("<script>")).length,
	})`, &shown)
	if !strings.HasPrefix(shown.Title, "Replay of 1 log") || shown.Scripts != 0 || shown.Evil < 2 {
		t.Errorf("a client's text is not shown as text: %+v", shown)
	}
	if shown.Refused != fmt.Sprint(want.Rules.Refused) || shown.Against != fmt.Sprint(want.Against.Refused) ||
		want.Rules.Refused == want.Against.Refused {
		t.Errorf("shown are %s and %s, want %d and %d", shown.Refused, shown.Against, want.Rules.Refused,
			want.Against.Refused)
	}
	if shown.Bars < 100 || shown.Drawn != shown.Bars || shown.Rows < 8 {
		t.Errorf("%d bars, %d of them to be seen, %d rows", shown.Bars, shown.Drawn, shown.Rows)
	}
	quiet(t, browser, "file://"+path)
	schemes(t, tab)

	tab.Call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 844,
		"deviceScaleFactor": 1, "mobile": true}, nil)
	var width int
	tab.Evaluate(t, "document.documentElement.scrollWidth", &width)
	if width > 390 {
		t.Errorf("on a phone of 390 pixels the page is %d wide", width)
	}
}

// quiet checks that the page asked for nothing but itself, and that the browser has nothing to complain about.
func quiet(t *testing.T, browser *servers.Chromium, page string) {
	t.Helper()
	for _, e := range browser.Events("Network.requestWillBeSent") {
		var sent struct{ Request struct{ URL string } }
		must.Do(t, json.Unmarshal(e.Params, &sent))
		if sent.Request.URL != page && !strings.HasPrefix(sent.Request.URL, "data:") {
			t.Errorf("the page asks for %s", sent.Request.URL)
		}
	}
	for _, method := range []string{"Log.entryAdded", "Runtime.exceptionThrown"} {
		for _, e := range browser.Events(method) {
			t.Errorf("%s: %s", method, e.Params)
		}
	}
}

// schemes checks that dark is dark, light is light, and text can be read in both.
func schemes(t *testing.T, tab *servers.Tab) {
	t.Helper()
	const luminance = `(() => {
		const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
		const light = colour => colour.match(/\d+/g).slice(0, 3).map(n => linear(n / 255))
			.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
		const style = getComputedStyle(document.body), quiet = getComputedStyle(document.querySelector(".quiet"));
		return [style.backgroundColor, style.color, quiet.color].map(light);
	})()`
	for _, scheme := range []string{"dark", "light"} {
		tab.Call(t, "Emulation.setEmulatedMedia",
			map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		var seen []float64
		tab.Evaluate(t, luminance, &seen)
		page := seen[0]
		if dark := page < 0.2; dark != (scheme == "dark") {
			t.Errorf("in the scheme %s the page's luminance is %.2f", scheme, page)
		}
		for _, text := range seen[1:] {
			if contrast := (max(page, text) + 0.05) / (min(page, text) + 0.05); contrast < 4.5 {
				t.Errorf("in the scheme %s text has a contrast of %.1f, want 4.5", scheme, contrast)
			}
		}
	}
}
