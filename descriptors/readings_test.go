package descriptors

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/keys"
)

// readingsOf returns all readings of a path, the usual one first, and whether ext_authz refuses it.
func readingsOf(path string) ([]string, bool) {
	var r readings
	all := []string{r.load(path)}
	for n := 1; n < len(r.choices); n++ {
		if text := r.at(n); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all, r.refused
}

func TestReadings(t *testing.T) {
	for path, want := range map[string]string{
		"/a":               "/a",
		"/a%20b//c/":       "/a b/c",
		"//x/login":        "/x/login /login",
		"///x/login":       "/x/login /login",
		`/\x\login`:        `/x/login /login /\x\login`,
		`//x\y/login`:      `/x/y/login /y/login /x\y/login /login`,
		"//x":              "/x",
		"//x/a/../login?q": "/x/login /x/a/../login /login /a/../login",
		"/%2fx/login":      "/x/login /%2Fx/login",
		"//x/c%2fd/e%2ff/../g": "refused /x/c/d/e/g /x/c/d/e/f/../g /x/c/d/g /x/c%2Fd/g /x/c%2Fd/e%2Ff/../g " +
			"/c/d/e/g /c/d/e/f/../g /c/d/g /c%2Fd/g /c%2Fd/e%2Ff/../g",
		"/.well-known":          "/.well-known",
		"/a%2fb":                "/a/b /a%2Fb",
		`/a\b`:                  `/a/b /a\b`,
		"/a%5cb":                `/a/b /a\b`,
		`/a\b%5Cc`:              `/a/b/c /a\b\c /a/b\c`,
		`/a%2Fb\c`:              `/a/b/c /a%2Fb\c /a%2Fb/c /a/b\c`,
		"/a%40b":                "/a@b /a%40b",
		"/a%3ab@c":              "/a:b@c /a%3Ab@c",
		"/a;x/b":                "/a/b /a;x/b",
		"/a%3bx":                "/a /a;x /a%3Bx",
		"/a;x%2fy":              "/a/y /a;x/y /a /a;x%2Fy",
		"/api;x%2fy/b%2fc":      "/api/y/b/c /api;x/y/b/c /api/b/c /api/b%2Fc /api;x%2Fy/b%2Fc",
		"/a/../b":               "/b /a/../b",
		"/a/./b/.":              "/a/b /a/./b/.",
		"/a//../b":              "/b /a/b /a/../b",
		"/a/%2e%2e/b":           "/b /a/../b",
		"/%252e%252e/%25":       "/%2e%2e/%",
		"/a%":                   "/a%",
		"/a%4;%zz":              "/a%4 /a%4;%zz",
		"/a;x/../b%2fc":         "/b/c /a/../b/c /a;x/../b/c /b%2Fc /a/../b%2Fc /a;x/../b%2Fc",
		"/a/..;x/b":             "refused /b /a/..;x/b /a/../b",
		"/a/..%2fb":             "refused /b /a/../b /a/..%2Fb",
		`/a/..\b`:               `refused /b /a/../b /a/..\b`,
		"/a/.%5c/b":             `refused /a/b /a/./b /a/.\/b`,
		"/a%2fb/../c":           "refused /a/c /a/b/../c /c /a%2Fb/../c",
		"/a/;x/../b":            "refused /b /a/b /a/../b /a/;x/../b",
		"/a%2fb/../../c":        "/c /a/b/../../c /a%2Fb/../../c",
		"/a%00":                 "refused /a\x00 /a",
		"/a;\x00%2f..":          "refused / /a /a;\x00/.. /a/.. /a;\x00%2F..",
		"http://h/a/..%3bx?q=;": "refused / /a/..;x /a/..%3Bx /a/..",
	} {
		got, refused := readingsOf(path)
		if refused {
			got = append([]string{"refused"}, got...)
		}
		fields := strings.Split(want, " ")
		if path == "/a%20b//c/" {
			fields = []string{want}
		}
		slices.Sort(fields[1:])
		slices.Sort(got[1:])
		if !slices.Equal(got, fields) {
			t.Errorf("%s has the readings %q, want %q", path, got, fields)
		}
	}
}

// TestReadingsAreFew: the bounds hold for paths with all that can be read in different ways, and one path meets the
// bound.
func TestReadingsAreFew(t *testing.T) {
	var r readings
	r.load(hostilePath(0))
	if r.refused || len(r.choices) != maxReadings {
		t.Errorf("%s has %d readings (refused %t), want %d", hostilePath(0), len(r.choices), r.refused, maxReadings)
	}
	set := compileLines(t, "rule e scope=endpoint limit=1/1s")
	for _, path := range []string{refusedPath, "//h" + refusedPath, refusedPath + hostilePath(0),
		hostilePath(0) + refusedPath} {
		var m Match
		set.Match(&Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []Entry{{"path", path}}}}}, &m)
		if len(m.Charges) < 40 || len(m.Charges) > maxRefusedReadings {
			t.Errorf("%.60s has %d charges, want 40 to %d", path, len(m.Charges), maxRefusedReadings)
		}
		keys := map[string]bool{}
		for _, c := range m.Charges {
			keys[c.Key] = true
		}
		if len(keys) != len(m.Charges) {
			t.Errorf("%.60s has %d charges on %d keys", path, len(m.Charges), len(keys))
		}
	}
}

