package identity_test

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/identity"
)

func keysConfig() identity.KeysConfig {
	digest := func(key string) [32]byte { return sha256.Sum256([]byte(key)) }
	return identity.KeysConfig{Header: "x-api-key", Keys: []identity.Key{
		{ID: "ci", SHA256: digest("secret"), User: "ci-bot", Tenant: "acme", Tier: "pro"},
		{ID: "bare", SHA256: digest("se+cr/et==")},
		{ID: "soon", SHA256: digest("fleeting"), Expires: noon.Add(time.Second)},
		{ID: "late", SHA256: digest("expired"), Expires: noon},
		{ID: "gone", SHA256: digest("revoked"), Revoked: true},
		{ID: "old", SHA256: digest("renewed"), Revoked: true},
		{ID: "new", SHA256: digest("renewed")},
		{ID: "empty", SHA256: digest("")},
		{ID: "comma", SHA256: digest("a,b")},
		{ID: "huge", SHA256: digest(strings.Repeat("k", 8<<10+1))},
		{ID: "raw", SHA256: digest("k\xff\x00")},
	}}
}

// keyed is the client of an API key.
func keyed(id, user, tenant, tier string) identity.Client {
	return identity.Client{User: user, Tenant: tenant, Tier: tier, Key: id, Address: peer, By: identity.APIKey,
		Authenticated: true, AddressTrusted: true}
}

func TestKeysInAHeader(t *testing.T) {
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.APIKey}, Keys: keysConfig()}, atNoon)
	nobody := unknown(peer)
	cases := map[string]struct {
		values  []string
		want    identity.Client
		refused bool
	}{
		"known":                    {[]string{"secret"}, keyed("ci", "ci-bot", "acme", "pro"), false},
		"blanks around":            {[]string{" \tsecret "}, keyed("ci", "ci-bot", "acme", "pro"), false},
		"user defaults to the id":  {[]string{"se+cr/et=="}, keyed("bare", "bare", "", ""), false},
		"about to expire":          {[]string{"fleeting"}, keyed("soon", "soon", "", ""), false},
		"bytes that are not UTF-8": {[]string{"k\xff\x00"}, keyed("raw", "raw", "", ""), false},
		"renewed under another id": {[]string{"renewed"}, keyed("new", "new", "", ""), false},
		"expired":                  {[]string{"expired"}, nobody, false},
		"revoked":                  {[]string{"revoked"}, nobody, false},
		"unknown":                  {[]string{"Secret"}, nobody, false},
		"a digest": {[]string{"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"},
			nobody, false},
		"empty":                      {[]string{""}, nobody, false},
		"blank":                      {[]string{"  "}, nobody, false},
		"none":                       {nil, nobody, false},
		"longer than any key":        {[]string{strings.Repeat("k", 8<<10+1)}, nobody, false},
		"twice":                      {[]string{"secret", "secret"}, nobody, true},
		"twice, one unknown":         {[]string{"x", "secret"}, nobody, true},
		"twice, one empty":           {[]string{"secret", ""}, nobody, true},
		"joined":                     {[]string{"secret,x"}, nobody, true},
		"joined with an empty one":   {[]string{"secret,"}, nobody, true},
		"joined, though a known one": {[]string{"a,b"}, nobody, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var all []identity.Header
			for _, v := range c.values {
				all = append(all, identity.Header{Name: "x-api-key", Value: v})
			}
			got, refusal := r.Resolve(&identity.Evidence{Headers: all, Path: "/a?x-api-key=secret", Peer: peer})
			checkKey(t, got, refusal, c.want, c.refused)
		})
	}
}

// TestAKeyThatTheConfigurationRevokedStaysRevoked although the control plane knows a good key of the same secret.
func TestAKeyThatTheConfigurationRevokedStaysRevoked(t *testing.T) {
	asked := 0
	r := identity.New(identity.Config{Order: []identity.EvidenceKind{identity.APIKey}, Keys: keysConfig()}, nil,
		identity.Options{
			Now: atNoon,
			Keys: func(context.Context, [sha256.Size]byte) (identity.Key, bool) {
				asked++
				return identity.Key{ID: "other", User: "other"}, true
			},
		})
	t.Cleanup(r.Close)
	for _, secret := range []string{"revoked", "expired"} {
		got, refusal := r.Resolve(&identity.Evidence{Headers: headers("x-api-key", secret), Path: "/", Peer: peer})
		checkKey(t, got, refusal, unknown(peer), false)
	}
	if asked != 0 {
		t.Errorf("the other keys were asked for %d times, want never", asked)
	}
	got, refusal := r.Resolve(&identity.Evidence{Headers: headers("x-api-key", "another"), Path: "/", Peer: peer})
	checkKey(t, got, refusal, keyed("other", "other", "", ""), false)
}

