package door

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"

	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAnAnswerThatIsNeverSentIsNotHeld: gRPC forgets the answer of a call that its client breaks off at that moment,
// and frees nothing.
func TestAnAnswerThatIsNeverSentIsNotHeld(t *testing.T) {
	limit := connlimit.New(1<<20, slog.New(slog.DiscardHandler))
	t.Cleanup(limit.Close)
	socket := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer socket.Close()
	client := must.Get(net.Dial("tcp", socket.Addr().String()))(t)
	defer client.Close()
	conn := must.Get(limit.Listen(socket, connlimit.Kind{Bytes: 1, HTTP2: true}).Accept())(t)
	defer conn.Close()
	idle := limit.Stats().Bytes
	d, _ := pooled(refuse)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()})
	dec := func(v any) error { return v.(*note).ParseWire([]byte(strings.Repeat("a", longReply))) }
	for _, free := range []bool{true, false} {
		reply := must.Get(d.Handle(nil, ctx, dec, nil))(t)
		sent := reply.(*Reply).Wire()
		if held := limit.Stats().Bytes - idle; held < longReply {
			t.Fatalf("%d bytes are held for an answer that is being sent", held)
		}
		if free {
			sent.Free()
		}
	}
	servers.Await(t, "the end of the answer", func() error {
		runtime.GC()
		if held := limit.Stats().Bytes - idle; held != 0 {
			return fmt.Errorf("%d bytes are held for answers that nothing sends any more", held)
		}
		return nil
	})
}
