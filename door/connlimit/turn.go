package connlimit

import "net"

// Admit waits until the connection may read on. It may at once while there is room, and while it holds little of
// unfinished messages. Else it waits for its turn: large messages of many connections become complete one after the
// other, and small ones pass. Where another address holds more, that one gives way instead.
func (c *Conn) Admit() error {
	l := c.limit
	if l.held.Load() <= l.most || c.part.Load() <= freeBytes {
		return nil
	}
	l.mu.Lock()
	if l.largest() != c.peer {
		l.mu.Unlock()
		l.makeRoom()
		return nil
	}
	defer l.mu.Unlock()
	return l.await(c)
}

// await waits for the turn of a connection. The caller has locked the limit.
func (l *Limit) await(c *Conn) error {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	for l.held.Load() > l.most && c.part.Load() > freeBytes {
		if _, open := l.conns[c]; !open {
			return net.ErrClosed
		}
		if l.turn == nil {
			l.turn = c
			l.waiting.Add(1) // until wake ends the turn
		}
		if l.turn == c {
			return c.inTurn()
		}
		l.room.Wait()
	}
	return nil
}

// inTurn lets the connection whose turn it is read on, unless it holds too much.
func (c *Conn) inTurn() error {
	if c.part.Load() <= turnBytes {
		return nil
	}
	go c.limit.shut(c, Room)
	return net.ErrClosed
}

// wake lets others read on after a connection gave something back.
func (l *Limit) wake(c *Conn) {
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == c && c.part.Load() <= freeBytes {
		l.turn = nil
		l.waiting.Add(-1)
	}
	l.room.Broadcast()
}
