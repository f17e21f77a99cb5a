package publish

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/redis"
)

// A server of Redis has a mark. A server without it was emptied. While what is missing is put back, the mark is another
// one.
const (
	markFilling = "filling"
	markFull    = "1"
	maxMarks    = 1 << 16 // keys that are tried for a mark on each server
)

// errEmptied means that a server of Redis has lost its mark.
var errEmptied = errors.New("Redis was emptied")

// marks are keys of which each server of Redis has one.
func (p *Publisher) marks() []string {
	missing := map[*redis.Server]bool{}
	for _, s := range p.cfg.Redis.Servers() {
		missing[s] = true
	}
	var all []string
	for i := 0; len(missing) > 0 && i < maxMarks; i++ {
		key := p.cfg.Keys.Profile("sidecars", "mark", strconv.Itoa(i))
		s := p.cfg.Redis.Server(key)
		if missing[s] {
			delete(missing, s)
			all = append(all, key)
		}
	}
	return all
}

// onMarks sends a command about each mark, whose name follows the first word, and returns the replies.
func (p *Publisher) onMarks(ctx context.Context, command string, words ...any) (replies []string, err error) {
	for _, key := range p.marks() {
		reply, err := p.cfg.Redis.Run(ctx, key, append([]any{command, key}, words...)...)
		if err != nil {
			return nil, fmt.Errorf("ask Redis for its mark: %w", err)
		}
		text, _ := reply.(string)
		replies = append(replies, text)
	}
	return replies, nil
}

// marked is how many servers have which mark.
type marked struct{ servers, lost, full int }

// readMarks reads the marks.
func (p *Publisher) readMarks(ctx context.Context) (m marked, err error) {
	replies, err := p.onMarks(ctx, "GET")
	for _, mark := range replies {
		m.servers++
		switch mark {
		case "":
			m.lost++
		case markFull:
			m.full++
		}
	}
	return m, err
}

// markAll notes on every server that all is there. It fails where a server was emptied meanwhile.
func (p *Publisher) markAll(ctx context.Context) error {
	replies, err := p.onMarks(ctx, "SET", markFull, "XX")
	for _, done := range replies {
		if done == "" {
			return errEmptied
		}
	}
	return err
}

// guarded calls fill, which puts all into Redis, and marks the servers. It ends fill where a server is emptied
// meanwhile, and fails with errEmptied.
func (p *Publisher) guarded(ctx context.Context, fill func(context.Context) error) error {
	_, err := p.onMarks(ctx, "SET", markFilling, "NX")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for leader.Pause(ctx, markEvery); ctx.Err() == nil; leader.Pause(ctx, markEvery) {
			now, err := p.readMarks(ctx)
			if err == nil && now.lost > 0 {
				cancel(errEmptied)
			}
		}
	})
	err = fill(ctx)
	cancel(nil)
	beside.Wait()
	switch {
	case errors.Is(context.Cause(ctx), errEmptied):
		return errEmptied
	case err != nil:
		return err
	}
	return p.markAll(context.WithoutCancel(ctx))
}
