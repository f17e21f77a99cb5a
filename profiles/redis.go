package profiles

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// changeScript writes a profile unless another writer came first.
//
//go:embed change.lua
var changeScript string

const (
	indexEvery = 30 * time.Second // how often the index is read, jittered
	indexRetry = time.Second      // how soon again after it could not be read
	indexSlack = time.Hour        // by which clocks may differ
	askWithin  = 2 * time.Second  // for an operator's command, which can wait
	leastAllow = 50 * time.Microsecond
)

// errPanicked is an error where reading a reply has panicked.
var errPanicked = errors.New("a panic, which was reported")

// follow keeps the catalog up to date.
func (p *Store) follow(ctx context.Context) {
	var once sync.Once
	for ctx.Err() == nil {
		next := indexEvery - rand.N(indexEvery/10)
		err := errPanicked
		p.cfg.Redis.Guard(func() { err = p.readIndex(ctx) })
		if err != nil {
			next = indexRetry
			p.cfg.OnError(redis.Reason(err), fmt.Errorf("read which profiles there are: %w", err))
		}
		once.Do(func() { close(p.first) })
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// maxClasses is how many classes of the index are read at most. Those that last come first.
const maxClasses = 50_000

// readIndex reads which kinds of profiles there are. Kinds that became known after the question stay.
func (p *Store) readIndex(ctx context.Context) error {
	asked := p.cfg.Now()
	from := strconv.FormatInt(asked.Add(-indexSlack).UnixMilli(), 10)
	reply, err := p.run(ctx, p.cfg.Index, "ZREVRANGEBYSCORE", p.cfg.Index, "+inf", from, "LIMIT", 0, maxClasses+1)
	if err != nil {
		return err
	}
	items, is := reply.([]any)
	if !is {
		return fmt.Errorf("the reply must be a list, and is a %T", reply)
	}
	if len(items) > maxClasses {
		p.cfg.OnError("index",
			fmt.Errorf("the index names more than %d kinds of profiles: those that end soonest are not looked up",
				maxClasses))
	}
	all := catalogOf(p.servedOf(items[:min(len(items), maxClasses)]))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storeLocked(all)
	var kept []string
	for class, at := range p.news.added {
		if at.Before(asked) {
			delete(p.news.added, class)
			continue
		}
		kept = append(kept, class)
	}
	p.addLocked(kept...)
	return nil
}

// servedOf are the classes of the domains that are served.
func (p *Store) servedOf(items []any) (classes []string) {
	for _, item := range items {
		if class, is := item.(string); is && p.serves(class) {
			classes = append(classes, class)
		}
	}
	return classes
}

// home is what one call can ask for together.
type home struct {
	server *redis.Server
	slot   int
}

// lookUp asks for the profiles of ids, one call for each home, all at the same time.
func (p *Store) lookUp(ctx context.Context, ids []Identity, values []any) {
	changes := p.cache.changes.Load()
	keys := make([]string, len(ids))
	homes := map[home][]int{}
	for i := range ids {
		keys[i] = p.cfg.Key(&ids[i])
		at := p.homeOf(keys[i])
		homes[at] = append(homes[at], i)
	}
	var all sync.WaitGroup
	for _, places := range homes {
		ask := func() { p.askHome(ctx, ids, keys, places, values, changes) }
		if len(homes) == 1 {
			ask()
			return
		}
		all.Go(func() { p.cfg.Redis.Guard(ask) })
	}
	all.Wait()
}

// askHome asks one server for the profiles at those places, and takes in what it answers.
func (p *Store) askHome(
	ctx context.Context, ids []Identity, keys []string, places []int, values []any, changes uint64,
) {
	words := []any{"MGET"}
	for _, i := range places {
		words = append(words, keys[i])
	}
	allow := p.allowance(ctx)
	if allow < leastAllow { // Redis was not asked, so nothing is known that others could use
		for _, i := range places {
			values[i] = p.known(&ids[i])
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, allow)
	defer cancel()
	reply, err := p.cfg.Redis.Ask(ctx, keys[places[0]], words...)
	items, _ := reply.([]any)
	if err != nil {
		p.cfg.OnError(redis.Reason(err), fmt.Errorf("look up a profile: %w", err))
	}
	for at, i := range places {
		if at >= len(items) {
			values[i] = p.hold(ids[i], keys[i], changes, failedLife)
			continue
		}
		values[i] = p.learn(ids[i], keys[i], items[at], changes)
	}
}

// allowance is how long a lookup may take: the counters are asked after it.
func (p *Store) allowance(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return p.cfg.Patience
	}
	return min(p.cfg.Patience, time.Until(deadline)*4/10)
}

// learn keeps the reply about an identity, and returns what decisions use of it. Where that cannot be read,
// what was known holds.
func (p *Store) learn(id Identity, key string, item any, changes uint64) any {
	if item == nil && p.filling() && !p.cache.changed(&id) {
		return p.await(id, key, changes)
	}
	now := p.cfg.Now()
	e := &entry{key: key, age: p.cache.age.Load(), until: now.Add(jittered(negativeLife)),
		bytes: int64(entryBytes + 2*len(key) + len(id.Domain) + len(id.Name))}
	if item != nil {
		r, length, err := profileOf(item)
		if err != nil {
			p.unreadable.Add(1)
			p.cfg.OnError("profile", fmt.Errorf("read the profile %s, of which holds what was known: %w", key, err))
			return p.hold(id, key, changes, negativeLife)
		}
		// What is kept must not keep the message that these are parts of.
		id.Domain, id.Name = strings.Clone(id.Domain), strings.Clone(id.Name)
		if !r.empty() {
			e.profile, e.value = r, p.cfg.Prepare(&id, r)
			e.until = now.Add(jittered(positiveLife))
			e.bytes += profileBytes + 2*int64(length)
		}
	}
	p.cache.keep(id, e, changes)
	return e.value
}

// profileOf reads a profile, and returns the length of its text.
func profileOf(item any) (r *Profile, length int, err error) {
	text, is := item.(string)
	if !is {
		return nil, 0, fmt.Errorf("the reply must be a text, and is a %T", item)
	}
	err = json.Unmarshal([]byte(text), &r)
	if err == nil && r == nil {
		err = errors.New("it is null")
	}
	return r, len(text), err
}

// hold keeps what was known about an identity for so long, because nothing newer can be had.
func (p *Store) hold(id Identity, key string, changes uint64, life time.Duration) any {
	e := &entry{key: key, bytes: int64(entryBytes + 2*len(key) + len(id.Domain) + len(id.Name))}
	was, _ := p.cache.find(&id, p.cfg.Now())
	if was != nil {
		*e = *was
	}
	e.age, e.until = p.cache.age.Load(), p.cfg.Now().Add(jittered(life))
	p.cache.keep(id, e, changes)
	return e.value
}

// known is what was known about an identity, be it out of date.
func (p *Store) known(id *Identity) any {
	e, _ := p.cache.find(id, p.cfg.Now())
	if e == nil {
		return nil
	}
	return e.value
}

// read reads a profile, and returns it as text too.
func (p *Store) read(ctx context.Context, key string) (string, *Profile, error) {
	reply, err := p.run(ctx, key, "GET", key)
	if err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	text, is := reply.(string)
	if !is {
		return "", nil, nil
	}
	r := new(Profile)
	err = json.Unmarshal([]byte(text), r)
	if err != nil {
		return text, nil, fmt.Errorf("the profile in Redis cannot be read: %w", err)
	}
	if r.empty() && !r.Taken {
		return text, nil, nil
	}
	return text, r, nil
}

// run sends a command about a key that can wait, such as an operator's.
func (p *Store) run(ctx context.Context, key string, words ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return p.cfg.Redis.Run(ctx, key, words...)
}

// homeOf is where a key is.
func (p *Store) homeOf(key string) home { return home{p.cfg.Redis.Server(key), p.cfg.Redis.Slot(key)} }

// changeOnce changes a profile in Redis.
func (p *Store) changeOnce(
	ctx context.Context, id Identity, by string, edit func(*Profile) *Profile,
) (before, after *Profile, err error) {
	key := p.cfg.Key(&id)
	was, before, err := p.read(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	after = edit(before)
	kept := traced(before, after, by, p.cfg.Now())
	written, err := p.writeAll(ctx, []Swap{{id, was, kept}}, func(key, text, until, was string) []any {
		if kept == nil {
			text = "" // deletes it
		}
		return []any{"EVAL", changeScript, 1, key, was, text, until}
	})
	if err != nil {
		return before, after, err
	}
	if written == 0 {
		return before, after, errBusy
	}
	err = p.Announce(ctx, []Identity{id})
	if kept != nil && kept.Taken && p.cfg.Taken != nil {
		err = errors.Join(err, p.cfg.Taken(ctx, id))
	}
	return before, after, err
}

// writeIndex notes that there are profiles of a class until then.
func (p *Store) writeIndex(ctx context.Context, class string, until time.Time) error {
	score := "+inf"
	if !until.IsZero() {
		score = strconv.FormatInt(min(until.UnixMilli(), math.MaxInt64/2), 10)
	}
	_, err := p.run(ctx, p.cfg.Index, "ZADD", p.cfg.Index, "GT", score, class)
	if err != nil {
		return fmt.Errorf("note that there is a profile: %w", err)
	}
	return nil
}

// union is the numbers of both lists.
func union(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
