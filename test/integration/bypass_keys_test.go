package integration

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// keyFamilies are about API keys and certificates.
func keyFamilies() []family {
	from := func(domain, peer string) ask {
		return ask{domain: domain, method: "GET", path: "/", host: "shop.example", peer: peer}
	}
	withKey := from("tokens", "{home}")
	withKey.headers = [][2]string{{"x-api-key", "{key}"}}
	withQuery := from("query", "{home}")
	withQuery.path = "/?api_key={key}"
	withCert := from("certs", "{home}")
	withCert.principal = "spiffe://mesh/{id}"
	kept, lost, away := "per-user", "per-address", "{away}"
	return []family{
		{"key/same", withKey, from("tokens", away), rows(kept, sameKey())},
		{"key/worthless", from("tokens", away), from("tokens", away), rows(lost, worthlessKey())},
		{"key/twice", withKey, from("tokens", away), rows("400", keyTwice())},
		{"query/same", withQuery, from("query", away), rows(kept, sameQuery())},
		{"query/worthless", from("query", away), from("query", away), rows(lost, worthlessQuery())},
		{"query/twice", withQuery, from("query", away), rows("400", queryTwice())},
		{"certificate/same", withCert, from("certs", away), rows(kept, sameCertificate())},
		{"certificate/worthless", from("certs", away), from("certs", away), rows(lost, worthlessCertificate())},
	}
}

// change is one row of a list whose rows all end alike.
type change struct {
	name string
	do   func(a *ask, c *caller)
}

// rows makes tricks of a list.
func rows(want string, list []change) []trick {
	all := make([]trick, len(list))
	for i, row := range list {
		all[i] = trick{row.name, row.do, want}
	}
	return all
}

func sameKey() []change {
	return []change{
		{"blanks around", header("x-api-key", " \t{key}\t ")},
		{"name in upper case", header("X-API-KEY", "{key}")},
		{"another in the query", func(a *ask, c *caller) {
			path("/?api_key=other&x-api-key=other")(a, c)
			header("x-api-key", "{key}")(a, c)
		}},
		{"another in a cookie", header("x-api-key", "{key}", "cookie", "x-api-key=other")},
		{"another in authorization", header("x-api-key", "{key}", "authorization", "ApiKey other")},
		{"names of users in headers", header("x-api-key", "{key}", "x-user", "other", "x-user-id", "other", "x-tenant",
			"other")},
		{"beside a token that is worth nothing", header("x-api-key", "{key}", "authorization", "Bearer a.b.c")},
		{"beside another address", header("x-api-key", "{key}", "x-forwarded-for", "192.0.2.1")},
		{"beside a certificate", func(a *ask, c *caller) {
			a.principal = "spiffe://mesh/other"
			header("x-api-key", "{key}")(a, c)
		}},
		{"beside bytes that are not UTF-8", header("x-api-key", "{key}", "x-note", "\xff\xfe\x00")},
		{"beside 60 KiB of headers", header("x-api-key", "{key}", "x-note", strings.Repeat("n", 60<<10))},
		{"beside 1,000 headers", func(a *ask, c *caller) {
			for i := range 1000 {
				header(fmt.Sprintf("x-note-%d", i), "n")(a, c)
			}
			header("x-api-key", "{key}")(a, c)
		}},
		{"name of a domain in a header", header("x-api-key", "{key}", "domain", "direct", "x-domain", "direct")},
	}
}

func worthlessKey() []change {
	return []change{
		{"none", header()},
		{"empty", header("x-api-key", "")},
		{"blanks", header("x-api-key", "  ")},
		{"unknown", header("x-api-key", "unknown-{id}")},
		{"revoked", header("x-api-key", "{old}")},
		{"expired", header("x-api-key", "{late}")},
		{"other case", header("x-api-key", "KEY-{id}")},
		{"cut", header("x-api-key", "key-")},
		{"longer", header("x-api-key", "{key}x")},
		{"with a NUL", header("x-api-key", "{key}\x00")},
		{"in quotes", header("x-api-key", `"{key}"`)},
		{"percent-encoded", header("x-api-key", "%6bey-{id}")},
		{"its own digest", func(a *ask, c *caller) {
			header("x-api-key", fmt.Sprintf("%x", sha256.Sum256([]byte("key-"+c.id))))(a, c)
		}},
		{"its id", header("x-api-key", "{id}")},
		{"not UTF-8", header("x-api-key", "\xff\xfe{key}")},
		{"8 KiB and more", header("x-api-key", strings.Repeat("k", 8<<10+1))},
		{"60 KiB", header("x-api-key", strings.Repeat("k", 60<<10))},
		{"as a Bearer token", header("authorization", "Bearer {key}")},
		{"as Basic", header("authorization", "Basic {key}")},
		{"in the query", path("/?x-api-key={key}&api_key={key}")},
		{"in a cookie", header("cookie", "x-api-key={key}")},
		{"under another name", header("x-api-key2", "{key}", "x_api_key", "{key}", "api-key", "{key}", "x-api-key ",
			"{key}")},
		{"in the path", path("/{key}")},
	}
}

