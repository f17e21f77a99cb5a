package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
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

// TestATLSLineTellsOfItsEndOnly: what is unread on it, such as tickets after the handshake, is not the library's to see.
func TestATLSLineTellsOfItsEndOnly(t *testing.T) {
	settings, trusted := secured(t)
	server := servers.StartRedis(t, settings...)
	for name, end := range map[string]func(all *lines){
		"closed by the server": func(*lines) { closeClients(t, server) },
		"culled":               func(all *lines) { all.cull(time.Now().Add(silentFor)) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", server.Addr, trusted)
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			var all lines
			l := all.add(tlsConn{conn})
			defer l.Close()
			awaitUnread(t, conn)
			socket, err := l.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatalf("a line that is open: %v", err)
			}
			err = socket.Read(func(uintptr) bool {
				t.Error("the library looks below TLS")
				return true
			})
			if err != nil {
				t.Errorf("look at a line that is open: %v", err)
			}
			end(&all)
			if _, err := l.(syscall.Conn).SyscallConn(); err == nil {
				t.Error("a line that is closed seems open")
			}
		})
	}
}

// awaitUnread waits until there is something to read below TLS.
func awaitUnread(t *testing.T, conn *tls.Conn) {
	t.Helper()
	socket, err := conn.NetConn().(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatalf("look at the socket: %v", err)
	}
	servers.Await(t, "something to read", func() error {
		var n int
		err := socket.Control(func(fd uintptr) {
			n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		return errors.Join(err, notYet(n > 0))
	})
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