func checkKey(t *testing.T, got identity.Client, refusal *identity.Refusal, want identity.Client, refused bool) {
	t.Helper()
	if (refusal != nil) != refused {
		t.Fatalf("refusal %v, want one: %v", refusal, refused)
	}
	if refused && (refusal.Status != 400 || refusal.Message == "") {
		t.Errorf("refused with %+v, want status 400 and a message", refusal)
	}
	if diff := cmp.Diff(want, got, compareClients); diff != "" {
		t.Error(diff)
	}
}

func TestKeysInAQuery(t *testing.T) {
	cfg := identity.Config{Order: []identity.EvidenceKind{identity.APIKey}, Keys: keysConfig()}
	cfg.Keys.Header, cfg.Keys.Query = "", "api_key"
	r, _ := resolver(t, cfg, atNoon)
	nobody, ci, bare := unknown(peer), keyed("ci", "ci-bot", "acme", "pro"), keyed("bare", "bare", "", "")
	cases := map[string]struct {
		path    string
		want    identity.Client
		refused bool
	}{
		"alone":                          {"/a?api_key=secret", ci, false},
		"among others":                   {"/a?x=1&api_key=secret&y=2", ci, false},
		"behind a second question mark":  {"/a?b?c&api_key=secret", ci, false},
		"name escaped":                   {"/a?api%5Fkey=secret", ci, false},
		"value escaped":                  {"/a?api_key=%73ecret", ci, false},
		"blanks around":                  {"/a?api_key=%20secret%09", ci, false},
		"absolute form":                  {"http://h/a?api_key=secret", ci, false},
		"before a fragment":              {"/a?api_key=secret#x", ci, false},
		"a plus stays one":               {"/a?api_key=se+cr/et==", bare, false},
		"a plus, escaped":                {"/a?api_key=se%2Bcr%2Fet%3D%3D", bare, false},
		"not UTF-8":                      {"/a?api_key=k%ff%00", keyed("raw", "raw", "", ""), false},
		"a comma is part of it":          {"/a?api_key=a,b", keyed("comma", "comma", "", ""), false},
		"escaped once only":              {"/a?api_key=%2573ecret", nobody, false},
		"bad escape":                     {"/a?api_key=secret%z", nobody, false},
		"in the fragment":                {"/a#?api_key=secret", nobody, false},
		"in the path":                    {"/api_key=secret", nobody, false},
		"name in another case":           {"/a?API_KEY=secret", nobody, false},
		"name begins alike":              {"/a?api_keys=secret", nobody, false},
		"no value":                       {"/a?api_key", nobody, false},
		"unknown":                        {"/a?api_key=x", nobody, false},
		"no path":                        {"", nobody, false},
		"twice":                          {"/a?api_key=secret&api_key=secret", nobody, true},
		"twice, one escaped":             {"/a?api_key=secret&api%5fkey=x", nobody, true},
		"twice, one empty":               {"/a?api_key=&api_key=secret", nobody, true},
		"twice, one without a value":     {"/a?api_key=secret&api_key", nobody, true},
		"twice, one that cannot be read": {"/a?api_key=%z&api_key=secret", nobody, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, refusal := r.Resolve(&identity.Evidence{Headers: headers("api_key", "secret", "x-api-key", "secret"),
				Path: c.path, Peer: peer})
			checkKey(t, got, refusal, c.want, c.refused)
		})
	}
}

func TestAKeyInBothPlacesIsSentTwice(t *testing.T) {
	cfg := identity.Config{Order: []identity.EvidenceKind{identity.APIKey}, Keys: keysConfig()}
	cfg.Keys.Header, cfg.Keys.Query = "X-API-Key", "k"
	r, _ := resolver(t, cfg, atNoon)
	_, refusal := r.Resolve(&identity.Evidence{Headers: headers("x-api-key", "secret"), Path: "/?k=secret", Peer: peer})
	if refusal == nil {
		t.Error("a key in the header and in the query is not refused")
	}
	got, _ := r.Resolve(&identity.Evidence{Headers: headers("x-api-key", "secret"), Path: "/", Peer: peer})
	if got.Key != "ci" {
		t.Errorf("the key in the header alone yields %q: a header's name is compared without case", got.Key)
	}
}
