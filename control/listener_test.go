package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestThePortHasABound fills the port with requests that are not complete: the oldest connection makes room, and the
// next request is answered. Neither PostgreSQL nor Redis is there.
func TestThePortHasABound(t *testing.T) {
	gone := servers.FreeAddr(t)
	c := must.Get(New(Config{
		DatabaseURL: "postgres://" + gone + "/none", Listen: "127.0.0.1:0",
		Redis: redis.Servers{Addresses: []string{gone}}, Log: slog.New(slog.DiscardHandler),
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := errors.Join(<-ended, c.Close())
		if err != nil {
			t.Errorf("the control ended with: %v", err)
		}
	})
	var oldest net.Conn
	for i := range connectionMost + 1 {
		conn := must.Get(net.Dial("tcp", c.Address()))(t)
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n")
		if i == 0 {
			oldest = conn
			servers.Await(t, "the oldest connection", func() error {
				if c.peers.Stats().Open["control"] == 0 {
					return errors.New("it is not open")
				}
				return nil
			})
		}
	}
	_ = oldest.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := io.Copy(io.Discard, oldest)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection is still open")
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	answer := must.Get(client.Get("http://" + c.Address() + "/livez"))(t)
	answer.Body.Close()
	open := c.peers.Stats().Open["control"]
	if answer.StatusCode != http.StatusOK || open > connectionMost {
		t.Errorf("/livez = %d with %d connections, want 200 and at most %d", answer.StatusCode, open, connectionMost)
	}
}
