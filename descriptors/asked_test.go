package descriptors_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

func TestAsked(t *testing.T) {
	entries := func(pairs ...string) *descriptors.Request {
		r := &descriptors.Request{}
		for i := 0; i < len(pairs); i += 2 {
			r.Descriptors = append(r.Descriptors,
				descriptors.Descriptor{Entries: []descriptors.Entry{{Key: pairs[i], Value: pairs[i+1]}}})
		}
		return r
	}
	at := func(path string) *descriptors.Request {
		return &descriptors.Request{Subject: &descriptors.Subject{Path: path, Method: "GET", Client: identity.Client{
			User: "ann", Tenant: "acme", Key: "ci", Address: netip.MustParseAddr("::ffff:192.0.2.7"),
		}}}
	}
	subject := func(endpoint string) descriptors.Asked {
		return descriptors.Asked{User: "ann", Tenant: "acme", APIKey: "ci", Method: "GET", Endpoint: endpoint,
			Address: netip.MustParsePrefix("192.0.2.7/32")}
	}
	for name, c := range map[string]struct {
		req  *descriptors.Request
		want descriptors.Asked
	}{
		"nothing": {entries("generic_key", "x"), descriptors.Asked{}},
		"entries": {entries("user", "ann", "tenant", "acme", "api_key", "k", "method", "GET", "path",
			"/a?b=c"), descriptors.Asked{User: "ann", Tenant: "acme", APIKey: "k", Method: "GET", Endpoint: "/a"}},
		"the first counts": {entries("user", "", "user_id", "ann", "user", "bob"), descriptors.Asked{User: "ann"}},
		"address": {entries("remote_address", "2001:db8::1"),
			descriptors.Asked{Address: netip.MustParsePrefix("2001:db8::1/128")}},
		"masked": {entries("masked_remote_address", "192.0.2.0/24"),
			descriptors.Asked{Address: netip.MustParsePrefix("192.0.2.0/24")}},
		"no address":          {entries("remote_address", "here"), descriptors.Asked{AddressText: "here"}},
		"subject":             {at("/items?q=secret"), subject("/items")},
		"a slash at the end":  {at("/items/"), subject("/items")},
		"slashes and escapes": {at("//it%65ms/./7#x"), subject("/items/7")},
		"the top":             {at("/"), subject("/")},
	} {
		got := descriptors.Asked{User: "left over"}
		(*descriptors.CompiledDomain)(nil).Asked(c.req, &got)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
