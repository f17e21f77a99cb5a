package fleet

import (
	"bytes"
	"errors"
	"net"
	"strconv"
)

// Bounds of a reply that the client library reads. It makes room for what a reply announces before it comes.
const (
	mostAnnounced = 1 << 20 // items of all lists of one reply
	longestText   = 8 << 20 // bytes
	longestLine   = 64 << 10
)

// limitedConn is a connection for the client library. It ends where a reply announces more than one of Redis does.
type limitedConn struct {
	net.Conn
	fault error
	line  []byte // as far as it came
	skip  int    // bytes of a text that are still to come
	open  []int  // items that are still to come, of each list that is open
	items int    // that the reply has announced
}

// bound makes a limitedConn.
func bound(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: conn}, nil
}

// Read reads, unless what came announces too much.
func (c *limitedConn) Read(b []byte) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	n, err := c.Conn.Read(b)
	c.fault = c.check(b[:n])
	if c.fault != nil {
		return 0, c.fault
	}
	return n, err
}

// check follows the lines in b.
func (c *limitedConn) check(b []byte) error {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip, b = c.skip-n, b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			c.line = append(c.line, b...)
			b = nil
		} else {
			c.line, b = append(c.line, b[:end]...), b[end+1:]
		}
		if len(c.line) > longestLine {
			return errProtocol
		}
		if end < 0 {
			return nil
		}
		err := c.begin(bytes.TrimSuffix(c.line, []byte("\r")))
		if err != nil {
			return err
		}
		c.line = c.line[:0]
	}
	return nil
}

// begin takes in the first line of a reply, or of an item of a list.
func (c *limitedConn) begin(line []byte) error {
	if len(line) == 0 {
		return errProtocol
	}
	switch line[0] {
	case '$', '=', '!':
		n, err := announced(line, longestText)
		if err != nil {
			return err
		}
		if n >= 0 {
			c.skip = n + 2
		}
	case '*', '~', '>', '%', '|':
		n, err := announced(line, mostAnnounced)
		if err != nil || n > 0 {
			return errors.Join(err, c.list(line[0], n))
		}
	}
	c.end()
	return nil
}

// announced is the number in a line; -1 for a text or a list that is missing.
func announced(line []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > most {
		return 0, errProtocol
	}
	return n, nil
}

// list begins a list of n items, or a map of n pairs.
func (c *limitedConn) list(kind byte, n int) error {
	if kind == '%' || kind == '|' {
		n *= 2
	}
	if len(c.open) == 0 {
		c.items = 0
	}
	c.items += n
	c.open = append(c.open, n)
	if c.items > mostAnnounced || len(c.open) > maxDepth {
		return errProtocol
	}
	return nil
}

// end ends an item, and each list that ends with it.
func (c *limitedConn) end() {
	for last := len(c.open) - 1; last >= 0; last-- {
		c.open[last]--
		if c.open[last] > 0 {
			return
		}
		c.open = c.open[:last]
	}
}
