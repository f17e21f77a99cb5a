package integration

import "strings"

// pathRules count per address and endpoint: one endpoint by name, all others by their path.
const pathRules = `
domain: paths
headers: both
rules:
  - { name: login, scope: [ip, endpoint], match: { endpoints: ["/login"] }, limit: 1/1h }
  - { name: deep, scope: [ip, endpoint], match: { endpoints: ["/admin/**"] }, limit: 1/1h }
  - { name: others, scope: [ip, endpoint], limit: 1/1h }
`

// wordRules are about methods and hosts.
const wordRules = `
domain: words
headers: both
rules:
  - { name: form, scope: ip, match: { endpoints: ["/form"], methods: [POST] }, limit: 1/1h }
  - { name: by-host, scope: ip, match: { entries: { host: api.example } }, limit: 1/1h }
`

func pathFamilies() []family {
	login := ask{domain: "paths", method: "GET", path: "/login", host: "shop.example", peer: "{home}"}
	form := ask{domain: "words", method: "POST", path: "/form", host: "shop.example", peer: "{home}"}
	byHost := ask{domain: "words", method: "GET", path: "/", host: "api.example", peer: "{home}"}
	return []family{
		{"path", login, login, pathTricks()},
		{"path/refused", login, login, badPathTricks()},
		{"method", form, form, methodTricks()},
		{"host", byHost, byHost, hostTricks()},
		spelled("/LOGIN", "//LOGIN", "case of a path is its own"),
		spelled("/%256cogin", "/x/../%256cogin", "encoded twice"),
		spelled("/x/%c0%ae%c0%ae/login", "/x//%C0%AE%C0%AE/login", "overlong dots"),
		spelled("/%c0%aflogin", "//\xc0\xaflogin", "overlong slash, encoded and not"),
		spelled("/\uff0flogin", "/%ef%bc%8flogin", "full-width slash"),
		spelled("/login%20", "/login /", "blank at the end"),
		spelled("/login%09", "/login\t", "tab at the end"),
		spelled("/login%25", "/login%", "bad percent"),
		spelled("/login%25zz", "//login%zz", "bad percent with letters"),
		spelled("/%25u006cogin", "/%u006cogin", "escape of another kind"),
		spelled("/login/%25%25", "/login/./%%", "two bad percents"),
		spelled("/login%252", "/login%2?x", "half an escape"),
		spelled("/login.json", "/login%2ejson", "suffix"),
		spelled("/%ff%fe", "//\xff\xfe", "bytes that are not UTF-8"),
		spelled("/login%0d%0ax", "/login\r\nx", "line break"),
		spelled("/", "http://evil.example", "absolute form without a path"),
		spelled("/", "http://evil.example?x", "absolute form with a query alone"),
		spelled("/", "?x=1", "query alone"),
		spelled("/", "/;x", "params alone"),
		spelled("/", "/..", "above the root"),
		spelled("/", "*", "asterisk").own("/*"),
		spelled("/login%252f", "/login%252F/..//login%252f", "slash encoded twice"),
	}
}

// spelled is a family of one trick: another spelling of a path that no rule names.
func spelled(usual, sent, name string) family {
	a := ask{domain: "paths", method: "GET", path: usual, host: "shop.example", peer: "{home}"}
	return family{"path/own", a, a, []trick{{name, path(sent), "others"}}}
}

// own lets another path be spent first.
func (f family) own(usual string) family {
	f.spend.path = usual
	return f
}

