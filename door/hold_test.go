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
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAnAnswerThatIsNeverSentIsNotHeld: gRPC forgets the answer of a call that its client breaks off at that moment,
// and frees nothing.
func TestAnAnswerThatIsNeverSentIsNotHeld(t *testing.T) {
	limit := connlimit.New(1<<20, slog.New(slog.DiscardHandler))
	t.Cleanup(limit.Close)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	client, err := net.Dial("tcp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := limit.Listen(socket, connlimit.Kind{Bytes: 1, HTTP2: true}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	idle := limit.Stats().Bytes
	d, _ := pooled(refuse)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()})
	dec := func(v any) error { return v.(*note).ParseWire([]byte(strings.Repeat("a", longReply))) }
	for _, free := range []bool{true, false} {
		reply, err := d.Handle(nil, ctx, dec, nil)
		if err != nil {
			t.Fatal(err)
		}
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
