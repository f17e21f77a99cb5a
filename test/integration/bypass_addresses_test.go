package integration

import "strings"

// addressFamilies are about who the client is by its address.
func addressFamilies() []family {
	from := func(domain, peer string, forwarded ...string) ask {
		a := ask{domain: domain, method: "GET", path: "/", host: "shop.example", peer: peer}
		for _, list := range forwarded {
			a.headers = append(a.headers, [2]string{"x-forwarded-for", list})
		}
		return a
	}
	const by = "per-address"
	direct := from("direct", "{home}")
	return []family{
		{"peer", direct, direct, rows(by, spoofedPeer())},
		{"peer/spelled", direct, direct, rows(by, spelledPeer())},
		{"peer/network", from("direct", "{net6}:1::1"), from("direct", ""), rows(by, sameNetwork())},
		{"hops", from("hops", "{proxy}", "{home}, {proxy}"), from("hops", "{proxy2}"), rows(by, spoofedHops())},
		{"hops/network", from("hops", "{proxy}", "{net6}:1::1, {proxy}"), from("hops", "{proxy2}"),
			rows(by, networkHops())},
		{"hops/no address", from("hops", "{proxy}"), from("hops", "{proxy}"), rows(by, malformedHops())},
		{"proxies", from("proxies", "{proxy}", "{home}"), from("proxies", "{proxy2}"), rows(by, spoofedProxies())},
		{"proxies/none", from("proxies", "{home}"), from("proxies", "{home}"), rows(by, untrustedProxies())},
		{"proxies/ended", from("proxies", "{proxy}"), from("proxies", "{proxy}"), rows(by, endedProxies())},
	}
}

// forwarded adds lists of addresses, a header for each.
func forwarded(lists ...string) func(*ask, *caller) {
	return func(a *ask, c *caller) {
		for _, list := range lists {
			header("x-forwarded-for", list)(a, c)
		}
	}
}

// spoofedPeer names other clients in headers that Spillway is not configured to trust.
func spoofedPeer() []change {
	var all []change
	for _, name := range []string{
		"x-forwarded-for", "x-real-ip", "true-client-ip", "cf-connecting-ip", "x-client-ip", "x-cluster-client-ip",
		"client-ip",
		"fastly-client-ip", "x-envoy-external-address", "x-original-forwarded-for", "x-forwarded", "remote-addr",
		"x-azure-clientip",
		"x-remote-address", "via",
	} {
		all = append(all, change{name, header(name, "192.0.2.1")})
	}
	return append(all,
		change{"forwarded", header("forwarded", `for=192.0.2.1;proto=https`)},
		change{"all of them", header("x-forwarded-for", "192.0.2.1", "x-real-ip", "192.0.2.2", "forwarded",
			"for=192.0.2.3")},
		change{"names of users", header("x-user", "other", "x-user-id", "other", "sub", "other")},
	)
}

func spelledPeer() []change {
	return []change{
		{"IPv4 in IPv6", peer("::ffff:{home}")},
		{"IPv4 in IPv6, zeros written", peer("0:0:0:0:0:ffff:{home}")},
		{"IPv4 in IPv6 with a zone", peer("::ffff:{home}%eth0")},
	}
}

func sameNetwork() []change {
	return []change{
		{"next address", peer("{net6}:1::2")},
		{"other half", peer("{net6}:1:ffff:ffff:ffff:ffff")},
		{"zeros written", peer("{net6}:0001:0000:0000:0000:0002")},
		{"upper case", func(a *ask, c *caller) { a.peer = strings.ToUpper(c.fill.Replace("{net6}:1::dead:beef")) }},
		{"with a zone", peer("{net6}:1::1%eth0")},
		{"with another zone", peer("{net6}:1::3%7")},
		{"IPv4 at the end", peer("{net6}:1::192.0.2.1")},
	}
}

// spoofedHops write in front of what the trusted hops appended.
func spoofedHops() []change {
	return []change{
		{"one in front", forwarded("192.0.2.1, {home}, {proxy2}")},
		{"itself in front", forwarded("{home}, {home}, {proxy2}")},
		{"a private one in front", forwarded("127.0.0.1, 10.0.0.1, {home}, {proxy2}")},
		{"a thousand in front", forwarded(strings.Repeat("192.0.2.1, ", 1000) + "{home}, {proxy2}")},
		{"60 KiB in front", forwarded(strings.Repeat("x", 60<<10) + ",{home},{proxy2}")},
		{"nonsense in front", forwarded("unknown, {home}, {proxy2}")},
		{"bytes that are not UTF-8 in front", forwarded("\xff\xfe, {home}, {proxy2}")},
		{"commas in front", forwarded(",,,{home},{proxy2}")},
		{"no blanks", forwarded("{home},{proxy2}")},
		{"many blanks", forwarded("  {home} \t ,\t {proxy2}  ")},
		{"several headers", forwarded("192.0.2.1", "{home}", "{proxy2}")},
		{"several headers of several", forwarded("192.0.2.1, 192.0.2.2", "{home}, {proxy2}")},
		{"name in upper case", header("X-FORWARDED-FOR", "{home}, {proxy2}")},
		{"with a port", forwarded("{home}:4711, {proxy2}")},
		{"IPv4 in IPv6", forwarded("::ffff:{home}, {proxy2}")},
		{"IPv4 in IPv6 in brackets", forwarded("[::ffff:{home}], {proxy2}")},
		{"IPv4 in IPv6 with a port", forwarded("[::ffff:{home}]:80, {proxy2}")},
		{"last entry is nonsense", forwarded("{home}, nonsense")},
		{"other headers beside", header("x-real-ip", "192.0.2.1", "x-forwarded-for", "{home}, {proxy2}", "forwarded",
			"for=192.0.2.2")},
	}
}

