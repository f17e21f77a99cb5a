package copier

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/redis"
)

// stream is one of the streams of Redis. One goroutine uses it.
//
// The recorder is its only reader, and deletes what is stored: what is in the stream is what is left to do, whatever ids a Redis gives that was flushed, was
// restarted, or has another clock. Where deleting fails, the entries behind are still read; the next time at the end of the stream it begins anew.
type stream struct {
	name, key string
	redis     *redis.Client
	after     string // id of the entry that was read last; empty: read from the first one
	count     int    // entries to read
}

// item is an entry of a stream.
type item struct {
	journal.Entry
	id     string
	at     time.Time // when Redis got it, by Redis' clock
	bytes  int
	usage  *journal.Usage
	events []journal.Event
	bad    error // why it cannot be stored
}

// refuse makes an entry one that cannot be stored.
func (i *item) refuse(err error) { i.bad, i.usage, i.events = err, nil, nil }

// rows is how many rows the entry has.
func (i *item) rows() int64 {
	n := len(i.events)
	if i.usage != nil {
		n += len(i.usage.Identities) + len(i.usage.Endpoints) + len(i.usage.Keys) + len(i.usage.Caches)
	}
	return int64(n)
}

// read returns the next entries, and whether there may be more.
func (s *stream) read(ctx context.Context) (items []*item, full bool, err error) {
	from := "-"
	if s.after != "" {
		from = "(" + s.after
	}
	reply, err := s.redis.Run(ctx, s.key, "XRANGE", s.key, from, "+", "COUNT", s.count)
	if err != nil {
		return nil, false, err
	}
	bytes := 0
	for _, one := range partsOf(reply) {
		i, err := s.decode(partsOf(one))
		if err != nil {
			return nil, false, err
		}
		items, bytes = append(items, i), bytes+i.bytes
	}
	full = len(items) == s.count
	switch {
	case bytes > largeRead:
		s.count = max(1, s.count/2)
	case full && bytes < smallRead:
		s.count = min(mostEntries, 2*s.count)
	}
	s.after = ""
	if len(items) > 0 {
		s.after = items[len(items)-1].id
	}
	return items, full, nil
}

// again lets the next read begin at the first entry.
func (s *stream) again() { s.after = "" }

// remove deletes entries.
func (s *stream) remove(ctx context.Context, items []*item) error {
	words := []any{"XDEL", s.key}
	for _, i := range items {
		words = append(words, i.id)
	}
	_, err := s.redis.Run(ctx, s.key, words...)
	return err
}

// length is how many entries the stream has.
func (s *stream) length(ctx context.Context) (int64, error) {
	reply, err := s.redis.Run(ctx, s.key, "XLEN", s.key)
	if err != nil {
		return 0, err
	}
	n, is := reply.(int64)
	if !is {
		return 0, errors.New("the reply must be a number")
	}
	return n, nil
}

// partsOf is the parts of a list in a reply; anything else has none.
func partsOf(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// wordOf is a text in a reply; anything else is empty.
func wordOf(reply any) string {
	word, _ := reply.(string)
	return word
}

// decode reads an entry as Redis sends it: its id, and its fields and values. What is wrong with an entry is kept in it.
func (s *stream) decode(parts []any) (*item, error) {
	if len(parts) != 2 {
		return nil, errors.New("an entry of the reply does not have an id and fields")
	}
	i := &item{id: wordOf(parts[0])}
	head, _, _ := strings.Cut(i.id, "-")
	ms, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("an entry of the reply has the id %q", i.id)
	}
	i.at = time.UnixMilli(ms)
	fields := map[string]string{}
	words := partsOf(parts[1])
	for n := 0; n+1 < len(words); n += 2 {
		value := wordOf(words[n+1])
		fields[wordOf(words[n])] = value
		i.bytes += len(value)
	}
	i.Entry, err = journal.ParseEntry(fields)
	if err == nil {
		err = i.parse(s.name)
	}
	if err != nil {
		i.refuse(err)
	}
	i.Rows = nil // what they say is known now
	return i, nil
}

// parse reads the rows.
func (i *item) parse(stream string) (err error) {
	switch {
	case len(i.Sidecar) > maxText || cleaned(i.Sidecar) != i.Sidecar:
		i.Sidecar = ""
		return fmt.Errorf("the name of the sidecar must be text of at most %d bytes", maxText)
	case stream == journal.EventsStream:
		i.events, err = journal.UnmarshalEvents(i.Rows)
		if err == nil {
			err = checkEvents(i.events)
		}
	default:
		i.usage, err = journal.UnmarshalUsage(i.Rows)
		if err == nil {
			err = checkUsage(i.usage)
		}
	}
	i.Region = text(i.Region)
	return err
}
