package profiles

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Redis may lose records that the control plane keeps. While they are put back the index has a class for that. A
// record that is not found then is not back yet: what was known of it holds, and the control plane is asked to put it
// back before others.
const (
	fillingClass = "|filling"  // of no domain
	maxMissing   = 1024        // identities that wait to be asked about
	missingPage  = 64          // that are asked about together
	missingIn    = time.Second // for a question to be sent
)

// filling reports whether records are put back.
func (b *Book) filling() bool {
	kinds := b.Kinds("")
	return kinds != nil && kinds.filling
}

// BeginFilling lets all sidecars know that records are put back, those of the kinds of some identities among them.
func (b *Book) BeginFilling(ctx context.Context, like []Identity) error {
	for _, id := range like {
		err := b.writeIndex(ctx, id.class(), time.Time{})
		if err != nil {
			return err
		}
	}
	err := b.writeIndex(ctx, fillingClass, b.cfg.Now()) // it is seen for an hour, should it not be ended
	if err != nil {
		return err
	}
	return b.AnnounceClasses(ctx, []string{fillingClass})
}

// EndFilling lets all sidecars know that Redis has all records again.
func (b *Book) EndFilling(ctx context.Context) error {
	_, err := b.run(ctx, b.cfg.Index, "ZREM", b.cfg.Index, fillingClass)
	if err != nil {
		return fmt.Errorf("note that all records are back: %w", err)
	}
	return b.AnnounceClasses(ctx, []string{fillingClass})
}

// await has the control plane asked about an identity, and returns what was known of it.
func (b *Book) await(id Identity, key string, changes uint64) any {
	asked := id
	asked.Domain, asked.Name = strings.Clone(id.Domain), strings.Clone(id.Name)
	select {
	case b.missing <- asked:
	default:
		b.unasked.Add(1)
	}
	return b.hold(id, key, changes, failedLife)
}

// askMissing asks the control plane about what is missing, some at a time.
func (b *Book) askMissing(ctx context.Context) {
	for {
		var page []Identity
		select {
		case id := <-b.missing:
			page = append(page, id)
		case <-ctx.Done():
			return
		}
		for len(page) < missingPage && len(b.missing) > 0 {
			page = append(page, <-b.missing)
		}
		if b.cfg.Missing == nil {
			continue
		}
		within, cancel := context.WithTimeout(ctx, missingIn)
		err := errPanicked
		b.cfg.Redis.Guard(func() { err = b.cfg.Missing(within, page) })
		cancel()
		if err != nil {
			b.unasked.Add(int64(len(page)))
		}
	}
}

// AnnounceAll lets all sidecars know that any record may have changed.
func (b *Book) AnnounceAll(ctx context.Context) error {
	return b.AnnounceClasses(ctx, []string{fillingClass})
}
