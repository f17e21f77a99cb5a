package fleet

import (
	"context"
	"net"
)

// solo is one server.
type solo struct{ *Node }

func newSolo(f *Fleet, address string) *solo {
	dial := f.servers.dialer()
	return &solo{f.node(f.prefix + address).start(func(ctx context.Context) (net.Conn, error) { return dial(ctx, address) })}
}

// Place is the server.
func (s *solo) Place(string) (*Node, int) { return s.Node, 0 }

// Nodes is the server.
func (s *solo) Nodes() []*Node { return []*Node{s.Node} }

// Close ends the connections.
func (s *solo) Close() { s.close() }
