package rules

import (
	"encoding/hex"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// evidence is what an identity can be read from.
var evidence = wordsOf(identity.JWT, identity.APIKey, identity.MTLS, identity.IP)

// signatures are the algorithms a token may be signed with. Shared secrets and none are not among them on purpose: with
// keys from a public set, they let every reader of the set sign.
var signatures = func() map[string]string {
	known := map[string]string{}
	for _, name := range identity.Algorithms() {
		known[name] = name
	}
	return known
}()

const defaultUserClaim = "sub"

// identity reads how clients of ext_authz are told apart. The IPv6 prefix acts on both doors and is the domain's.
func (d *decoder) identity(n *node) {
	to := &identity.Config{}
	d.domain.Identity = to
	ok := d.object(n, map[string]reader{
		"order":     oneEach(d, &to.Order, evidence),
		"jwt":       func(n *node) { d.some(n, d.issuer(&to.Issuers)) },
		"api_keys":  func(n *node) { d.apiKeys(n, &to.Keys) },
		"client_ip": func(n *node) { d.clientIP(n, &to.ClientIP) },
	})
	if ok {
		d.order(n, to)
	}
}

// order reads which evidence is used, and returns the sections that are not. Without an order, what has a section is
// asked, and ip; a certificate's principal, which needs no section, only where the order names it: in a mesh it may be
// the gateway's.
func (d *decoder) order(n *node, to *identity.Config) {
	given := n.get("order")
	for _, section := range []struct {
		key, word string
	}{{"jwt", "jwt"}, {"api_keys", "api_key"}} {
		kind := evidence[section.word]
		switch {
		case n.get(section.key) == nil:
			d.unproved(given, section.word, section.key)
		case given == nil:
			to.Order = append(to.Order, kind)
		case !slices.Contains(to.Order, kind):
			d.warn(given, "order does not name %s, so %s is never asked; add it, or remove the section", section.word,
				section.key)
		}
	}
	if given == nil {
		to.Order = append(to.Order, identity.IP)
		return
	}
	d.behindIP(given)
}

// behindIP warns of evidence that is never asked, because ip stands before it.
func (d *decoder) behindIP(order *node) {
	found := false
	for _, item := range order.items {
		if found {
			d.warn(item, "%s is never asked: ip stands before it and yields an identity for every address; put ip last",
				clip(item.text))
			return
		}
		found = item.text == identity.IP.String()
	}
}

// unproved warns of a word in the order whose section is missing, so that it never yields an identity.
func (d *decoder) unproved(order *node, word, section string) {
	if order == nil {
		return
	}
	for _, item := range order.items {
		if item.text == word {
			d.warn(item, "order names %s, and identity has no %s, so it never yields an identity; add the section "+
				"`%s`, or remove %s here",
				word, section, section, word)
			return
		}
	}
}

// oneEach makes a reader for a list of known words, each at most once.
func oneEach[T any](d *decoder, to *[]T, words map[string]T) reader {
	return func(n *node) {
		seen := map[string]bool{}
		d.some(n, func(item *node) {
			value, ok := pick(d, item, words)
			if !ok {
				return
			}
			if seen[item.text] {
				d.fail(item, "%s lists %q twice; remove one", n.label, item.text)
			}
			seen[item.text] = true
			*to = append(*to, value)
		})
	}
}

// issuer makes a reader for one issuer of tokens. Where it names no algorithms, all that are safe are accepted: which
// of them can verify is up to its keys.
func (d *decoder) issuer(all *[]identity.Issuer) reader {
	return func(n *node) {
		to := identity.Issuer{UserClaim: defaultUserClaim}
		sound := d.sound(func() {
			ok := d.object(n, map[string]reader{
				"issuer":     d.name(&to.Issuer),
				"jwks":       func(n *node) { to.JWKS = d.keySet(n) },
				"audiences":  d.words(&to.Audiences),
				"algorithms": d.signatures(&to.Algorithms),
				"claims": func(n *node) {
					d.object(n, map[string]reader{
						"user": d.name(&to.UserClaim), "tenant": d.name(&to.TenantClaim), "tier": d.name(&to.TierClaim),
					})
				},
			})
			if !ok {
				return
			}
			for _, key := range d.missing(n, "issuer", "jwks") {
				d.fail(n, "this item of jwt has no %s; add it", key)
			}
		})
		if len(to.Algorithms) == 0 {
			to.Algorithms = sorted(signatures)
		}
		if sound {
			*all = append(*all, to)
		}
	}
}

// signatures makes a reader for the algorithms that an issuer may use.
func (d *decoder) signatures(to *[]string) reader {
	return func(n *node) {
		for _, item := range n.items {
			if strings.HasPrefix(strings.ToUpper(item.text), "HS") || strings.EqualFold(item.text, "none") {
				d.fail(item, "%s is refused: every client that knows the public keys could sign with it; use RS256, "+
					"ES256 or EdDSA", clip(item.text))
				return
			}
		}
		oneEach(d, to, signatures)(n)
	}
}

// keySet reads where a key set is: a URL, or the absolute path of a file, which then is not a rule file.
func (d *decoder) keySet(n *node) string {
	if n.describes(scalar) {
		n.accept(matching("file:.+|https://.+"))
		return ""
	}
	text, ok := d.word(n, "jwks")
	if !ok {
		return ""
	}
	if file, isFile := strings.CutPrefix(text, "file:"); isFile && file != "" {
		d.names = append(d.names, file)
		return absolute(d.file, file)
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		d.fail(n, "jwks: %q must be the place of a key set, such as file:jwks.json or https://host/path", clip(text))
	}
	return text
}

// absolute returns the absolute path of what a rule file names.
func absolute(ruleFile, name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(ruleFile), name)
	}
	path, err := filepath.Abs(name)
	if err != nil { // the folder of this process is unknown; the name is as good as any
		return name
	}
	return path
}

