package replay

import (
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// asked makes the request that Envoy's filter made when it got the request of the log: over ext_authz, or the rate
// limit service where descriptors are given.
func (s *side) asked(rec *record) *descriptors.Request {
	if s.layout.descriptors != nil {
		return s.askedDescriptors(rec)
	}
	h := &s.http
	h.Domain = s.domain
	h.Method, h.Path, h.Host = rec.values[slotMethod], rec.values[slotPath], rec.values[slotHost]
	h.Peer = rec.peer()
	h.Headers, h.Extensions, h.Client = h.Headers[:0], h.Extensions[:0], nil
	if forwarded := rec.values[slotForwarded]; forwarded != "" {
		h.Headers = append(h.Headers, identity.Header{Name: "x-forwarded-for", Value: forwarded})
	}
	for _, n := range s.layout.headers {
		if value := rec.values[n.slot]; value != "" {
			h.Headers = append(h.Headers, identity.Header{Name: n.name, Value: value})
		}
	}
	for _, n := range s.layout.entries {
		if value := rec.values[n.slot]; value != "" {
			h.Extensions = append(h.Extensions, descriptors.Entry{Key: n.name, Value: value})
		}
	}
	if rec.values[slotUser] != "" || rec.values[slotTenant] != "" || rec.values[slotTier] != "" {
		s.client = identity.Client{
			User: rec.values[slotUser], Tenant: rec.values[slotTenant], Tier: rec.values[slotTier], By: identity.JWT,
			Authenticated: true,
		}
		h.Client = &s.client
	}
	return s.message.TakeHTTP(h)
}

// askedDescriptors fills in the descriptors, without those that are empty in the line.
func (s *side) askedDescriptors(rec *record) *descriptors.Request {
	req := &s.request
	req.Domain, req.Part, req.Hits = s.domain, descriptors.Whole, 0
	all := req.Descriptors[:0]
	for _, parts := range s.layout.descriptors {
		if len(all) < cap(all) {
			all = all[:len(all)+1]
		} else {
			all = append(all, descriptors.Descriptor{})
		}
		one := &all[len(all)-1]
		one.Entries = one.Entries[:0]
		for _, p := range parts {
			value := p.text
			if p.slot >= 0 {
				value = rec.values[p.slot]
			}
			if value == "" {
				all = all[:len(all)-1]
				break
			}
			one.Entries = append(one.Entries, descriptors.Entry{Key: p.key, Value: value})
		}
	}
	req.Descriptors = all
	return req
}
