package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Do asks the server one thing, as its operator, and returns the reply: string, int64, []any, or nil. An error reply
// fails the test.
func (r *Redis) Do(t testing.TB, command ...string) any {
	t.Helper()
	reply, err := r.askWithin(longEnough, command...)
	if err != nil {
		t.Fatalf("ask redis-server on %s: %v", r.Addr, err)
	}
	return reply
}

// tryDo is Do with an error, for those that try again or ask another server. It gives up after a second, as a server
// that hangs does not answer.
func (r *Redis) tryDo(command ...string) (any, error) { return r.askWithin(time.Second, command...) }

func (r *Redis) askWithin(life time.Duration, command ...string) (any, error) {
	l, err := r.dial(life)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.do(command...)
}

// text is ask for a reply that is a string.
func (r *Redis) text(command ...string) (string, error) {
	reply, err := r.tryDo(command...)
	if err != nil {
		return "", err
	}
	s, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("%s answered %v", strings.Join(command, " "), reply)
	}
	return s, nil
}

// password is what the server asks of its clients, "" when it asks for none.
func (r *Redis) password() string {
	at := slices.Index(r.settings, "--requirepass")
	if at < 0 {
		return ""
	}
	return r.settings[at+1]
}

// link is a connection over the server's Unix socket: another server may answer at a port, never there.
type link struct {
	net.Conn
	in *bufio.Reader
}

// dial opens a link that lives for the given time at most.
func (r *Redis) dial(life time.Duration) (*link, error) {
	c, err := net.DialTimeout("unix", r.Socket, life)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(life))
	l := &link{c, bufio.NewReader(c)}
	if r.password() == "" {
		return l, nil
	}
	_, err = l.do("AUTH", r.password())
	if err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

func (l *link) do(command ...string) (any, error) {
	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, word := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
	}
	_, err := l.Write(request)
	if err != nil {
		return nil, err
	}
	reply, err := l.reply()
	if err != nil {
		return nil, fmt.Errorf("%.80s: %w", strings.Join(command, " "), err)
	}
	return reply, nil
}

func (l *link) reply() (any, error) {
	line, err := l.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, value := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return value, nil
	case '-':
		return nil, errors.New(value)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reply %q: %w", line, err)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2) // with the end of the line
		_, err := io.ReadFull(l.in, text)
		return string(text[:n]), err
	}
	return l.list(n)
}

func (l *link) list(n int64) ([]any, error) {
	items := make([]any, n)
	for i := range items {
		item, err := l.reply()
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	return items, nil
}
