// Package erase removes what is known of one identity, in all places, and searches them again.
package erase

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	eraseWithin = 24 * time.Hour         // for one table
	copyWithin  = 30 * time.Second       // until what streams hold is copied
	lookEvery   = 250 * time.Millisecond // whether it is
)

// Eraser does the erasures that were asked for. Archive may be nil: nothing is archived.
type Eraser struct {
	Database  *database.DB
	Publisher *publish.Publisher
	Redis     *redis.Client
	Keys      keys.Names
	Archive   *archive.Archiver
	Log       *slog.Logger
}

// Run is a task: it does the erasures that are open.
func (x *Eraser) Run(ctx context.Context, _ <-chan struct{}) error {
	for {
		found, err := x.next(ctx)
		if err != nil || !found {
			return err
		}
	}
}

// next does one erasure, where one is open.
func (x *Eraser) next(ctx context.Context) (found bool, err error) {
	e, err := x.open(ctx)
	if err != nil || e == nil {
		return false, err
	}
	if x.Archive != nil {
		err = x.Archive.Alone(ctx, func(ctx context.Context) error { return x.erase(ctx, e) })
	} else {
		err = x.erase(ctx, e)
	}
	if err != nil && ctx.Err() == nil {
		_ = x.postpone(ctx, e, err) // the error itself is what counts
	}
	return true, err
}

// erase removes the traces in all places, in an order that leaves nothing behind: what is on its way to the database
// first, then the database, then what is made of it. Then it searches all places again.
func (x *Eraser) erase(ctx context.Context, e *openErasure) error {
	err := x.gather(ctx, e)
	if err != nil {
		return fmt.Errorf("gather what is known: %w", err)
	}
	p := x.personOf(e)
	places, err := x.places(ctx, p)
	if err != nil {
		return err
	}
	for _, place := range places {
		n, err := place.remove(ctx)
		e.countRemoved(place.name, n)
		if err != nil {
			return fmt.Errorf("erase from %s: %w", place.name, err)
		}
	}
	e.Problem = ""
	for _, place := range places {
		n, err := place.count(ctx)
		if err != nil {
			return fmt.Errorf("search %s: %w", place.name, err)
		}
		if n > 0 {
			e.Problem = strings.TrimPrefix(e.Problem+"; ", "; ") + fmt.Sprintf("%s: %d are left%s", place.name, n,
				place.hint)
		}
		e.Places[e.at(place.name)].Left = n
	}
	err = x.finish(ctx, e)
	if err == nil {
		x.Log.Info("an erasure ended", "erasure", e.ID, "domain", e.Domain, "left", e.Problem)
	}
	return err
}

// at is the index of a place in the list of an erasure.
func (e *openErasure) at(place string) int {
	i := slices.IndexFunc(e.Places, func(p database.ErasedPlace) bool { return p.Place == place })
	if i < 0 {
		i = len(e.Places)
		e.Places = append(e.Places, database.ErasedPlace{Place: place})
	}
	return i
}

// countRemoved counts what was removed, also by tries before this one.
func (e *openErasure) countRemoved(place string, removed int64) {
	e.Places[e.at(place)].Removed += removed
}

// person is one identity with all names that it has.
type person struct {
	*openErasure
	identities []string // in usage and events: with KEY_SECRET also the plain ones, of a time before it was set
	ips        []string
	keys       []string // of its API keys, in rows of usage
}

// personOf is the person of an erasure.
func (x *Eraser) personOf(e *openErasure) *person {
	names := x.Keys
	p := &person{openErasure: e, ips: []string{}}
	p.identities = []string{names.Identity(e.Kind, e.Name), e.Kind + ":" + e.Name}
	for _, id := range e.Also.IDs {
		p.identities = append(p.identities, names.Identity("api_key", id), "api_key:"+id)
		p.counted(names, journal.KeyOf(id))
	}
	for _, digest := range e.Also.Digests {
		bytes, err := hex.DecodeString(digest)
		if err == nil {
			p.counted(names, journal.KeyOfDigest(bytes))
		}
	}
	if e.Kind == "ip" {
		p.ips = distinct([]string{strings.TrimPrefix(p.identities[0], "ip:"), e.Name})
	}
	p.identities = distinct(p.identities)
	return p
}

