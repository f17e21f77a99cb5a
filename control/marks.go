package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/spillway-mesh/spillway/fleet"
)

// A server of Redis has a mark. A server without it was emptied. While what is missing is put back the mark says so.
const (
	markFilling = "filling"
	markFull    = "1"
	maxMarks    = 1 << 16 // keys that are tried for a mark on each server
)

// errEmptied means that a server of Redis has lost its mark.
var errEmptied = errors.New("Redis was emptied")

// marks are keys of which each server of Redis has one.
func (p *Publisher) marks() []string {
	missing := map[*fleet.Node]bool{}
	for _, n := range p.cfg.Fleet.Nodes() {
		missing[n] = true
	}
	var all []string
	for i := 0; len(missing) > 0 && i < maxMarks; i++ {
		key := p.cfg.Keys.RecordKey("sidecars", "mark", strconv.Itoa(i))
		n, _ := p.cfg.Fleet.Place(key)
		if missing[n] {
			delete(missing, n)
			all = append(all, key)
		}
	}
	return all
}

// onMarks sends a command about each mark, whose name follows the first word, and returns the replies.
func (p *Publisher) onMarks(command string, words ...string) (replies []string, err error) {
	for _, key := range p.marks() {
		n, _ := p.cfg.Fleet.Place(key)
		reply, err := n.Ask(redisWithin, key, append([]string{command, key}, words...)...)
		if err != nil {
			return nil, fmt.Errorf("ask Redis for its mark: %w", err)
		}
		replies = append(replies, string(reply.Data))
	}
	return replies, nil
}

// marked is what the marks of all servers say.
type marked struct{ servers, lost, full int }

// readMarks reads the marks.
func (p *Publisher) readMarks() (m marked, err error) {
	replies, err := p.onMarks("GET")
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
func (p *Publisher) markAll() error {
	replies, err := p.onMarks("SET", markFull, "XX")
	for _, done := range replies {
		if done == "" {
			return errEmptied
		}
	}
	return err
}

// guarded calls fill, which puts all into Redis, and marks the servers. It ends fill where a server is emptied meanwhile, and fails with errEmptied.
func (p *Publisher) guarded(ctx context.Context, fill func(context.Context) error) error {
	_, err := p.onMarks("SET", markFilling, "NX")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for pause(ctx, markEvery); ctx.Err() == nil; pause(ctx, markEvery) {
			now, err := p.readMarks()
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
	return p.markAll()
}