// TestALongPathWithSeveralReadingsIsRefused: each reading costs time by its length, so none is made where they would be
// too much together. A long path with one reading is matched.
func TestALongPathWithSeveralReadingsIsRefused(t *testing.T) {
	set := compileLines(t, "rule e scope=endpoint limit=1/1s", "rule free endpoints=/free/** action=allow")
	for path, want := range map[string]bool{
		hostilePath(900):                                   false,
		hostilePath(4000):                                  true,
		"/login;" + strings.Repeat("p", 60<<10):            false,
		"/free/" + strings.Repeat("a;", maxSymbols/4):      true,
		"/free/" + strings.Repeat("%2f", maxSymbols/2):     true,
		"/a" + strings.Repeat("/b", maxSymbols):            false,
		"/a/" + strings.Repeat("%20", maxSymbols+1) + "/b": false,
	} {
		var m Match
		set.Match(&Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []Entry{{"path", path}}}}}, &m)
		if m.LongPath != want || want && (len(m.Charges) > 0 || m.Exempt != nil) {
			t.Errorf("%.30s (%d bytes): too long %t with %d charges, want %t and none", path, len(path), m.LongPath,
				len(m.Charges), want)
		}
		if refusal := (&Subject{Path: path}).Check(); want && refusal == nil {
			t.Errorf("%.30s (%d bytes) is not refused over ext_authz", path, len(path))
		}
	}
}

// definition is a path whose escapes that may be read in two ways are written as escapedRune + the character.
const escapedRune = 0xE000

func define(path string) string {
	var out []rune
	for i := 0; i < len(path); i++ {
		c := rune(path[i])
		if isEscape(path[i:]) {
			c = rune(unhex(path[i+1])<<4 | unhex(path[i+2]))
			i += 2
			if strings.ContainsRune("!$&'()*+,;=:@/\\", c) {
				c += escapedRune
			}
		}
		out = append(out, c)
	}
	return string(out)
}

// resolveNaive resolves the dot segments between slashes, where empty segments are dropped before or after.
func resolveNaive(path string, merge bool) string {
	var out []string
	for _, segment := range strings.Split(path, "/") {
		switch {
		case segment == "." || segment == "" && merge:
		case segment == "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, segment)
		}
	}
	return strings.Join(out, "/")
}

var slashesNaive = strings.NewReplacer(`\`, "/", string(rune(escapedRune+'\\')), "/", string(rune(escapedRune+'/')),
	"/")

// readNaive makes the choices about slashes and params.
func readNaive(path string, slashes, cut bool) string {
	if slashes {
		path = slashesNaive.Replace(path)
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if end := strings.IndexAny(segment, ";"+string(rune(escapedRune+';'))); cut && end >= 0 {
			segments[i] = segment[:end]
		}
	}
	return strings.Join(segments, "/")
}

// textNaive writes a reading down.
func textNaive(path string, decode bool) string {
	var out []byte
	for _, segment := range strings.Split(path, "/") {
		if segment == "" {
			continue
		}
		out = append(out, '/')
		for _, c := range segment {
			switch {
			case c == escapedRune+'/' || c > escapedRune && c != escapedRune+'\\' && !decode:
				out = keys.AppendEscape(out, byte(c))
			default:
				out = append(out, byte(c))
			}
		}
	}
	return string(append(out, "/"[min(len(out), 1):]...))
}

func countDots(path string) (n int) {
	for _, segment := range strings.Split(path, "/") {
		if segment == "." || segment == ".." {
			n++
		}
	}
	return n
}

// What URL parsers drop that read a host: those that follow WHATWG, and those that follow RFC 3986.
var (
	hostNaive  = regexp.MustCompile(`^[/\\]{2,}[^/\\]*`)
	plainNaive = regexp.MustCompile(`^//+[^/]*`)
)

