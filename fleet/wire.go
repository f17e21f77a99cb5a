package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// AppendCommand appends the beginning of a command of that many words. As many calls of AppendWord have to follow.
func AppendCommand(b []byte, words int) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(words), 10)
	return append(b, '\r', '\n')
}

// AppendWord appends one word of a command.
func AppendWord[T string | []byte](b []byte, word T) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(word)), 10)
	b = append(b, '\r', '\n')
	b = append(b, word...)
	return append(b, '\r', '\n')
}

// Command is a whole command.
func Command(words ...string) []byte { return command(words...) }

func command(words ...string) []byte {
	b := AppendCommand(nil, len(words))
	for _, w := range words {
		b = AppendWord(b, w)
	}
	return b
}

// Reply is what a server answered. The zero value is none.
type Reply struct {
	Kind byte   // one of the kinds below
	Data []byte // of Text, Status and Number what they say; of List its bytes as they came; of Nothing none
}

// The kinds of replies, by the byte that they begin with.
const (
	Text    = '$'
	Status  = '+'
	Number  = ':'
	List    = '*'
	Nothing = '_' // a text or a list that is missing
	failure = '-'
)

// Int is the number in the reply.
func (r Reply) Int() (int64, error) {
	if r.Kind != Number {
		return 0, fmt.Errorf("the reply must be a number, and begins with %q", r.Kind)
	}
	return strconv.ParseInt(string(r.Data), 10, 64)
}

// ReplyError is an error that the server replied with.
type ReplyError string

// Error is its text.
func (e ReplyError) Error() string { return string(e) }

// Bounds of a reply. A stream with more is not one of Redis.
const (
	maxReply = 64 << 20
	maxDepth = 8
)

var errProtocol = errors.New("the server sent bytes that are no reply")

// scan finds the first reply in b. It returns its length, or 0 while a part of it is still to come.
func scan(b []byte, depth int) (int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, bounded(len(b))
	}
	if end < 2 || b[end-1] != '\r' || depth >= maxDepth {
		return 0, errProtocol
	}
	size := end + 1
	switch b[0] {
	case Status, failure, Number:
		return size, nil
	case Text, List:
		return scanLong(b, size, depth)
	}
	return 0, errProtocol
}

// scanLong finds the end of a text or a list whose first line ends at size.
func scanLong(b []byte, size, depth int) (int, error) {
	n, ok := length(b[1 : size-2])
	switch {
	case !ok:
		return 0, errProtocol
	case n < 0:
		return size, nil
	case b[0] == List:
		return scanList(b, size, n, depth)
	}
	size += n + 2
	if len(b) < size {
		return 0, nil
	}
	return size, nil
}

// scanList finds the end of a list of n replies that begins at size.
func scanList(b []byte, size, n, depth int) (int, error) {
	for range n {
		one, err := scan(b[size:], depth+1)
		if one == 0 || err != nil {
			return 0, errors.Join(err, bounded(len(b)))
		}
		size += one
	}
	return size, nil
}

func bounded(n int) error {
	if n > maxReply {
		return errProtocol
	}
	return nil
}

// length reads the number of bytes or replies that follow; -1 stands for none at all.
func length(digits []byte) (int, bool) {
	if string(digits) == "-1" {
		return -1, true
	}
	n := 0
	for _, d := range digits {
		if d < '0' || d > '9' || n > maxReply {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, len(digits) > 0 && n <= maxReply
}

// listOf returns how many replies a list has, and where the first begins; 0 if b is no list.
func listOf(b []byte) (n, first int) {
	if b[0] != List {
		return 0, 0
	}
	first = bytes.IndexByte(b, '\n') + 1
	n, _ = length(b[1 : first-2])
	return max(n, 0), first
}

// parse takes a whole reply apart. What it returns points into b.
func parse(b []byte) Reply {
	end := bytes.IndexByte(b, '\n')
	switch b[0] {
	case List:
		return Reply{Kind: List, Data: b}
	case Text:
		if end+1 == len(b) {
			return Reply{Kind: Nothing}
		}
		return Reply{Kind: Text, Data: b[end+1 : len(b)-2]}
	}
	return Reply{Kind: b[0], Data: b[1 : end-1]}
}
