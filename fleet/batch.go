package fleet

import (
	"strconv"
	"time"
)

// Batch is a script that makes several calls in one. Its keys are those of all calls, its arguments one for each call, and its reply is a
// list with the reply to each call; nothing there stands for a call that has to be made alone, and of which nothing has run.
type Batch struct {
	Text, Name string
}

// Bounds of one batch: while a script runs, the server answers no other client.
const (
	batchCalls = 32
	batchKeys  = 64
)

// Join allows a call of a script to be made together with others, while it waits to be written. Of its Wire, the keys begin at keysAt and
// the one argument at argumentAt. It holds for the next Do only.
func (c *Call) Join(b *Batch, keys, keysAt, argumentAt int) {
	c.batch, c.keys, c.keysAt, c.argumentAt = b, keys, keysAt, argumentAt
}

// joinsLocked reports whether a call may be part of a batch. In a cluster the keys of one command must be in one slot, so there no call is.
func (l *link) joinsLocked(c *Call) bool {
	return c.batch != nil && l.node.routes == nil && !l.node.apart.Load()
}

// gatherLocked adds a call to the batch that is being gathered, and writes the batch when the call does not fit any more.
func (l *link) gatherLocked(out []byte, c *Call) []byte {
	if len(l.batch) > 0 && (l.batch[0].batch != c.batch || len(l.batch) == batchCalls || l.batchKeys+c.keys > batchKeys) {
		out = l.writeBatchLocked(out)
	}
	l.batch = append(l.batch, c)
	l.batchKeys += c.keys
	return out
}

// writeBatchLocked appends what was gathered: one call as it is, several as a batch. The first of them stands for all until the reply.
func (l *link) writeBatchLocked(out []byte) []byte {
	calls, keys := l.batch, l.batchKeys
	l.batch, l.batchKeys = l.batch[:0], 0
	if len(calls) == 0 {
		return out
	}
	defer clear(calls)
	for _, c := range calls {
		l.flight.push(c)
	}
	if len(calls) == 1 {
		return calls[0].append(out)
	}
	b := calls[0].batch
	calls[0].members = len(calls)
	verb, script := "EVALSHA", b.Name
	if l.unloaded {
		verb, script, l.unloaded = "EVAL", b.Text, false
	}
	out = AppendCommand(out, 3+keys+len(calls))
	out = AppendWord(out, verb)
	out = AppendWord(out, script)
	out = appendNumber(out, keys)
	for _, c := range calls {
		out = append(out, c.Wire[c.keysAt:c.argumentAt]...)
	}
	for _, c := range calls {
		out = append(out, c.Wire[c.argumentAt:]...)
	}
	return out
}

// appendNumber appends a word that is a number.
func appendNumber(b []byte, n int) []byte {
	var digits [20]byte
	return AppendWord(b, strconv.AppendInt(digits[:0], int64(n), 10))
}

// share hands out the reply to a batch of calls that are the first in line.
func (l *link) share(calls int, reply []byte) error {
	if reply[0] == failure {
		l.shareFailure(calls, reply)
		return nil
	}
	n, used := listOf(reply)
	if n != calls {
		return errProtocol
	}
	for range calls {
		size, err := scan(reply[used:], 1)
		if err != nil {
			return err
		}
		one := reply[used : used+size]
		used += size
		if parse(one).Kind == Nothing {
			l.again()
		} else {
			l.finishNext(one)
		}
	}
	return nil
}

// shareFailure answers the calls of a batch that the server refused as a whole. Where a call may do better alone, it is made alone.
func (l *link) shareFailure(calls int, reply []byte) {
	err := ReplyError(parse(reply).Data)
	missing, elsewhere := IsReply(err, "NOSCRIPT"), IsReply(err, "CROSSSLOT")
	if missing {
		l.mu.Lock()
		l.unloaded = true
		l.mu.Unlock()
	}
	if elsewhere {
		l.node.apart.Store(true)
	}
	for range calls {
		if missing || elsewhere || IsReply(err, "NOPERM") {
			l.again()
		} else {
			l.finishNext(reply)
		}
	}
}

// finishNext ends the first call in line with its reply. Where the link has ended meanwhile there is none.
func (l *link) finishNext(reply []byte) {
	l.mu.Lock()
	c := l.flight.head()
	if c == nil {
		l.mu.Unlock()
		return
	}
	l.answeredLocked(c)
	l.mu.Unlock()
	l.flights.Add(-1)
	c.finish(c.fill(reply))
}

// again puts the first call in line back into the queue, to be made alone.
func (l *link) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.flight.head()
	if c == nil {
		return
	}
	l.flight.pop()
	c.batch = nil
	l.queue = append(l.queue, c)
	l.wakeWriter()
}

// answeredLocked takes the first call out of the line, because its reply has come.
func (l *link) answeredLocked(c *Call) {
	l.flight.pop()
	c.spent += l.watch.nowLocked(time.Duration(l.spoke.Load())) - c.sent
}
