package store

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestTooManyClientsAreToldApart: the server says so before it is asked, and closes the connection. The first time that may get lost.
func TestTooManyClientsAreToldApart(t *testing.T) {
	server := servers.StartRedis(t, "--maxclients", "1")
	e := look(t, server, redis.Options{PoolSize: 1})
	e.do("PING")
	r := openRedis(t, RedisConfig{Servers: Servers{Addresses: []string{server.Addr}}})
	servers.Await(t, "a call that is undecided because of too many clients", func() error {
		if d := spend(r, charge(t, "k", bucket(3, time.Hour), 1))[0]; d.Reason != ReasonClients {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
}

func TestSilentConnectionsAreCulled(t *testing.T) {
	server := servers.StartRedis(t)
	var all lines
	conns := map[string]net.Conn{}
	for _, name := range []string{"silent", "speaking"} {
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		defer conn.Close()
		conns[name] = all.add(conn)
	}
	made := time.Now()
	for _, conn := range conns {
		ping(t, conn)
	}
	all.cull(made.Add(silentFor / 2))
	ping(t, conns["silent"])
	later := time.Now().Add(silentFor)
	socket := conns["speaking"].(socketLine)
	socket.used.Store(later.UnixNano())
	all.cull(later)
	ping(t, conns["speaking"])
	if _, err := conns["silent"].Write([]byte("PING\r\n")); err == nil {
		t.Error("a connection that was silent is open")
	}
	if n := len(all.all); n != 1 {
		t.Errorf("%d connections are known, want 1", n)
	}
}

// ping asks over a connection and reads the answer.
func ping(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(patient))
	_, err := conn.Write([]byte("PING\r\n"))
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	reply := make([]byte, 16)
	n, err := conn.Read(reply)
	if err != nil || string(reply[:n]) != "+PONG\r\n" {
		t.Fatalf("PING answered %q, %v", reply[:n], err)
	}
}
