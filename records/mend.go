package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Wanted is a record as it has to be.
type Wanted struct {
	Identity Identity
	Record   *Record // nil: there has to be none that the control plane keeps
}

// Difference is a record in Redis that is not what it has to be.
type Difference struct {
	*Wanted
	key  string
	text []byte // empty where there has to be none
}

const (
	mendBatch = 256             // records of one call
	mendCalls = 64              // calls under way at the same time
	mendIn    = 5 * time.Second // for one call
	tellEach  = 64              // records that sidecars hear of one by one: of more they hear once
)

// Mend makes the records in Redis what they have to be, and returns how many were not. It reads first, and writes only
// what differs. Sidecars hear of what was written. While records are put back it writes all: sidecars may hold what
// Redis does not have. A record of an operator, which the control plane does not keep, is overwritten but never
// removed.
func (b *Book) Mend(ctx context.Context, wanted []Wanted) (mended int, err error) {
	found, err := b.compare(ctx, wanted, b.filling())
	if err != nil {
		return 0, err
	}
	untold, err := b.Write(ctx, found)
	return len(found), errors.Join(err, b.TellAll(ctx, untold))
}

// Compare returns the records in Redis that are not what they have to be.
func (b *Book) Compare(ctx context.Context, wanted []Wanted) (found []*Difference, err error) {
	return b.compare(ctx, wanted, false)
}

// compare is Compare, or returns all records but those that stay because an operator made them.
func (b *Book) compare(ctx context.Context, wanted []Wanted, all bool) (found []*Difference, err error) {
	ready, err := b.prepare(wanted, func(*Wanted) bool { return true })
	if err != nil {
		return nil, err
	}
	batches := b.batches(ready, func(*Difference) bool { return true })
	differ := make([][]*Difference, len(batches))
	err = together(len(batches), func(n int) (err error) {
		differ[n], err = b.differing(ctx, batches[n], all)
		return err
	})
	return slices.Concat(differ...), err
}

// Absent returns what Compare does where Redis has none of the records.
func (b *Book) Absent(wanted []Wanted) ([]*Difference, error) {
	return b.prepare(wanted, func(w *Wanted) bool { return w.Record != nil })
}

// prepare makes ready to be written what is chosen.
func (b *Book) prepare(wanted []Wanted, chosen func(*Wanted) bool) ([]*Difference, error) {
	if b.cfg.Redis == nil {
		return nil, errors.New("records are mended in Redis, and there is none")
	}
	all, room := make([]*Difference, 0, len(wanted)), make([]Difference, len(wanted))
	texts := writer{bytes: make([]byte, 0, usualText*len(wanted))}
	for i := range wanted {
		if !chosen(&wanted[i]) {
			continue
		}
		text, err := texts.textOf(wanted[i].Record)
		if err != nil {
			return nil, err
		}
		room[i] = Difference{&wanted[i], b.cfg.Key(&wanted[i].Identity), text}
		all = append(all, &room[i])
	}
	return all, nil
}

// batch is records that one call can be about.
type batch []*Difference

// batches divides the records that are chosen.
func (b *Book) batches(all []*Difference, chosen func(*Difference) bool) (full []batch) {
	open := map[home]int{}
	for i, d := range all {
		if !chosen(d) {
			continue
		}
		place := b.homeOf(d.key)
		at, there := open[place]
		if !there || len(full[at]) == mendBatch {
			at = len(full)
			open[place] = at
			full = append(full, make(batch, 0, min(len(all)-i, mendBatch)))
		}
		full[at] = append(full[at], d)
	}
	return full
}

// together calls f with each number below count, several at the same time, and returns an error of one of them.
func together(count int, f func(n int) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex // guards problem
	var problem error
	turns := make(chan struct{}, mendCalls)
	for n := range count {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			err := f(n)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				problem = err
			}
		})
	}
	all.Wait()
	return problem
}

