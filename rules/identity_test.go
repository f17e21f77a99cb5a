package rules

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
)

// fullIdentity is the section of testdata/full.yaml.
func fullIdentity(t *testing.T) *identity.Config {
	t.Helper()
	keySet, err := filepath.Abs("testdata/keys.json")
	must.Do(t, err)
	return &identity.Config{
		Order: []identity.EvidenceKind{identity.JWT, identity.APIKey, identity.MTLS, identity.IP},
		Issuers: []identity.Issuer{
			{Issuer: "https://login.cinema.example", JWKS: keySet, Audiences: []string{"cinema"},
				Algorithms: []string{"RS256", "ES512", "ES384", "EdDSA"}, UserClaim: "sub", TenantClaim: "org",
				TierClaim: "level"},
			{Issuer: "https://other.example", JWKS: "https://other.example/keys", UserClaim: "sub",
				Algorithms: []string{"ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512"}},
		},
		Keys: identity.KeysConfig{Header: "x-api-key", Keys: []identity.Key{{
			ID: "till", User: "till-1", Tenant: "odeon", Tier: "gold", Expires: time.Date(2030, 1, 1, 0, 0, 0, 0,
				time.UTC),
			SHA256: [32]byte{
				0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
				0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
			},
		}}},
		ClientIP: identity.AddressConfig{TrustedHops: 2},
	}
}

// identitySection decodes the identity of a file that has nothing else.
func identitySection(t *testing.T, section string) (descriptors.Domain, *identity.Config) {
	t.Helper()
	d, problems := Decode("rules/shop.yaml", []byte("domain: shop\nidentity:\n"+section))
	if len(problems) > 0 {
		t.Fatalf("problems:\n%s", FormatProblems(problems))
	}
	return d, d.Identity
}

const oneIssuer = "  jwt: [{ issuer: i, jwks: 'https://i.example/keys' }]\n"

// TestOrderByDefault: what has a section is asked, ip comes last, and mtls only where it is named.
func TestOrderByDefault(t *testing.T) {
	jwt, key, mtls, ip := identity.JWT, identity.APIKey, identity.MTLS, identity.IP
	for _, c := range []struct {
		section string
		want    []identity.EvidenceKind
	}{
		{"  client_ip: { trusted_hops: 1 }\n", []identity.EvidenceKind{ip}},
		// no hop is trusted: the peer, as without it
		{"  client_ip: { trusted_hops: 0 }\n", []identity.EvidenceKind{ip}},
		{oneIssuer, []identity.EvidenceKind{jwt, ip}},
		{"  api_keys: { header: x-key }\n", []identity.EvidenceKind{key, ip}},
		{"  api_keys: { header: x-key }\n" + oneIssuer, []identity.EvidenceKind{jwt, key, ip}},
		{"  order: [mtls]\n", []identity.EvidenceKind{mtls}},
		{"  order: [api_key, jwt]\n  api_keys: { header: x-key }\n" + oneIssuer, []identity.EvidenceKind{key, jwt}},
	} {
		_, got := identitySection(t, c.section)
		if !slices.Equal(got.Order, c.want) {
			t.Errorf("%q asks %v, want %v", c.section, got.Order, c.want)
		}
	}
	d, problems := Decode("shop.yaml", []byte("domain: shop\n"))
	if d.Identity != nil || len(problems) > 0 {
		t.Errorf("without a section: %v, %v", d.Identity, problems)
	}
}

