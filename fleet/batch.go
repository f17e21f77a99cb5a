package fleet

import (
	"bytes"
	"strconv"
	"time"
)

// Batch is a script that makes several calls in one. Its keys are those of all calls. Calls in a row that have equal arguments share one:
// its first argument has a byte for each of the others, which says how many calls that is for. Its reply is a text: some bytes that are
// for all calls, then what each of them gets. The reply to a call is these bytes and its own.
type Batch struct {
	Text, Name string
	Head       int // bytes for all calls

	// Cut returns how many bytes at the beginning are for a call with that many keys. With alone the call has to be made alone, and nothing
	// of it has run.
	Cut func(reply []byte, keys int) (size int, alone bool, err error)
}

// Bounds of one batch: while a script runs, the server answers no other client.
const (
	batchCalls = 32
	batchKeys  = 64
)

// enough is how many commands a link has under way before calls wait for others to go with.
const enough = 2

// Join allows a call of a script to be made together with others, while it waits to be written. Of its Wire, the keys begin at keysAt and
// the one argument at argumentAt. It holds for the next Do only.
func (c *Call) Join(b *Batch, keys, keysAt, argumentAt int) {
	c.batch, c.keys, c.keysAt, c.argumentAt = b, keys, keysAt, argumentAt
}

// joinsLocked reports whether a call may be part of a batch. In a cluster the keys of one command must be in one slot, so there no call is.
func (l *link) joinsLocked(c *Call) bool {
	return c.batch != nil && l.node.routes == nil && !l.node.apart.Load()
}

// gathersLocked reports whether what waits stays until more waits or a reply comes. The server would not begin with it sooner: it is busy, works on
// one command of this link and has the next. So more calls go together, and each takes less of the server. It is busy while replies take
// twice as long as the way there and back.
func (l *link) gathersLocked() bool {
	if l.owed < enough || len(l.queue) == 0 || len(l.queue) >= batchCalls || l.rest != nil || !l.joinsLocked(l.queue[0]) {
		return false
	}
	way := time.Duration(l.node.usual.least.Load())
	return way > 0 && l.node.usual.lined() > way
}

// repliedLocked notes that a command has its reply. What was left for that is written.
func (l *link) repliedLocked() {
	l.owed--
	if l.owed == enough-1 && len(l.queue) > 0 {
		l.wakeWriter()
	}
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
	l.owed++
	if len(calls) == 1 {
		return calls[0].append(out)
	}
	b := calls[0].batch
	calls[0].members = len(calls)
	verb, script := "EVALSHA", b.Name
	if l.unloaded {
		verb, script, l.unloaded = "EVAL", b.Text, false
	}
	var few [batchCalls]byte
	runs := countRuns(few[:0], calls)
	out = AppendCommand(out, 3+keys+1+len(runs))
	out = AppendWord(out, verb)
	out = AppendWord(out, script)
	out = appendNumber(out, keys)
	for _, c := range calls {
		out = append(out, c.Wire[c.keysAt:c.argumentAt]...)
	}
	out = AppendWord(out, runs)
	for at, i := 0, 0; at < len(calls); i++ {
		c := calls[at]
		out = append(out, c.Wire[c.argumentAt:]...)
		at += int(runs[i])
	}
	return out
}

// countRuns appends how many calls in a row have equal arguments, for each such row.
func countRuns(runs []byte, calls []*Call) []byte {
	for i, c := range calls {
		if i > 0 && bytes.Equal(c.Wire[c.argumentAt:], calls[i-1].Wire[calls[i-1].argumentAt:]) {
			runs[len(runs)-1]++
		} else {
			runs = append(runs, 1)
		}
	}
	return runs
}

// appendNumber appends a word that is a number.
func appendNumber(b []byte, n int) []byte {
	var digits [20]byte
	return AppendWord(b, strconv.AppendInt(digits[:0], int64(n), 10))
}

// share hands out the reply to a batch of calls that are the first in line.
func (l *link) share(b *Batch, calls int, reply []byte) error {
	if reply[0] == failure {
		l.shareFailure(calls, reply)
		return nil
	}
	text := parse(reply)
	if text.Kind != Text || len(text.Data) < b.Head {
		return errProtocol
	}
	head, rest := text.Data[:b.Head], text.Data[b.Head:]
	for range calls {
		c, size, err := l.cutNext(b, rest)
		if err != nil {
			return err
		}
		if c != nil {
			l.flights.Add(-1)
			c.fillText(head, rest[:size])
			c.finish(nil)
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return errProtocol
	}
	return nil
}

// cutNext takes the first call out of the line, and returns it and how much of the rest of the batch's reply is for it. A call that has to be
// made alone goes back into the queue, and is not returned. Where the link has ended meanwhile there is none.
func (l *link) cutNext(b *Batch, rest []byte) (c *Call, size int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = l.flight.head()
	if c == nil {
		return nil, len(rest), nil
	}
	size, alone, err := b.Cut(rest, c.keys)
	if err != nil || size > len(rest) {
		return nil, 0, errProtocol
	}
	if alone {
		l.againLocked(c)
		return nil, size, nil
	}
	l.answeredLocked(c)
	return c, size, nil
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
		l.failNext(reply, missing || elsewhere || IsReply(err, "NOPERM"))
	}
}

// failNext ends the first call in line with the error that the server replied with to its batch, or puts it back into the queue, to be
// made alone. Where the link has ended meanwhile there is none.
func (l *link) failNext(reply []byte, alone bool) {
	l.mu.Lock()
	c := l.flight.head()
	switch {
	case c == nil:
		l.mu.Unlock()
	case alone:
		l.againLocked(c)
		l.mu.Unlock()
	default:
		l.answeredLocked(c)
		l.mu.Unlock()
		l.flights.Add(-1)
		c.finish(c.fill(reply))
	}
}

// againLocked puts the first call in line back into the queue, to be made alone.
func (l *link) againLocked(c *Call) {
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