// call sends a command with the key of each record of a batch, and its text.
func (b *Book) call(ctx context.Context, records batch, command string, texts bool) (any, error) {
	words := make([]any, 1, 1+2*len(records))
	words[0] = command
	for _, d := range records {
		words = append(words, d.key)
		if texts {
			words = append(words, d.text)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, mendIn)
	defer cancel()
	return b.cfg.Redis.Run(ctx, records[0].key, words...)
}

// differing returns the records of a batch that are not what they have to be, or all of them but those that stay.
func (b *Book) differing(ctx context.Context, records batch, all bool) (found []*Difference, err error) {
	reply, err := b.call(ctx, records, "MGET", false)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	items, _ := reply.([]any)
	if len(items) != len(records) {
		return nil, fmt.Errorf("read records: %d replies for %d keys", len(items), len(records))
	}
	for at, d := range records {
		has, _ := items[at].(string)
		if (all || has != string(d.text)) && (d.Record != nil || !operators(has)) {
			found = append(found, d)
		}
	}
	return found, nil
}

// operators reports whether a text of Redis is a record that an operator made, and the control plane does not keep.
func operators(text string) bool {
	var r Record
	return len(text) > 0 && json.Unmarshal([]byte(text), &r) == nil && !r.Control
}

// Write writes records. Sidecars hear of each of them, unless there are many, or some are not written: then untold are
// the classes of which they have to hear by TellAll. The index is written first, so that no record is without it.
func (b *Book) Write(ctx context.Context, found []*Difference) (untold []string, err error) {
	for class, until := range classesOf(found) {
		err = b.writeIndex(ctx, class, until)
		if err != nil {
			return nil, err
		}
	}
	err = errors.Join(b.write(ctx, found, "MSET"), b.write(ctx, found, "UNLINK"), b.writeEnding(ctx, found))
	if err == nil && len(found) <= tellEach {
		err = together(len(found), func(n int) error {
			class := found[n].Identity.class()
			b.changed(found[n].key, class)
			return b.told(b.cfg.Publish(ctx, found[n].key, class))
		})
		if err == nil {
			return nil, nil
		}
	}
	return allClasses(found), err
}

// told explains what follows where sidecars could not be told.
func (*Book) told(err error) error {
	if err != nil {
		return fmt.Errorf("records are written, and sidecars see them in at most %v: %w", positiveLife, err)
	}
	return nil
}

// TellAll lets the sidecars know that any record of some classes may have changed.
func (b *Book) TellAll(ctx context.Context, classes []string) error {
	for _, class := range classes {
		b.changed("", class)
		err := b.told(b.cfg.Publish(ctx, "", class))
		if err != nil {
			return err
		}
	}
	return nil
}

// TellAbout lets the sidecars know that any record of the classes of some identities may have changed.
func (b *Book) TellAbout(ctx context.Context, ids []Identity) error {
	classes := map[string]bool{}
	for i := range ids {
		classes[ids[i].class()] = true
	}
	return b.TellAll(ctx, slices.Collect(maps.Keys(classes)))
}

// ends reports whether a record goes by itself.
func (d *Difference) ends() bool { return d.Record != nil && !d.Record.expires().IsZero() }

// write writes records that do not end by MSET, or deletes those that there have to be none of by UNLINK.
func (b *Book) write(ctx context.Context, found []*Difference, command string) error {
	deletes := command == "UNLINK"
	batches := b.batches(found, func(d *Difference) bool { return (d.Record == nil) == deletes && !d.ends() })
	return together(len(batches), func(n int) error {
		_, err := b.call(ctx, batches[n], command, !deletes)
		if err != nil {
			return fmt.Errorf("write records: %w", err)
		}
		return nil
	})
}

// writeEnding writes the records that go by themselves.
func (b *Book) writeEnding(ctx context.Context, found []*Difference) error {
	var ending []*Difference
	for _, d := range found {
		if d.ends() {
			ending = append(ending, d)
		}
	}
	return together(len(ending), func(n int) error {
		d := ending[n]
		_, err := b.run(ctx, d.key, "SET", d.key, d.text, "PXAT", d.Record.expires().UnixMilli())
		if err != nil {
			return fmt.Errorf("write a record: %w", err)
		}
		return nil
	})
}

// classesOf are the classes of records that there have to be, each with the end of the one that ends last; zero: never.
func classesOf(found []*Difference) map[string]time.Time {
	classes, lasting := map[string]time.Time{}, (*Identity)(nil) // lasting is that of the last record that does not end
	for _, d := range found {
		if d.Record == nil || d.Identity.alike(lasting) {
			continue
		}
		class, end := d.Identity.class(), d.Record.expires()
		if end.IsZero() {
			lasting = &d.Identity
		}
		known, there := classes[class]
		if !there || !known.IsZero() && (end.IsZero() || end.After(known)) {
			classes[class] = end
		}
	}
	return classes
}

// allClasses are the classes of records, also of those that there have to be none of.
func allClasses(found []*Difference) (classes []string) {
	seen, last := map[string]bool{}, (*Identity)(nil)
	for _, d := range found {
		if d.Identity.alike(last) {
			continue
		}
		last = &d.Identity
		class := d.Identity.class()
		if !seen[class] {
			seen[class] = true
			classes = append(classes, class)
		}
	}
	return classes
}
