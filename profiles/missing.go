package profiles

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Redis may lose profiles that the control plane keeps. While they are put back the index has a class for that. A
// profile that is not found then is not back yet: what was known of it holds, and the control plane is asked to put it
// back before others.
const (
	fillingClass = "|filling"  // of no domain
	maxMissing   = 1024        // identities that wait to be asked about
	missingPage  = 64          // that are asked about together
	missingIn    = time.Second // for a question to be sent
)

// filling reports whether profiles are put back.
func (p *Store) filling() bool {
	kinds := p.Kinds("")
	return kinds != nil && kinds.filling
}

// BeginFilling lets all sidecars know that profiles are put back, those of the kinds of some identities among them.
func (p *Store) BeginFilling(ctx context.Context, like []Identity) error {
	for _, id := range like {
		err := p.writeIndex(ctx, id.class(), time.Time{})
		if err != nil {
			return err
		}
	}
	err := p.writeIndex(ctx, fillingClass, p.cfg.Now()) // it is seen for an hour, should it not be ended
	if err != nil {
		return err
	}
	return p.AnnounceClasses(ctx, []string{fillingClass})
}

// EndFilling lets all sidecars know that Redis has all profiles again.
func (p *Store) EndFilling(ctx context.Context) error {
	_, err := p.run(ctx, p.cfg.Index, "ZREM", p.cfg.Index, fillingClass)
	if err != nil {
		return fmt.Errorf("note that all profiles are back: %w", err)
	}
	return p.AnnounceClasses(ctx, []string{fillingClass})
}

// await has the control plane asked about an identity, and returns what was known of it.
func (p *Store) await(id Identity, key string, changes uint64) any {
	asked := id
	asked.Domain, asked.Name = strings.Clone(id.Domain), strings.Clone(id.Name)
	select {
	case p.missing <- asked:
	default:
		p.unasked.Add(1)
	}
	return p.hold(id, key, changes, failedLife)
}

// askMissing asks the control plane about what is missing, some at a time.
func (p *Store) askMissing(ctx context.Context) {
	for {
		var page []Identity
		select {
		case id := <-p.missing:
			page = append(page, id)
		case <-ctx.Done():
			return
		}
		for len(page) < missingPage && len(p.missing) > 0 {
			page = append(page, <-p.missing)
		}
		if p.cfg.Missing == nil {
			continue
		}
		within, cancel := context.WithTimeout(ctx, missingIn)
		err := errPanicked
		p.cfg.Redis.Guard(func() { err = p.cfg.Missing(within, page) })
		cancel()
		if err != nil {
			p.unasked.Add(int64(len(page)))
		}
	}
}

// AnnounceAll lets all sidecars know that any profile may have changed.
func (p *Store) AnnounceAll(ctx context.Context) error {
	return p.AnnounceClasses(ctx, []string{fillingClass})
}
