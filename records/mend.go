package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
)

// Wanted is a record as it has to be.
type Wanted struct {
	Identity Identity
	Record   *Record // nil: there has to be none
}

const (
	mendBatch = 256             // records that one call reads
	mendCalls = 64              // writes under way at the same time
	mendIn    = 5 * time.Second // for one call
)

// Mend makes the records in Redis what they have to be, and returns how many were not. It reads first, and writes only what differs.
// Sidecars hear of each record that was written.
func (b *Book) Mend(ctx context.Context, wanted []Wanted) (mended int, err error) {
	if b.cfg.Fleet == nil {
		return 0, errors.New("records are mended in Redis, and there is none")
	}
	keys := make([]string, len(wanted))
	homes := map[home][]int{}
	for i := range wanted {
		keys[i] = b.cfg.Key(&wanted[i].Identity)
		n, slot := b.cfg.Fleet.Place(keys[i])
		homes[home{n, slot}] = append(homes[home{n, slot}], i)
	}
	var wrong []int
	for at, places := range homes {
		for len(places) > 0 {
			some := places[:min(len(places), mendBatch)]
			places = places[len(some):]
			differ, err := b.differ(ctx, at.node, wanted, keys, some)
			if err != nil {
				return 0, err
			}
			wrong = append(wrong, differ...)
		}
	}
	return len(wrong), b.rewrite(ctx, wanted, keys, wrong)
}

// textOf is a record as Redis keeps it, empty for none.
func textOf(r *Record) (string, error) {
	if r == nil {
		return "", nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write a record: %w", err)
	}
	return string(text), nil
}

// differ returns the places of the records that are not what they have to be, of some that are on one server.
func (b *Book) differ(ctx context.Context, n *fleet.Node, wanted []Wanted, keys []string, places []int) (wrong []int, err error) {
	call := fleet.Call{Key: keys[places[0]], Wire: fleet.AppendWord(fleet.AppendCommand(nil, 1+len(places)), "MGET")}
	for _, i := range places {
		call.Wire = fleet.AppendWord(call.Wire, keys[i])
	}
	err = n.Do(ctx, &call, mendIn)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	items := call.Reply.Items()
	if len(items) != len(places) {
		return nil, fmt.Errorf("read records: %d replies for %d keys", len(items), len(places))
	}
	for at, i := range places {
		text, err := textOf(wanted[i].Record)
		if err != nil {
			return nil, err
		}
		if string(items[at].Data) != text {
			wrong = append(wrong, i)
		}
	}
	return wrong, nil
}

// rewrite writes some records, several at the same time. The index is written first, so that no record is without it.
func (b *Book) rewrite(ctx context.Context, wanted []Wanted, keys []string, places []int) error {
	for class, until := range classesOf(wanted, places) {
		err := b.writeIndex(ctx, class, until)
		if err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards problems
	var problems error
	turns := make(chan struct{}, mendCalls)
	for _, i := range places {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			err := b.rewriteOne(ctx, &wanted[i], keys[i])
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = err
			}
		})
	}
	all.Wait()
	return problems
}

// classesOf are the classes of some records, each with the end of the one that ends last; zero: never.
func classesOf(wanted []Wanted, places []int) map[string]time.Time {
	classes := map[string]time.Time{}
	for _, i := range places {
		r := wanted[i].Record
		if r == nil {
			continue
		}
		class, end := wanted[i].Identity.class(), r.expires()
		known, there := classes[class]
		if !there || !known.IsZero() && (end.IsZero() || end.After(known)) {
			classes[class] = end
		}
	}
	return classes
}

// rewriteOne writes one record, and lets the sidecars know.
func (b *Book) rewriteOne(ctx context.Context, w *Wanted, key string) error {
	text, err := textOf(w.Record)
	if err != nil {
		return err
	}
	words := []string{"UNLINK", key}
	if w.Record != nil {
		words = []string{"SET", key, text}
		if end := w.Record.expires(); !end.IsZero() {
			words = append(words, "PXAT", strconv.FormatInt(end.UnixMilli(), 10))
		}
	}
	n, _ := b.cfg.Fleet.Place(key)
	_, err = n.Ask(within(ctx), key, words...)
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	class := w.Identity.class()
	b.Forget(key, class)
	err = b.cfg.Publish(ctx, key, class)
	if err != nil {
		return fmt.Errorf("the record is written, and sidecars see it in at most %v: %w", positiveLife, err)
	}
	return nil
}
