package descriptors

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

// parseSubject reads a request of ext_authz: user=, tenant=, tier=, key= (all verified), ip= (the client's address),
// path=, method=, host=, header:NAME=VALUE and entry:KEY=VALUE; "unverified" and "untrusted" make nothing of the
// client's names and of its address certain. "#N" are hits, which that door does not know, and "domain:NAME" is the
// domain.
func parseSubject(t testing.TB, words []string) *Request {
	t.Helper()
	req := &Request{Domain: "shop", Evidence: &identity.Evidence{}, Subject: &Subject{}}
	s := req.Subject
	s.Client.Authenticated, s.Client.AddressTrusted = true, true
	texts := map[string]*string{
		"user": &s.Client.User, "tenant": &s.Client.Tenant, "tier": &s.Client.Tier, "key": &s.Client.Key,
		"path": &s.Path, "method": &s.Method, "host": &s.Host,
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		header, isHeader := strings.CutPrefix(key, "header:")
		entry, isEntry := strings.CutPrefix(key, "entry:")
		switch {
		case isHeader:
			req.Evidence.Headers = append(req.Evidence.Headers, identity.Header{Name: header, Value: value})
		case isEntry:
			s.Entries = append(s.Entries, Entry{entry, value})
		case word == "unverified":
			s.Client.Authenticated = false
		case word == "untrusted":
			s.Client.AddressTrusted = false
		case word[0] == '#':
			req.Hits = hits(t, word[1:])
		case strings.HasPrefix(word, "domain:"):
			req.Domain = word[len("domain:"):]
		case key == "ip":
			s.Client.Address = netip.MustParseAddr(value)
		case texts[key] != nil:
			*texts[key] = value
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return req
}

// descriptorKeys are what a mesh would call the attributes of a subject.
var descriptorKeys = map[string]string{"ip": "remote_address", "key": "api_key"}

// asDescriptor writes the words of a subject as those of one descriptor.
func asDescriptor(words []string) []string {
	var out []string
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if renamed, found := descriptorKeys[key]; found {
			key = renamed
		}
		out = append(out, strings.TrimPrefix(key, "entry:")+"="+value)
	}
	return out
}