// counted adds the names that rows of usage have for an API key.
func (p *person) counted(names keys.Names, key string) {
	p.keys = append(p.keys, names.Identity(journal.KeyKind, key), journal.KeyKind+":"+key)
}

// shown are what events may have of the API keys: their ids, and of keys that the database does not have their names in
// rows of usage.
func (p *person) shown() []string { return slices.Concat(p.Also.IDs, p.keys) }

// distinct is a list with each text once, never nil.
func distinct(all []string) []string {
	sorted := append([]string{}, all...)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// subjects are whom the profiles of Redis are about.
func (p *person) subjects() []database.Subject {
	all := []database.Subject{{Domain: p.Domain, Kind: p.Kind, Name: p.Name}}
	for _, id := range p.Also.IDs {
		all = append(all, database.Subject{Domain: p.Domain, Kind: "api_key", Name: id})
	}
	for _, digest := range p.Also.Digests {
		all = append(all, database.Subject{Domain: p.Domain, Kind: database.KindSecret, Name: digest})
	}
	return all
}

// inArchive is the person in the terms of the archive.
func (p *person) inArchive() archive.Person {
	return archive.Person{Domain: p.Domain, Identities: p.identities, IPs: p.ips, APIKeys: p.shown()}
}

// place is where traces may be.
type place struct {
	name   string
	hint   string // what to do where something is left
	remove func(context.Context) (int64, error)
	count  func(context.Context) (int64, error)
}

// places are all of them, in the order in which they are erased.
func (x *Eraser) places(ctx context.Context, p *person) ([]place, error) {
	tables, err := x.tables(ctx, p)
	if err != nil {
		return nil, err
	}
	all := append([]place{x.streams(p)}, tables...)
	all = append(all, x.profiles(p), x.counters(p), x.files(p))
	return all, nil
}

// profiles is the profiles of Redis, those that operators made, too.
func (x *Eraser) profiles(p *person) place {
	count := func(ctx context.Context) (left int64, err error) {
		for _, s := range p.subjects() {
			id, err := publish.IdentityOf(s)
			if err != nil {
				return 0, err
			}
			n, err := x.exists(ctx, &id)
			if err != nil {
				return 0, err
			}
			left += n
		}
		return left, nil
	}
	return place{
		name: "profiles in Redis",
		remove: func(ctx context.Context) (removed int64, err error) {
			removed, err = count(ctx)
			if err != nil {
				return 0, err
			}
			return removed, x.Publisher.Remove(ctx, p.subjects())
		},
		count: count,
	}
}

func (x *Eraser) exists(ctx context.Context, id *profiles.Identity) (int64, error) {
	key := x.Keys.Profile(id.Domain, id.Kind.String(), id.Text())
	reply, err := x.Redis.Run(ctx, key, "EXISTS", key)
	if err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	n, is := reply.(int64)
	if !is {
		return 0, errors.New("ask Redis: the reply must be a number")
	}
	return n, nil
}

// files is the archive.
func (x *Eraser) files(p *person) place {
	if x.Archive == nil {
		return place{
			name: "archive", hint: ", which may be of the person: set CONTROL_ARCHIVE and ask again",
			remove: func(context.Context) (int64, error) { return 0, nil },
			count: func(ctx context.Context) (n int64, err error) {
				err = x.Database.Tasks.QueryRow(ctx, `SELECT coalesce(sum(rows), 0)::bigint FROM archives`).Scan(&n)
				return n, err
			},
		}
	}
	return place{
		name:   "archive",
		remove: func(ctx context.Context) (int64, error) { return x.Archive.Erase(ctx, p.inArchive()) },
		count:  func(ctx context.Context) (int64, error) { return x.Archive.Count(ctx, p.inArchive()) },
	}
}
