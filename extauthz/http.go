package extauthz

import (
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// HTTP is a request as Envoy would ask about it, for callers without a message of Envoy's: tests of rules, replays of
// logs.
type HTTP struct {
	Domain             string
	Method, Path, Host string
	Peer               string              // address of the connection's other end, without a port; empty: not known
	Principal          string              // of the peer's certificate
	Headers            []identity.Header   // one per occurrence
	Extensions         []descriptors.Entry // context extensions
	// who asks, where that is known without credentials; nil: the evidence of the request decides
	Client *identity.Client
}

// TakeHTTP forgets the message before, and makes the request that a message with these attributes would make. The
// strings are shared.
func (m *Message) TakeHTTP(h *HTTP) *descriptors.Request {
	m.reset()
	m.Request.Domain = h.Domain
	m.subject.Method, m.subject.Path, m.subject.Host = h.Method, h.Path, h.Host
	m.evidence.Principal, m.evidence.Verified = h.Principal, h.Client
	for _, header := range h.Headers {
		m.isRaw = true
		m.raw = addHeader(m.raw, header)
	}
	m.entries = append(m.entries, h.Extensions...)
	m.socket, m.address = h.Peer != "", h.Peer
	m.assemble()
	return &m.Request
}
