package fleet

import (
	"bufio"
	"context"
	"net"
	"syscall"
	"testing"
)

// refuse is a dial that fails.
func refuse(context.Context) (net.Conn, error) {
	return nil, dialError("tcp", syscall.ECONNREFUSED)
}

// TestALinkThatSpeaksAgainEndsTheTrouble: that no other link could be made meanwhile is no reason to fail calls later.
func TestALinkThatSpeaksAgainEndsTheTrouble(t *testing.T) {
	n, links, ends := pair(t)
	n.dial = refuse
	t.Cleanup(n.close)
	owe(t, links[0], bufio.NewReader(ends[0]))
	links[0].silent.Store(true)
	s := n.streams[0]
	links[0].poke = s.poke
	n.running.Add(1)
	go s.run(n.ctx)
	trouble := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.trouble[s]
	}
	await(t, "a stream that cannot make another link", func() bool { return trouble() != nil })
	_, err := ends[0].Write([]byte(":1\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a stream without trouble", func() bool { return trouble() == nil })
}