func networkHops() []change {
	return []change{
		{"next address", forwarded("{net6}:1::2, {proxy2}")},
		{"in brackets", forwarded("[{net6}:1::2], {proxy2}")},
		{"in brackets with a port", forwarded("[{net6}:1::2]:443, {proxy2}")},
		{"with a zone", forwarded("{net6}:1::2%eth0, {proxy2}")},
		{"with another zone", forwarded("{net6}:1::2%25lo, {proxy2}")},
		{"zeros written", forwarded("{net6}:0001:0:0:0:3, {proxy2}")},
	}
}

// malformedHops are not addresses, or too few: then it is the peer.
func malformedHops() []change {
	var all []change
	for _, entry := range []string{
		"", "unknown", "_hidden", "localhost", "0x7f000001", "2130706433", "127.1", "010.0.0.1", "1.2.3.4.5",
		"256.1.1.1",
		`"192.0.2.1"`, "for=192.0.2.1", "192.0.2.1/32", "192.0.2.1:port", "[192.0.2.1]", "2001:db8::1::2",
		"[2001:db8::1",
		"192.0.2.1 192.0.2.2", "192.0.2.1;x", "\xff", "192.0.2.1\x00", "１９２.0.2.1", "-1", "http://192.0.2.1",
	} {
		all = append(all, change{"entry " + entry, forwarded(entry + ", 192.0.2.9")})
	}
	return append(all,
		change{"too short", forwarded("192.0.2.1")},
		change{"empty", forwarded("")},
		change{"no header", header()},
		change{"a comma alone", forwarded(",")},
		change{"a line break", forwarded("192.0.2.1\r\nx: y, 192.0.2.9")},
	)
}

// spoofedProxies write in front of what trusted proxies appended.
func spoofedProxies() []change {
	return []change{
		{"one in front", forwarded("192.0.2.1, {home}")},
		{"proxies behind", forwarded("192.0.2.1, {home}, 10.1.1.1, 10.2.2.2")},
		{"a proxy in front", forwarded("10.9.9.9, {home}")},
		{"proxies as IPv4 in IPv6", forwarded("{home}, ::ffff:10.1.1.1")},
		{"peer as IPv4 in IPv6", func(a *ask, c *caller) { peer("::ffff:{proxy2}")(a, c); forwarded("{home}")(a, c) }},
		{"with a port", forwarded("{home}:80, 10.1.1.1:80")},
		{"several headers", forwarded("192.0.2.1", "{home}", "10.1.1.1")},
		{"nonsense in front", forwarded("nonsense, {home}")},
		{"itself as IPv4 in IPv6", forwarded("::ffff:{home}")},
		{"twice", forwarded("{home}, {home}")},
	}
}

// untrustedProxies are peers that are not trusted: the header is not read.
func untrustedProxies() []change {
	return []change{
		{"one address", forwarded("192.0.2.1")},
		{"a proxy's address", forwarded("10.0.0.1")},
		{"many", forwarded("192.0.2.1, 10.0.0.1, 192.0.2.2")},
		{"nonsense", forwarded("nonsense")},
		{"itself as IPv4 in IPv6", func(a *ask, c *caller) {
			peer("::ffff:{home}")(a, c)
			forwarded("192.0.2.1")(a, c)
		}},
	}
}

// endedProxies end at the last proxy that is trusted.
func endedProxies() []change {
	return []change{
		{"no header", header()},
		{"empty", forwarded("")},
		{"nonsense", forwarded("192.0.2.1, nonsense")},
		{"nonsense behind an address", forwarded("192.0.2.1, unknown")},
		{"all trusted, the leftmost is the peer", forwarded("{proxy}, 10.1.1.1")},
		{"ended at itself", forwarded("192.0.2.1, _x, {proxy}")},
	}
}

// costFamilies are about the price that a header names. The limit is spent, so every request that costs at least 1 is
// refused.
func costFamilies() []family {
	usual := ask{domain: "costs", method: "GET", path: "/", host: "shop.example", peer: "{home}"}
	named := func(values ...string) func(*ask, *caller) {
		return func(a *ask, c *caller) {
			for _, value := range values {
				header("x-request-cost", value)(a, c)
			}
		}
	}
	var all []change
	for _, value := range []string{
		"0", "-1", "-9223372036854775808", "0.5", "1e0", "1e-9", "", " ", "00", "+0", "0x0", "NaN", "Inf", "null",
		"free", "0,0", "0, 1",
		"18446744073709551616", "9223372036854775808", "9007199254740993", "99999999999999999999999999", "٠", "０",
		"1_0", "\xff", "0\x00", "-0",
	} {
		all = append(all, change{"cost " + value, named(value)})
	}
	all = append(all,
		change{"twice", named("0", "0")},
		change{"twice, once empty", named("", "0")},
		change{"name in upper case", header("X-REQUEST-COST", "0")},
		change{"60 KiB of digits", named(strings.Repeat("0", 60<<10))},
		change{"under other names", header("x-ratelimit-cost", "0", "x-cost", "0", "hits-addend", "0",
			"x-ratelimit-hits-addend", "0")},
	)
	return []family{{"cost", usual, usual, rows("per-address", all)}}
}
