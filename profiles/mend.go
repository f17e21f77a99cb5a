package profiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// What the control plane has removed is an empty profile for a while, so that an older state of the database that is on
// its way to Redis does not bring it back.
const (
	removedText = "{}"
	removedFor  = time.Hour

	manyWithin   = 10 * time.Second // for many commands
	mostKeys     = 256              // of one command
	announceEach = 64               // profiles that are announced one by one: of more all of a class are, at once
)

// Swap is a profile as it has to be in Redis.
type Swap struct {
	Identity Identity
	Was      string   // what Redis has, as Read returned it; empty: nothing
	Profile  *Profile // nil: none
}

// Taken returns the profile in Redis of which the database has to take over the block, or its end; nil: none.
func (s *Swap) Taken() *Profile {
	r := new(Profile)
	if !strings.Contains(s.Was, `"taken":true`) || json.Unmarshal([]byte(s.Was), r) != nil || !r.Taken {
		return nil
	}
	return r
}

// Merge adds to the profile what an operator has set at a sidecar, and the database does not keep. It reports whether
// Redis has to be changed.
func (s *Swap) Merge() bool {
	var was Profile
	text, err := s.text()
	switch {
	case s.Was == "":
		return s.Profile != nil
	case s.Was == text:
		return false
	case err != nil || json.Unmarshal([]byte(s.Was), &was) != nil:
		return true
	case s.Profile == nil && !was.Control && !was.Taken && !was.empty(): // all of it is an operator's
		return false
	}
	s.Profile = was.beside(s.Profile)
	text, err = s.text()
	return err != nil || s.Was != text
}

// beside is the profile that the database has, nil for none, with what an operator has set in r. A tier or limits of
// the database take the place of an operator's.
func (r *Profile) beside(kept *Profile) *Profile {
	all := Profile{By: r.By, At: r.At}
	if kept != nil {
		all = *kept
	}
	all.Note = r.Note
	if all.Block == nil && !r.Blocks() {
		all.Block = r.Block
	}
	if !all.limits() && (r.Operator || !r.Control) {
		all.Tier, all.Limits = r.Tier, r.Limits
		all.Operator = all.Control && all.limits()
	}
	if all.empty() {
		return nil
	}
	return &all
}

// text is the profile as Redis keeps it.
func (s *Swap) text() (string, error) {
	if s.Profile == nil {
		return removedText, nil
	}
	text, err := json.Marshal(s.Profile)
	if err != nil {
		return "", fmt.Errorf("write a profile: %w", err)
	}
	return string(text), nil
}

// end is when the profile ends, zero: never.
func (s *Swap) end(now time.Time) time.Time {
	if s.Profile == nil {
		return now.Add(removedFor)
	}
	return s.Profile.expires()
}