// pathTricks are spellings of /login.
func pathTricks() []trick {
	var all []trick
	for _, spelling := range []string{
		"//login", "///login", "/login/", "/login//", "/./login", "/././/login", "/x/../login", "/x/y/../../login",
		"/%2e/login", "/x/%2e%2e/login", "/x/%2E%2E/login", "/x/.%2e/login", "/%2flogin",
		"%2flogin", "/%2Flogin", "/login%2f", "/login%2F%2f", "\\login", "/\\login", "/%5clogin", "/%5Clogin",
		"/login\\", "/login%5c", "/login;jsessionid=1", "/login;", "/login;a=b;c=d/", "/;x/login", "/;/login",
		"/login/;/",
		"/login%3bx", "/login%3Bx=1", "/login;%", "/login;%1", "/login;%zz", "/x/../login;%2", "/login/;%",
		"/login/.", "/login/./", "/login/x/..", "/login/%2e", "/../login", "/../../../login", "../login",
		"./login", "login", "login/", "/%6cogin", "/%6Cogin", "/l%6fgin", "/%6c%6f%67%69%6e", "/login?", "/login?x=1",
		"/login?x=%zz",
		"/login?/../other", "/login?\x00", "/login#", "/login#frag", "/login?a#b", "/login#?a", "/login/?next=/x",
		"/login;x?y#z",
		"http://evil.example/login", "HTTP://evil.example/login", "https://evil.example:8443//login?x",
		"http://evil.example\\login",
		"http://user@evil.example/x/../login", "http:///login", "/admin/../login",
		"/admin/%2e%2e/login", "/login/../login", "//x//..//login",
	} {
		all = append(all, trick{spelling, path(spelling), "login"})
	}
	return append(all,
		trick{"10,000 dots", path("/login" + strings.Repeat("/.", 10_000)), "login"},
		trick{"5,000 ways up", path("/" + strings.Repeat("x/../", 5_000) + "login"), "login"},
		trick{"20,000 slashes", path(strings.Repeat("/", 20_000) + "login"), "login"},
		trick{"60 KiB of query", path("/login?" + strings.Repeat("q", 60<<10)), "login"},
		trick{"60 KiB of params", path("/login;" + strings.Repeat("p", 60<<10)), "login"},
		trick{"x-original-url", header("x-original-url", "/other"), "login"},
		trick{"x-rewrite-url", header("x-rewrite-url", "/other"), "login"},
		trick{"x-envoy-original-path", header("x-envoy-original-path", "/other"), "login"},
		trick{"x-forwarded-path", header("x-forwarded-path", "/other", "x-forwarded-prefix", "/x"), "login"},
		trick{":path among the headers", header(":path", "/other"), "login"},
		trick{"another method", method("POST"), "login"},
		trick{"no method", method(""), "login"},
		trick{"another host", host("other.example"), "login"},
		trick{"no host", host(""), "login"},
	)
}

// badPathTricks have a NUL, or dot segments that servers resolve at different times. They are not decided on.
func badPathTricks() []trick {
	var all []trick
	for _, spelling := range []string{
		"/login%00", "/log%00in", "/%00/login", "/login\x00", "/login\x00.html", "http://evil.example/login%00",
		"/login;%00",
		"/x/..%2flogin", "/x%2f..%2flogin", "/x\\..\\login", "/x/..;/login", "/x/..;a=b/login", "/x/%2e%2e;/login",
		"/x/..%3b/login", "/.;/login",
		"/login/..;/login", "/admin/x/..%2f../login", "/login/..%3b/other", "/login/..%2fother", "/login/..%5cother",
		"/login/..\\x",
		"/login%2fx/../other", "/login/x%5cy/../../other", "/login/;/../other", "http://evil.example\\..\\login",
		"/login/.%3b", "/login%2f.",
	} {
		all = append(all, trick{spelling, path(spelling), "400"})
	}
	return all
}

func methodTricks() []trick {
	return []trick{
		{"lower case", method("post"), "form"},
		{"mixed case", method("PosT"), "form"},
		{"override by header", override("x-http-method-override"), "form"},
		{"override by another", override("x-method-override"), "form"},
		{":method among the headers", override(":method"), "form"},
	}
}

func override(name string) func(*ask, *caller) { return header(name, "GET") }

func hostTricks() []trick {
	var all []trick
	for _, spelling := range []string{"API.example", "api.example:443", "Api.Example:8080", "api.example:",
		"api.example.", "API.EXAMPLE.:443"} {
		all = append(all, trick{spelling, host(spelling), "by-host"})
	}
	return append(all,
		trick{"x-forwarded-host", header("x-forwarded-host", "other.example"), "by-host"},
		trick{"host among the headers", header("host", "other.example", ":authority", "other.example"), "by-host"},
	)
}
