package fleet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// fake starts a server that replies to each command with what answer returns, as it is on the wire, and returns its address. Without an
// answer it replies that it does not know the command.
func fake(t *testing.T, answer func(words []string) string) string {
	t.Helper()
	return fakeOn(t, "127.0.0.1", answer)
}

// fakeOn starts such a server on a host.
func fakeOn(t *testing.T, host string, answer func(words []string) string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { listener.Close() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { serve(conn, answer) })
		}
	})
	return listener.Addr().String()
}

// serve answers on one connection until the other side closes it.
func serve(conn net.Conn, answer func(words []string) string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		words, err := readCommand(in)
		if err != nil {
			return
		}
		reply := answer(words)
		switch {
		case reply == "" && words[0] == "PING":
			reply = "+PONG\r\n"
		case reply == "":
			reply = "-ERR unknown command\r\n"
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// readCommand reads one command.
func readCommand(in *bufio.Reader) ([]string, error) {
	var count int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &count); err != nil {
		return nil, err
	}
	words := make([]string, count)
	for i := range words {
		var size int
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	words[0] = strings.ToUpper(words[0])
	return words, nil
}

// list is a reply that is a list of replies.
func list(replies ...string) string {
	return fmt.Sprintf("*%d\r\n%s", len(replies), strings.Join(replies, ""))
}

// text is a reply that is a text.
func text(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