func keyTwice() []change {
	return []change{
		{"the same", header("x-api-key", "{key}", "x-api-key", "{key}")},
		{"another behind", header("x-api-key", "{key}", "x-api-key", "other")},
		{"another before", header("x-api-key", "other", "x-api-key", "{key}")},
		{"in two cases of the name", header("x-api-key", "{key}", "X-Api-Key", "other")},
		{"joined by a comma", header("x-api-key", "other,{key}")},
		{"joined by comma and blank", header("x-api-key", "{key}, other")},
		{"comma behind", header("x-api-key", "{key},")},
		{"comma before", header("x-api-key", ",{key}")},
		{"an empty one behind", header("x-api-key", "{key}", "x-api-key", "")},
		{"a hundred", func(a *ask, c *caller) {
			for range 100 {
				header("x-api-key", "{key}")(a, c)
			}
		}},
	}
}

func sameQuery() []change {
	return []change{
		{"percent-encoded", path("/?api_key=%6bey%2d{id}")},
		{"name percent-encoded", path("/?api%5Fkey={key}")},
		{"among others", path("/?a=b&&api_key={key}&c=d")},
		{"before a fragment", path("/?api_key={key}#api_key=other")},
		{"blanks around", path("/?api_key=%20{key}%09")},
		{"second question mark", path("/x?a=?&api_key={key}")},
		{"other path", path("//x/../y?api_key={key}")},
		{"absolute form", path("http://evil.example/?api_key={key}")},
		{"another in the header", func(a *ask, c *caller) {
			path("/?api_key={key}")(a, c)
			header("x-api-key", "other", "api_key", "other")(a, c)
		}},
		{"bad percent elsewhere", path("/?x=%zz&api_key={key}")},
		{"not UTF-8 elsewhere", path("/?x=\xff&api_key={key}")},
	}
}

func worthlessQuery() []change {
	return []change{
		{"other case of the name", path("/?API_KEY={key}")},
		{"as a list", path("/?api_key[]={key}")},
		{"after a semicolon", path("/?a=1;api_key={key}")},
		{"in the fragment", path("/#?api_key={key}")},
		{"in the path", path("/api_key={key}")},
		{"in the header", header("x-api-key", "{key}", "api_key", "{key}")},
		{"bad percent", path("/?api_key={key}%")},
		{"encoded twice", path("/?api_key=%256bey-{id}")},
		{"plus behind", path("/?api_key={key}+")},
		{"NUL behind", path("/?api_key={key}%00")},
		{"empty", path("/?api_key=")},
		{"revoked", path("/?api_key={old}")},
		{"expired", path("/?api_key={late}")},
		{"not UTF-8", path("/?api_key=\xff%fe{key}")},
	}
}

func queryTwice() []change {
	return []change{
		{"the same", path("/?api_key={key}&api_key={key}")},
		{"another behind", path("/?api_key={key}&api_key=other")},
		{"another before", path("/?api_key=other&x=1&api_key={key}")},
		{"one name encoded", path("/?api_key={key}&api%5fkey=other")},
		{"an empty one", path("/?api_key=&api_key={key}")},
		{"without a value", path("/?api_key&api_key={key}")},
	}
}

func sameCertificate() []change {
	certificate := func(more func(*ask, *caller)) func(*ask, *caller) {
		return func(a *ask, c *caller) { a.principal = "spiffe://mesh/{id}"; more(a, c) }
	}
	return []change{
		{"another in x-forwarded-client-cert",
			certificate(header("x-forwarded-client-cert", "URI=spiffe://mesh/other"))},
		{"a token beside", certificate(header("authorization", "Bearer a.b.c"))},
		{"two tokens beside, which are not asked for",
			certificate(header("authorization", "Bearer a", "authorization", "Bearer b"))},
		{"names in headers", certificate(header("x-user", "other", "x-envoy-downstream-service-cluster", "other"))},
	}
}

func worthlessCertificate() []change {
	return []change{
		{"x-forwarded-client-cert alone",
			header("x-forwarded-client-cert", "By=spiffe://mesh/x;URI=spiffe://mesh/{id}")},
		{"ssl headers", header("ssl-client-cert", "x", "x-ssl-client-dn", "CN={id}", "x-client-cert", "{id}")},
		{"service cluster", header("x-envoy-downstream-service-cluster", "{id}")},
	}
}
