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

const (
	fewEntries  = 16      // that are read first
	mostEntries = 128     // that are read together
	smallRead   = 2 << 20 // bytes: below, more entries are read together
	largeRead   = 8 << 20 // bytes: above, fewer
)

// stream is one of the streams of Redis. One goroutine uses it.
//
// The copier is its only reader, reads from the first entry and deletes what is stored: what is in the stream is what
// is left to do. The ids do not count: a Redis that was flushed, was restarted, or has another clock may give lower
// ones.
type stream struct {
	name, key string
	redis     *redis.Client
	count     int // entries to read
}

// item is an entry of a stream.
type item struct {
	journal.Entry
	id    string
	at    time.Time // when Redis got it, by Redis' clock
	bytes int
	rows  *journal.Rows // of Entry.Rows; empty where bad is set
	bad   error         // why it cannot be stored
}

// refuse marks an entry that cannot be stored.
func (i *item) refuse(err error) { i.bad, i.rows = err, &journal.Rows{} }

// count is how many rows the entry has.
func (i *item) count() int64 {
	n := len(i.rows.Events)
	for _, list := range i.rows.Usage() {
		n += len(list)
	}
	return int64(n)
}

// read returns the first entries, and whether there may be more.
func (s *stream) read(ctx context.Context) (items []*item, full bool, err error) {
	reply, err := s.redis.Run(ctx, s.key, "XRANGE", s.key, "-", "+", "COUNT", s.count)
	if err != nil {
		return nil, false, err
	}
	bytes := 0
	entries, _ := reply.([]any)
	for _, entry := range entries {
		i, err := decode(entry)
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
	return items, full, nil
}

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
		return 0, errors.New("the length of a stream must be a number")
	}
	return n, nil
}

// decode reads an entry as Redis sends it: its id, and its fields and values. What is wrong with an entry is kept in
// it.
func decode(entry any) (*item, error) {
	i := &item{rows: &journal.Rows{}}
	parts, _ := entry.([]any)
	if len(parts) != 2 {
		return nil, errors.New("an entry of a stream must have an id and fields")
	}
	i.id, _ = parts[0].(string)
	head, _, _ := strings.Cut(i.id, "-")
	ms, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the id of an entry must begin with a time, not %q", i.id)
	}
	i.at = time.UnixMilli(ms)
	fields := map[string]string{}
	words, _ := parts[1].([]any)
	for n := 0; n+1 < len(words); n += 2 {
		name, _ := words[n].(string)
		fields[name], _ = words[n+1].(string)
		i.bytes += len(fields[name])
	}
	i.Entry, err = journal.ParseEntry(fields)
	if err == nil && (len(i.Sidecar) > maxText || cleaned(i.Sidecar) != i.Sidecar) {
		i.Sidecar = ""
		err = fmt.Errorf("the name of the sidecar must be text of at most %d bytes", maxText)
	}
	if err == nil {
		i.rows, err = journal.Unmarshal(i.Rows)
	}
	if err != nil {
		i.refuse(err)
	}
	i.Region, i.Rows = text(i.Region), nil
	fit(i.rows)
	return i, nil
}
