package rules

import (
	"encoding/hex"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
)

// evidence is what an identity can be read from.
var evidence = map[string]bool{"jwt": true, "api_key": true, "mtls": true, "ip": true}

// signatures are the algorithms a token may be signed with. Shared secrets and none are not among them on purpose: with
// keys from a public set, they let anybody sign.
var signatures = map[string]bool{
	"RS256": true, "RS384": true, "RS512": true, "PS256": true, "PS384": true, "PS512": true,
	"ES256": true, "ES384": true, "ES512": true, "EdDSA": true,
}

// identity checks how clients of ext_authz are told apart. Of all that, only the IPv6 prefix acts on what Envoy's rate
// limit filter sends, so only that is kept.
func (d *decoder) identity(n *node) {
	d.object(n, map[string]reader{
		"order":     d.oneEach(evidence),
		"jwt":       func(n *node) { d.some(n, d.issuer) },
		"api_keys":  d.apiKeys,
		"client_ip": d.clientIP,
	})
}

// oneEach makes a reader for a list of known words, each at most once.
func (d *decoder) oneEach(words map[string]bool) reader {
	return func(n *node) {
		seen := map[string]bool{}
		d.some(n, func(item *node) {
			if _, ok := pick(d, item, words); !ok {
				return
			}
			if seen[item.text] {
				d.fail(item, "%s lists %q twice; remove one", n.label, item.text)
			}
			seen[item.text] = true
		})
	}
}

// issuer checks one issuer of tokens.
func (d *decoder) issuer(n *node) {
	var issuer string
	var audiences []string
	var claims struct{ user, tenant, tier string }
	ok := d.object(n, map[string]reader{
		"issuer":     d.name(&issuer),
		"jwks":       d.keySet,
		"audiences":  d.words(&audiences),
		"algorithms": d.signatures,
		"claims": func(n *node) {
			d.object(n, map[string]reader{"user": d.name(&claims.user), "tenant": d.name(&claims.tenant), "tier": d.name(&claims.tier)})
		},
	})
	for _, key := range []string{"issuer", "jwks"} {
		if ok && n.get(key) == nil {
			d.fail(n, "this item of jwt has no %s; add it", key)
		}
	}
}

// signatures reads the algorithms that an issuer may use.
func (d *decoder) signatures(n *node) {
	for _, item := range n.items {
		if strings.HasPrefix(strings.ToUpper(item.text), "HS") || strings.EqualFold(item.text, "none") {
			d.fail(item, "%s is refused: anybody who knows the public keys could sign with it; use RS256, ES256 or EdDSA", clip(item.text))
			return
		}
	}
	d.oneEach(signatures)(n)
}

// keySet reads where a key set is, and takes note of a file, which is then no rule file.
func (d *decoder) keySet(n *node) {
	text, ok := d.word(n, "jwks")
	if !ok {
		return
	}
	if file, isFile := strings.CutPrefix(text, "file:"); isFile && file != "" {
		d.names = append(d.names, file)
		return
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		d.fail(n, "jwks: %q is no place of a key set; write file:jwks.json or https://host/path", clip(text))
	}
}

// apiKeys checks the keys that clients may send.
func (d *decoder) apiKeys(n *node) {
	var query string
	ids := map[string]bool{}
	ok := d.object(n, map[string]reader{
		"header": d.headerName(new(string)),
		"query":  d.name(&query),
		"keys":   optional(func(n *node) { d.each(n, func(n *node) { d.apiKey(n, ids) }) }),
	})
	header, inQuery := n.get("header"), n.get("query")
	switch {
	case ok && header == nil && inQuery == nil:
		d.fail(n, "api_keys names neither header nor query; add `header: x-api-key`, say")
	case ok && header != nil && inQuery != nil:
		d.fail(inQuery, "api_keys has both header and query; remove one of the two")
	}
}

// apiKey checks one key.
func (d *decoder) apiKey(n *node, ids map[string]bool) {
	var id, user, tenant, tier string
	var limits []descriptors.Limit
	var burst int64
	var expires time.Time
	var revoked bool
	keys := map[string]reader{
		"id": d.name(&id), "sha256": d.digest, "user": d.name(&user), "tenant": d.name(&tenant), "tier": d.name(&tier),
		"expires": d.instant(&expires), "revoked": d.flag(&revoked),
	}
	check := d.quota(keys, &limits, &burst)
	if !d.object(n, keys) {
		return
	}
	check()
	for _, key := range []string{"id", "sha256"} {
		if n.get(key) == nil {
			d.fail(n, "this item of keys has no %s; add it", key)
		}
	}
	if id != "" && ids[id] {
		d.fail(n, "the id %q stands here twice; give each key its own", clip(id))
	}
	ids[id] = true
}

// digest checks a SHA-256 in hex.
func (d *decoder) digest(n *node) {
	text, ok := d.string(n)
	if !ok {
		return
	}
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != 32 {
		d.fail(n, "sha256 wants 64 hex digits, not %q; write what `printf %%s KEY | sha256sum` prints", clip(text))
	}
}

// clientIP checks how the client's address is found.
func (d *decoder) clientIP(n *node) {
	var hops int
	var proxies []netip.Prefix
	ok := d.object(n, map[string]reader{
		"trusted_hops":    d.small(&hops, 1, 100),
		"trusted_proxies": d.cidrs(&proxies),
		"ipv6_prefix":     d.small(&d.domain.IPv6Prefix, 1, 128),
	})
	if ok && n.get("trusted_hops") != nil && n.get("trusted_proxies") != nil {
		d.fail(n.get("trusted_proxies"), "trusted_proxies stands in place of trusted_hops; remove one of the two")
	}
}