// hostlessNaive returns a path without its host, and false where it has none, or nothing is behind it.
func hostlessNaive(path string, slashes bool) (string, bool) {
	if strings.Trim(hostNaive.ReplaceAllString(path, ""), `/\`) == "" {
		return "", false
	}
	head := plainNaive.FindString(path)
	if slashes {
		head = hostNaive.FindString(path)
	}
	return path[len(head):], head != ""
}

// naiveReadings returns the readings that a path has by definition, and whether it is refused.
func naiveReadings(path string) (all []string, refused bool) {
	path = define(path)
	refused = countDots(readNaive(path, true, true)) > countDots(path)
	for n := range 8 {
		slashes, cut, decode := n&1 == 0, n&2 == 0, n&4 == 0
		if rest, found := hostlessNaive(path, slashes); found {
			read := readNaive(rest, slashes, cut)
			all = append(all, textNaive(read, decode), textNaive(resolveNaive(read, true), decode),
				textNaive(resolveNaive(read, false), decode))
		}
		read := readNaive(path, slashes, cut)
		all = append(all, textNaive(read, decode))
		for _, merge := range []bool{true, false} {
			after := textNaive(resolveNaive(read, merge), decode)
			before := textNaive(readNaive(resolveNaive(path, merge), slashes, cut), decode)
			refused = refused || after != before
			all = append(all, after)
		}
	}
	return all, refused
}

// TestReadingsAgainstDefinition holds the readings of random paths against their definition.
func TestReadingsAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"/", "/", "/", "..", ".", "%2e", "a", "b", ";", "%3b", "%2f", "%5c", `\`, "%40", "@", "%", "%25"}
	refusals := 0
	for range 100_000 / divisor {
		path := "/"
		for range r.IntN(10) {
			path += words[r.IntN(len(words))]
		}
		got, refused := readingsOf(path)
		want, wantRefused := naiveReadings(path)
		for _, text := range want {
			if !slices.Contains(got, text) {
				t.Fatalf("%s has the readings %q, and %q is missing", path, got, text)
			}
		}
		if usual := textNaive(resolveNaive(readNaive(define(path), true, true), true), true); got[0] != usual {
			t.Fatalf("the usual reading of %s is %q, want %q", path, got[0], usual)
		}
		// A path is also refused where one habit alone leads elsewhere.
		if wantRefused && !refused {
			t.Fatalf("%s is not refused", path)
		}
		if refused {
			refusals++
		}
	}
	if refusals == 0 {
		t.Error("no path was refused")
	}
}

// FuzzReadings: every reading is a path without empty segments, and there are never more than the bounds.
func FuzzReadings(f *testing.F) {
	for _, seed := range []string{"/", "/a/..;/b", `/a%2f\%5c;%3b%40//..%00`, "http://h/%", "/a;x%2f../%2e",
		`//h\a/..%2fb`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		var r readings
		usual := r.load(path)
		most := maxReadings
		if r.refused {
			most = maxRefusedReadings
		}
		if len(r.choices) > most {
			t.Fatalf("%q has %d readings", path, len(r.choices))
		}
		if r.refused != new(readings).refuses(path) {
			t.Fatalf("%q is refused by one of two", path)
		}
		for n := range r.choices {
			text := r.at(n)
			if text[0] != '/' || strings.Contains(text, "//") || len(text) > 1 && strings.HasSuffix(text, "/") {
				t.Fatalf("%q reads as %q", path, text)
			}
			if n == 0 && text != usual {
				t.Fatalf("%q is %q, and its first reading %q", path, usual, text)
			}
		}
	})
}

// refusedPath is refused over ext_authz and has many readings over RLS.
const refusedPath = "/a//../b\\c%5cd%2f..%3be%40%2ff%00"

// compileLines compiles a domain that is written as in script_test.go.
func compileLines(t testing.TB, lines ...string) *Set {
	t.Helper()
	s := script{domain: Domain{Name: "shop", ChargeDenied: true}}
	for _, line := range lines {
		s.configure(t, strings.Fields(line))
	}
	return s.compile(t)
}

// hostilePath has as many readings as a path can have that is not refused.
func hostilePath(length int) string {
	const hostile = `//h/x//../a%2fb\c%5cd%40;e%2ff\g%5ch`
	return hostile + strings.Repeat("g", max(length-len(hostile), 0))
}

func benchmarkPath(b *testing.B, path string) {
	set := compileMany(b, 100)
	req := &Request{Domain: "shop", Subject: &Subject{Path: path, Method: "GET"}}
	var m Match
	b.ReportAllocs()
	for b.Loop() {
		if req.Subject.Check() == nil {
			set.Match(req, &m)
		}
	}
}

func BenchmarkPathNormal(b *testing.B)      { benchmarkPath(b, "/api/v1/orders?id=7") }
func BenchmarkPathDecoded(b *testing.B)     { benchmarkPath(b, "/api/v1/a%20b") }
func BenchmarkPathTwoReadings(b *testing.B) { benchmarkPath(b, "/api/v1/a%40b") }
func BenchmarkPathHostile(b *testing.B)     { benchmarkPath(b, hostilePath(0)) }
func BenchmarkPathHostile60K(b *testing.B)  { benchmarkPath(b, hostilePath(60<<10)) }
