package servers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Forge returns what a Forger replies to a command in place of Redis, as bytes of the protocol; nil: what Redis
// replies.
type Forge func(command []string) (reply []byte)

// Forger is a proxy for Redis that replies to some commands itself. It is safe for concurrent use.
type Forger struct {
	Addr string // where it listens

	redis    *Redis
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards all below
	forge Forge
	met   int
	conns map[net.Conn]bool // nil: it has ended
}

// StartForger starts a forger in front of a server. It passes all on until Set. It ends when the test ends.
func StartForger(t testing.TB, redis *Redis) *Forger {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the forger: %v", err)
	}
	f := &Forger{Addr: l.Addr().String(), redis: redis, listener: l, conns: map[net.Conn]bool{}}
	f.running.Go(f.serve)
	t.Cleanup(f.stop)
	return f
}

// Set begins to forge, or to pass all on where forge is nil.
func (f *Forger) Set(forge Forge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forge = forge
}

// Met is how many replies were forged.
func (f *Forger) Met() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

// AwaitMet waits until that many more replies were forged.
func (f *Forger) AwaitMet(t testing.TB, more int) {
	t.Helper()
	from := f.Met()
	Await(t, fmt.Sprintf("%d forged replies", more), func() error {
		if met := f.Met() - from; met < more {
			return fmt.Errorf("%d so far", met)
		}
		return nil
	})
}

func (f *Forger) stop() {
	f.listener.Close()
	f.mu.Lock()
	for c := range f.conns {
		c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.running.Wait()
}

func (f *Forger) serve() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.carry(c) })
	}
}

// own notes a connection for stop, and reports whether the forger still runs.
func (f *Forger) own(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return false
	}
	f.conns[c] = true
	return true
}

func (f *Forger) disown(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// forged is the reply to a command, nil where Redis replies.
func (f *Forger) forged(command []string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forge == nil {
		return nil
	}
	reply := f.forge(command)
	if reply != nil {
		f.met++
	}
	return reply
}

// carry brings the commands of one client to the server one by one, each after the reply to the one before. A
// subscription gets all that comes.
func (f *Forger) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", f.redis.Socket)
	if err != nil {
		return
	}
	defer server.Close()
	if !f.own(client) || !f.own(server) {
		return
	}
	defer f.disown(client)
	defer f.disown(server)
	asks, answers := bufio.NewReader(client), bufio.NewReader(server)
	for {
		wire, err := copyReply(asks)
		if err != nil {
			return
		}
		command := wordsOf(wire)
		reply := f.forged(command)
		if reply == nil {
			server.Write(wire)
			if strings.EqualFold(command[0], "SUBSCRIBE") {
				f.running.Go(func() { io.Copy(server, asks); server.Close() })
				io.Copy(client, answers)
				return
			}
			reply, err = copyReply(answers)
		}
		if err != nil {
			return
		}
		if _, err = client.Write(reply); err != nil {
			return
		}
	}
}

// copyReply reads one reply, or one command, which is a list of texts.
func copyReply(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch {
	case line[0] != '$' && line[0] != '*' || err == nil && n < 0:
		return line, nil
	case err != nil:
		return nil, err
	case line[0] == '$':
		text := make([]byte, n+2)
		_, err = io.ReadFull(from, text)
		return append(line, text...), err
	}
	for range n {
		item, err := copyReply(from)
		if err != nil {
			return nil, err
		}
		line = append(line, item...)
	}
	return line, nil
}

// wordsOf are the words of a command.
func wordsOf(wire []byte) []string {
	l := &link{in: bufio.NewReader(strings.NewReader(string(wire)))}
	reply, _ := l.reply()
	list, _ := reply.([]any)
	words := []string{""}
	for i, word := range list {
		text, _ := word.(string)
		if i == 0 {
			words[0] = text
			continue
		}
		words = append(words, text)
	}
	return words
}