// Read returns the profiles of identities as Redis has them, empty for none.
func (p *Store) Read(ctx context.Context, ids []Identity) ([]string, error) {
	keys := make([]string, len(ids))
	for i := range ids {
		keys[i] = p.cfg.Key(&ids[i])
	}
	calls := p.together(keys)
	replies, err := p.runAll(ctx, len(calls), func(i int) (redis.Command, error) {
		words := []any{"MGET"}
		for _, at := range calls[i] {
			words = append(words, keys[at])
		}
		return redis.Command{Key: keys[calls[i][0]], Args: words}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read profiles: %w", err)
	}
	texts := make([]string, len(ids))
	for i, reply := range replies {
		items, _ := reply.Value.([]any)
		for n, item := range items {
			texts[calls[i][n]], _ = item.(string)
		}
	}
	return texts, nil
}

// together splits keys into calls: the places of keys that one command can name.
func (p *Store) together(keys []string) (calls [][]int) {
	if p.cfg.Redis == nil {
		return nil
	}
	homes := map[home][]int{}
	for i, key := range keys {
		at := p.homeOf(key)
		homes[at] = append(homes[at], i)
	}
	for _, places := range homes {
		calls = slices.AppendSeq(calls, slices.Chunk(places, mostKeys))
	}
	return calls
}

// Swap writes profiles where Redis still has what was read, and returns how many it has written. The index
// is written first, so that every profile is in it.
func (p *Store) Swap(ctx context.Context, all []Swap) (written int, err error) {
	return p.writeAll(ctx, all, func(key, text, until, was string) []any {
		return []any{"EVAL", changeScript, 1, key, was, text, until}
	})
}

// Add writes profiles where Redis has none, and returns how many it has written. Those that do not end are written
// many at once, unless Redis has one of them by now.
func (p *Store) Add(ctx context.Context, all []Swap) (written int, err error) {
	err = p.writeIndexes(ctx, all)
	if err != nil {
		return 0, err
	}
	written, rest, err := p.addLasting(ctx, all)
	if err != nil {
		return written, err
	}
	more, err := p.writeEach(ctx, rest, func(key, text, until, _ string) []any {
		if until == "0" {
			return []any{"SET", key, text, "NX"}
		}
		return []any{"SET", key, text, "NX", "PXAT", until}
	})
	return written + more, err
}

// addLasting adds profiles that do not end, and returns how many were written and which are left.
func (p *Store) addLasting(ctx context.Context, all []Swap) (written int, rest []Swap, err error) {
	var lasting []Swap
	var keys []string
	for _, s := range all {
		if s.end(p.cfg.Now()).IsZero() {
			lasting, keys = append(lasting, s), append(keys, p.cfg.Key(&s.Identity))
		} else {
			rest = append(rest, s)
		}
	}
	calls := p.together(keys)
	replies, err := p.runAll(ctx, len(calls), func(i int) (redis.Command, error) {
		words := []any{"MSETNX"}
		for _, at := range calls[i] {
			text, err := lasting[at].text()
			if err != nil {
				return redis.Command{}, err
			}
			words = append(words, keys[at], text)
		}
		return redis.Command{Key: keys[calls[i][0]], Args: words}, nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("write profiles: %w", err)
	}
	for i, reply := range replies {
		if reply.Value == int64(1) {
			written += len(calls[i])
			continue
		}
		for _, at := range calls[i] {
			rest = append(rest, lasting[at])
		}
	}
	return written, rest, nil
}

// writeAll writes the index, and then profiles by one command each.
func (p *Store) writeAll(
	ctx context.Context, all []Swap, command func(key, text, until, was string) []any,
) (written int, err error) {
	err = p.writeIndexes(ctx, all)
	if err != nil {
		return 0, err
	}
	return p.writeEach(ctx, all, command)
}

// writeIndexes notes the classes of profiles that are about to be written.
func (p *Store) writeIndexes(ctx context.Context, all []Swap) error {
	for class, until := range classesOf(all) {
		err := p.writeIndex(ctx, class, until)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeEach writes profiles by one command each, and returns how many were written.
func (p *Store) writeEach(
	ctx context.Context, all []Swap, command func(key, text, until, was string) []any,
) (written int, err error) {
	now := p.cfg.Now()
	replies, err := p.runAll(ctx, len(all), func(i int) (redis.Command, error) {
		s := &all[i]
		text, err := s.text()
		key, until := p.cfg.Key(&s.Identity), "0"
		if end := s.end(now); !end.IsZero() {
			until = strconv.FormatInt(end.UnixMilli(), 10)
		}
		return redis.Command{Key: key, Args: command(key, text, until, s.Was)}, err
	})
	if err != nil {
		return 0, fmt.Errorf("write profiles: %w", err)
	}
	for _, reply := range replies {
		if reply.Value == int64(1) || reply.Value == "OK" {
			written++
		}
	}
	return written, nil
}

// Remove deletes profiles, those that operators made, too, and announces that.
func (p *Store) Remove(ctx context.Context, ids []Identity) error {
	_, err := p.runAll(ctx, len(ids), func(i int) (redis.Command, error) {
		key := p.cfg.Key(&ids[i])
		return redis.Command{Key: key, Args: []any{"UNLINK", key}}, nil
	})
	if err != nil {
		return fmt.Errorf("delete profiles: %w", err)
	}
	return p.Announce(ctx, ids)
}

// runAll sends commands, and fails where one of them does.
func (p *Store) runAll(
	ctx context.Context, count int, command func(i int) (redis.Command, error),
) ([]redis.Reply, error) {
	if p.cfg.Redis == nil {
		return nil, errors.New("profiles are changed in Redis alone: set REDIS_URL")
	}
	all := make([]redis.Command, count)
	for i := range all {
		var err error
		all[i], err = command(i)
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, manyWithin)
	defer cancel()
	replies := p.cfg.Redis.RunAll(ctx, all)
	for _, reply := range replies {
		if reply.Err != nil {
			return nil, reply.Err
		}
	}
	return replies, nil
}

// Announce announces that profiles of identities may have changed.
func (p *Store) Announce(ctx context.Context, ids []Identity) error {
	if len(ids) > announceEach {
		return p.AnnounceClasses(ctx, ClassesOf(ids))
	}
	for i := range ids {
		key, class := p.cfg.Key(&ids[i]), ids[i].class()
		p.changed(key, class)
		err := p.late(p.cfg.Publish(ctx, key, class))
		if err != nil {
			return err
		}
	}
	return nil
}

// ClassesOf are the classes of some identities, each once, for AnnounceClasses.
func ClassesOf(ids []Identity) (classes []string) {
	last := (*Identity)(nil)
	for i := range ids {
		if ids[i].sameClass(last) {
			continue
		}
		last = &ids[i]
		classes = append(classes, last.class())
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// late explains what follows where the news could not be sent.
func (*Store) late(err error) error {
	if err != nil {
		return fmt.Errorf("profiles are written, and sidecars see them in at most %v: %w", positiveLife, err)
	}
	return nil
}

// AnnounceClasses announces that any profile of some classes may have changed.
func (p *Store) AnnounceClasses(ctx context.Context, classes []string) error {
	for _, class := range classes {
		p.changed("", class)
		err := p.late(p.cfg.Publish(ctx, "", class))
		if err != nil {
			return err
		}
	}
	return nil
}

// classesOf are the classes of profiles that there have to be, each with the end of the one that ends last; zero:
// never.
func classesOf(all []Swap) map[string]time.Time {
	classes := map[string]time.Time{}
	var lasting *Identity // that of the last profile that does not end
	for i := range all {
		s := &all[i]
		if s.Profile == nil || s.Identity.sameClass(lasting) {
			continue
		}
		class, end := s.Identity.class(), s.Profile.expires()
		if end.IsZero() {
			lasting = &s.Identity
		}
		known, there := classes[class]
		if !there || !known.IsZero() && (end.IsZero() || end.After(known)) {
			classes[class] = end
		}
	}
	return classes
}