// TestSectionsThatAreNeverAsked are warned of, where the order leaves them out.
func TestSectionsThatAreNeverAsked(t *testing.T) {
	_, problems := Decode("shop.yaml", []byte("domain: shop\nidentity:\n  order: [ip]\n  api_keys: { query: k }\n"+
		oneIssuer))
	want := []string{
		"3:10: warning: order does not name api_key, so api_keys is never asked; add it, or remove the section",
		"3:10: warning: order does not name jwt, so jwt is never asked; add it, or remove the section",
	}
	if diff := cmp.Diff(want, brief(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestClaimsByDefault: the user is the subject, also where only other claims are named.
func TestClaimsByDefault(t *testing.T) {
	_, got := identitySection(t, "  jwt: [{ issuer: i, jwks: 'https://i.example/keys', claims: { tenant: org } }]\n")
	if i := got.Issuers[0]; i.UserClaim != "sub" || i.TenantClaim != "org" || i.TierClaim != "" {
		t.Errorf("claims %+v", i)
	}
}

// TestKeySetsAreRelativeToTheRuleFile, unless their path is absolute.
func TestKeySetsAreRelativeToTheRuleFile(t *testing.T) {
	beside, err := filepath.Abs("rules/keys/a.json")
	must.Do(t, err)
	for place, want := range map[string]string{
		"file:keys/a.json": beside, "file:../rules/keys/a.json": beside, "file:/etc/keys.json": "/etc/keys.json",
		"file:///etc/keys.json": "/etc/keys.json", "https://i.example/keys?v=1": "https://i.example/keys?v=1",
	} {
		_, got := identitySection(t, "  jwt: [{ issuer: i, jwks: '"+place+"' }]\n")
		if got.Issuers[0].JWKS != want {
			t.Errorf("%s is read from %s, want %s", place, got.Issuers[0].JWKS, want)
		}
	}
}

// TestKeys: a key's user is its id unless it is named, headers are in lower case, and only keys with limits are
// accounts.
func TestKeys(t *testing.T) {
	d, got := identitySection(t, `
  api_keys:
    header: X-Api-Key
    keys:
      - { id: a, sha256: "1111111111111111111111111111111111111111111111111111111111111111" }
      - { id: b, sha256: "2222222222222222222222222222222222222222222222222222222222222222", user: bob, revoked: true }
      - { id: c, sha256: "3333333333333333333333333333333333333333333333333333333333333333", limits: [50/1s,
          unlimited], burst: 80 }
`)
	users := []string{}
	for _, key := range got.Keys.Keys {
		users = append(users, key.User)
	}
	if want := []string{"a", "bob", "c"}; !slices.Equal(users, want) {
		t.Errorf("users %v, want %v", users, want)
	}
	if got.Keys.Header != "x-api-key" || !got.Keys.Keys[1].Revoked || got.Keys.Keys[0].SHA256[31] != 0x11 {
		t.Errorf("keys %+v", got.Keys)
	}
	want := []descriptors.Account{{Name: "c", Burst: 80, Limits: []descriptors.Limit{bucket(50, time.Second),
		unlimitedLimit()}}}
	if diff := cmp.Diff(want, d.Keys, anywhere); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	_, got = identitySection(t, "  api_keys: { query: Api_Key }\n")
	if got.Keys.Query != "Api_Key" || got.Keys.Header != "" {
		t.Errorf("keys %+v, want those of a query", got.Keys)
	}
}

func unlimitedLimit() descriptors.Limit {
	l := bucket(0, 0)
	l.Unlimited = true
	return l
}

// TestClientIP: hops or proxies, and the prefix is the domain's.
func TestClientIP(t *testing.T) {
	d, got := identitySection(t, "  client_ip: { trusted_proxies: [10.0.0.0/8, '::ffff:192.0.2.0/120'], "+
		"ipv6_prefix: 48 }\n")
	want := identity.AddressConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("192.0.2.0/24")}}
	if diff := cmp.Diff(want, got.ClientIP, anywhere); diff != "" || d.IPv6Prefix != 48 {
		t.Errorf("prefix %d, address (-want +got):\n%s", d.IPv6Prefix, diff)
	}
}

// TestResolversAreMadeForWhatIsUsed: of a load with an error somewhere no domain gets one, of a good one each does.
func TestResolversAreMadeForWhatIsUsed(t *testing.T) {
	dir := t.TempDir()
	made := map[string]identity.AddressConfig{}
	cfg := FilesConfig{Path: dir, MergeDomains: true}
	cfg.Compile.Identity = func(domain string, cfg *identity.Config) *identity.Resolver {
		made[domain] = cfg.ClientIP
		return identity.New(*cfg, nil, identity.Options{})
	}
	write(t, domain("shop")+"rules: []\n", dir, "a.yaml")
	write(t, domain("shop")+`identity:
  client_ip: { trusted_hops: 3 }
  api_keys: { query: k, keys: [{ id: ci, sha256: "1111111111111111111111111111111111111111111111111111111111111111",
      limits: [1/1s] }] }
`, dir, "b.yaml")
	write(t, domain("other")+"rules: 7\n", dir, "c.yaml")
	if load := NewFiles(cfg).Load(); !load.Rejected() || len(made) > 0 {
		t.Fatalf("resolvers %v of a load that is refused", made)
	}
	write(t, domain("other"), dir, "c.yaml")
	load := NewFiles(cfg).Load()
	if load.Rejected() || made["shop"].TrustedHops != 3 || len(made) != 2 {
		t.Fatalf("resolvers %v, want shop with 3 hops and other:\n%s", made, load.Text())
	}
	if load.Set.Domain("shop").Identity == nil || load.Set.Domain("other").Identity == nil {
		t.Error("the snapshot carries no resolver")
	}
	accounts := ""
	for _, effect := range load.Set.Effects() {
		accounts += effect.Account
	}
	if accounts != "ci" {
		t.Errorf("limits of %q, want those of the key ci", accounts)
	}
}
