package descriptors

import (
	"strings"
	"testing"
)

func TestNormalizePath(t *testing.T) {
	long := "/" + strings.Repeat("a", 60<<10)
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"/", "/", true},
		{"", "/", true},
		{"/a", "/a", true},
		{"a", "/a", true},
		{"/a/", "/a", true},
		{"//a///b//", "/a/b", true},
		{"/a?b=/c", "/a", true},
		{"/a#b?c", "/a", true},
		{"?x", "/", true},
		{"http://h", "/", true},
		{"HTTPS://h:8/a/b?c", "/a/b", true},
		{"http://h?x=/a", "/", true},
		{`http://h\a`, "/a", true},
		{"/http://h/a", "/http:/h/a", true},
		{"1http://h/a", "/1http:/h/a", true},
		{"/%41%62", "/Ab", true},
		{"/%2541", "/%41", true},
		{"/a%2fb%2Fc", "/a/b/c", true},
		{`/a\b%5Cc`, "/a/b/c", true},
		{"/a;x=1;y/b;z", "/a/b", true},
		{"/a%3Bx/b", "/a/b", true},
		{"/;x/a", "/a", true},
		{"/a/./b/.", "/a/b", true},
		{"/a/../b", "/b", true},
		{"/a//../b", "/b", true},
		{"/a/..;x/b", "/b", false},
		{`/a/..\b`, "/b", false},
		{"/a/..%2fb", "/b", false},
		{"/a%2fb/../c", "/a/c", false},
		{"/a;x/../c", "/c", true},
		{"/../../a", "/a", true},
		{"/a/%2e%2E/b", "/b", true},
		{"/a/b/..", "/a", true},
		{"/.well-known/x", "/.well-known/x", true},
		{"/a/...", "/a/...", true},
		{"/%3F", "/?", true},
		{"*", "/*", true},
		{"/a%", "/a%", true},
		{"/a%4", "/a%4", true},
		{"/a%zz?q", "/a%zz", true},
		{"/a;%zz/../b", "/b", true},
		{"/a%25", "/a%", true},
		{"/a%00", "/a\x00", false},
		{"/a\x00", "/a\x00", false},
		{"/a?%zz%00", "/a", true},
		{"/\xff", "/\xff", true},
		{long, long, true},
	} {
		got, ok := NormalizePath(c.in)
		if got != c.want || ok != c.ok {
			t.Errorf("NormalizePath(%q) = %q, %t, want %q, %t", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestNormalizePathOfANormalPathCostsNothing(t *testing.T) {
	allocs := testing.AllocsPerRun(100, func() { NormalizePath("/api/v1/orders?id=7") })
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// FuzzNormalizePath: what comes out is a path in its normal form, and stays as it is when it holds nothing to decode.
func FuzzNormalizePath(f *testing.F) {
	for _, seed := range []string{"/", "/a/../b", "http://h/a", "/a%2fb;x", `\..\a`, "/%252e", "a//b/."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, ok := NormalizePath(in)
		if out == "" || out[0] != '/' || strings.Contains(out, "//") || len(out) > 1 && out[len(out)-1] == '/' {
			t.Fatalf("%q becomes %q", in, out)
		}
		for _, segment := range strings.Split(out[1:], "/") {
			if segment == "." || segment == ".." || strings.ContainsAny(segment, ";\\") ||
				ok && strings.Contains(segment, "\x00") {
				t.Fatalf("%q becomes %q", in, out)
			}
		}
		if strings.ContainsAny(out, "%?#") {
			return
		}
		if again, _ := NormalizePath(out); again != out {
			t.Fatalf("%q becomes %q and then %q", in, out, again)
		}
	})
}

func TestNormalizeHost(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "Example.COM": "example.com", "example.com:8080": "example.com", "[::1]:80": "[::1]", "[::1]": "[::1]",
		"::1":          "::1",
		"example.com.": "example.com", "Example.com.:443": "example.com", ".": "",
	} {
		if got := NormalizeHost(in); got != want {
			t.Errorf("NormalizeHost(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "::ffff:10.1.2.3": "10.1.2.3/32", "2001:db8::1": "2001:db8::1/128",
		"fe80::1%eth0": "fe80::1/128",
		"10.1.2.3/24":  "10.1.2.0/24", "fe80::1%eth0/10": "fe80::/10", "::ffff:10.1.2.3/120": "10.1.2.0/24",
		"::ffff:10.1.2.3/64": "::/64",
		"":                   "", "x": "", "10.1.2": "", "10.1.2.3/33": "", "10.1.2.3%e": "", "invert:10.0.0.0/8": "",
		"10.1.2.3:80": "10.1.2.3/32", "[2001:db8::1]": "2001:db8::1/128", "[2001:db8::1]:5": "2001:db8::1/128",
		"[::ffff:10.1.2.3]:5": "10.1.2.3/32",
		"[fe80::1%eth0]":      "fe80::1/128", "[fe80::1%eth0]:5": "fe80::1/128", "2001:db8::1:5": "2001:db8::1:5/128",
		"10.1.2.3:": "", "10.1.2.3:65536": "", "10.1.2.3:http": "", "[10.1.2.3]": "", "[10.1.2.3]:80": "",
		"[2001:db8::1": "", "[]": "", "[]:80": "",
		"[2001:db8::1]5": "", "10.1.2.0/24:80": "", "[2001:db8::]/32": "",
	} {
		got, ok := ParseAddress(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("ParseAddress(%q) = %v, %t, want %q", in, got, ok, want)
		}
	}
}