// apiKeys reads the keys that clients may send.
func (d *decoder) apiKeys(n *node, to *identity.KeysConfig) {
	ids := map[string]bool{}
	digests := map[[32]byte]string{}
	ok := d.object(n, map[string]reader{
		"header": d.headerName(&to.Header),
		"query":  d.name(&to.Query),
		"keys":   optional(func(n *node) { d.each(n, func(n *node) { d.apiKey(n, to, ids, digests) }) }),
	})
	n.excludes("header", "query")
	to.Header = strings.ToLower(to.Header)
	header, inQuery := n.get("header"), n.get("query")
	switch {
	case ok && header == nil && inQuery == nil:
		d.fail(n, "api_keys names neither header nor query; add `header: x-api-key`, say")
	case ok && header != nil && inQuery != nil:
		d.fail(inQuery, "api_keys has both header and query; remove one of the two")
	}
}

// apiKey reads one key, and its own limits as an account of the domain.
func (d *decoder) apiKey(n *node, to *identity.KeysConfig, ids map[string]bool, digests map[[32]byte]string) {
	var key identity.Key
	own := descriptors.Account{Pos: d.pos(n)}
	sound := d.sound(func() {
		d.apiKeyFields(n, &key, &own)
		if key.ID != "" && ids[key.ID] {
			d.fail(n, "the id %q stands here twice; give each key its own", clip(key.ID))
		}
		if other, twice := digests[key.SHA256]; twice && key.SHA256 != [32]byte{} {
			d.fail(n, "%q has the same sha256 as %q, and the two could not be told apart; remove one", clip(key.ID),
				clip(other))
		}
	})
	ids[key.ID], digests[key.SHA256] = true, key.ID
	if !sound {
		d.outlineKey(n, &own)
		return
	}
	if key.User == "" {
		key.User = key.ID
	}
	to.Keys = append(to.Keys, key)
	if key.Tier != "" {
		d.keyTiers = append(d.keyTiers, descriptors.Account{Pos: own.Pos, Name: key.ID, Tier: key.Tier,
			Limits: own.Limits})
	}
	if len(own.Limits) > 0 || own.Burst > 0 {
		own.Name = key.ID
		d.domain.Keys = append(d.domain.Keys, own)
	}
}

func (d *decoder) apiKeyFields(n *node, to *identity.Key, own *descriptors.Account) {
	keys := map[string]reader{
		"id": d.name(&to.ID), "sha256": d.digest(&to.SHA256), "user": d.name(&to.User), "tenant": d.name(&to.Tenant),
		"tier": d.name(&to.Tier), "expires": d.instant(&to.Expires), "revoked": d.flag(&to.Revoked),
	}
	check := d.quota(keys, &own.Limits, &own.Burst)
	if !d.object(n, keys) {
		return
	}
	check()
	for _, key := range d.missing(n, "id", "sha256") {
		d.fail(n, "this item of keys has no %s; add it", key)
	}
}

// digest makes a reader for a SHA-256 in hex.
func (d *decoder) digest(to *[32]byte) reader {
	return func(n *node) {
		if n.describes(scalar) {
			n.accept(matching("[0-9A-Fa-f]{64}"))
			return
		}
		raw, err := hex.DecodeString(n.text)
		if n.kind != scalar || err != nil || len(raw) != len(to) {
			// The text is not shown: it may be the key itself.
			d.fail(n, "sha256 must be 64 hex digits, not the key itself; write what `printf %%s KEY | sha256sum` "+
				"prints")
			return
		}
		copy(to[:], raw)
	}
}

// clientIP reads how the client's address is found.
func (d *decoder) clientIP(n *node, to *identity.AddressConfig) {
	for _, foreign := range []string{"trusted_proxy_depth", "xff_num_trusted_hops", "num_trusted_hops"} {
		if at := n.get(foreign); at != nil {
			d.fail(at, "%s counts otherwise; write trusted_hops: the place of the client's entry of x-forwarded-for, "+
				"from the right: 1 where Envoy is the first proxy, 2 with one balancer before it", foreign)
			return
		}
	}
	ok := d.object(n, map[string]reader{
		"trusted_hops":    d.small(&to.TrustedHops, 0, 100),
		"trusted_proxies": d.cidrs(&to.TrustedProxies),
		"ipv6_prefix":     d.small(&d.domain.IPv6Prefix, 1, 128),
	})
	n.excludes("trusted_hops", "trusted_proxies")
	if ok && n.get("trusted_hops") != nil && n.get("trusted_proxies") != nil {
		d.fail(n.get("trusted_proxies"), "trusted_proxies stands in place of trusted_hops; remove one of the two")
	}
}
