package publish

import (
	"context"
	"errors"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/profiles"
)

// roundsMost is how often Reconcile looks again.
const roundsMost = 20

// errBusy means that others have changed the same profiles all the time.
var errBusy = errors.New("profiles in Redis are being changed by others all the time")

// Reconcile makes the profiles of subjects in Redis what the database has, and returns how many it has written. It
// announces nothing.
//
// A block that a sidecar has taken, or ended, while no control ran is first taken over into the database.
//
// Any number of them, in any processes, may work at the same time: each reads Redis before the database, and writes
// only where Redis still has what was read. What it has written it looks at once more, until Redis and the database
// agree: the database may have changed in between, and a later reader may have found nothing to write.
func (p *Publisher) Reconcile(
	ctx context.Context, q database.Querier, subjects []database.Subject,
) (written int, err error) {
	for range roundsMost {
		if len(subjects) == 0 {
			return written, nil
		}
		var n int
		subjects, n, err = p.round(ctx, q, subjects)
		written += n
		p.mended.Add(int64(n))
		if err != nil {
			return written, err
		}
	}
	return written, errBusy
}

// swapsOf returns what has to be written, and whom it is about: what differs, and what is in neither place.
func swapsOf(wanted []desired, was map[database.Subject]string) (swaps []profiles.Swap, about []database.Subject) {
	for _, d := range wanted {
		text, read := was[d.Subject]
		if !read { // takeOver has left it out
			continue
		}
		s := profiles.Swap{Identity: d.identity, Was: text, Profile: d.profile}
		if s.Merge() || s.Was == "" && s.Profile == nil {
			swaps, about = append(swaps, s), append(about, d.Subject)
		}
	}
	return swaps, about
}

// round is one look of Reconcile. It returns what it has written, or could not write, and how many it has.
func (p *Publisher) round(
	ctx context.Context, q database.Querier, subjects []database.Subject,
) (again []database.Subject, written int, err error) {
	was, err := p.inRedis(ctx, subjects)
	if err != nil {
		return nil, 0, err
	}
	p.passed("read")
	err = p.takeOver(ctx, was)
	if err != nil {
		return nil, 0, err
	}
	wanted, err := p.desiredOf(ctx, q, subjects)
	if err != nil {
		return nil, 0, err
	}
	p.passed("asked")
	swaps, again := swapsOf(wanted, was)
	if len(swaps) == 0 {
		return nil, 0, nil
	}
	written, err = p.profiles.Swap(ctx, swaps)
	p.passed("written")
	return again, written, err
}

// inRedis is what Redis has about those subjects that can have profiles.
func (p *Publisher) inRedis(ctx context.Context, subjects []database.Subject) (map[database.Subject]string, error) {
	var known []database.Subject
	for _, s := range subjects {
		if _, err := IdentityOf(s); err == nil {
			known = append(known, s)
		}
	}
	had, err := p.profiles.Read(ctx, identitiesOf(known))
	if err != nil {
		return nil, err
	}
	was := map[database.Subject]string{}
	for i, s := range known {
		was[s] = had[i]
	}
	return was, nil
}
