package archive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Person is what events of one person look like: those of a domain with one of the identities, addresses or prefixes of
// API keys.
type Person struct {
	Domain     string
	Identities []string
	IPs        []string
	APIKeys    []string
}

// has reports whether an event is one of the person's.
func (p *Person) has(r *Row) bool {
	return r.Domain == p.Domain && (slices.Contains(p.Identities, r.Identity) ||
		slices.Contains(p.Identities, r.Tenant) || slices.Contains(p.IPs, r.IP) || slices.Contains(p.APIKeys, r.APIKey))
}

// may reports whether a row group may have events of the person.
func (p *Person) may(g parquet.RowGroup) bool {
	return mayHave(g, "identity", p.Identities) || mayHave(g, "tenant", p.Identities) || mayHave(g, "ip", p.IPs) ||
		mayHave(g, "api_key", p.APIKeys)
}

// Count returns how many events of a person the archive has.
func (a *Archiver) Count(ctx context.Context, p Person) (rows int64, err error) {
	err = a.everyFile(ctx, func(m *Manifest) error {
		n, err := a.countIn(ctx, m, &p)
		rows += n
		return err
	})
	return rows, err
}

// everyFile calls f with each file that counts. A file without a manifest, which only a hand can have removed, is an
// error: its rows would be passed over.
func (a *Archiver) everyFile(ctx context.Context, f func(*Manifest) error) error {
	names, err := listed(ctx, a.store, Days{})
	if err != nil {
		return err
	}
	for _, name := range names {
		_, described := slices.BinarySearch(names, listPath(name))
		if strings.HasSuffix(name, fileEnding) && !described {
			return fmt.Errorf("%s must have a manifest: bring it back, or remove the file", name)
		}
	}
	return walk(ctx, a.store, Days{}, func(Progress) {}, f)
}

func (a *Archiver) countIn(ctx context.Context, m *Manifest, p *Person) (rows int64, err error) {
	_, err = each(ctx, a.store, m.Path, p.may, func(r *Row) error {
		if p.has(r) {
			rows++
		}
		return nil
	})
	return rows, err
}

// Erase removes the events of a person from the archive, and returns how many there were. Each file that has one is
// written anew, read back and compared, and then takes the place of the old one. Call it within Alone.
func (a *Archiver) Erase(ctx context.Context, p Person) (rows int64, err error) {
	err = a.sweep(ctx)
	if err != nil {
		return 0, err
	}
	err = a.everyFile(ctx, func(m *Manifest) error {
		n, err := a.countIn(ctx, m, &p)
		if err != nil || n == 0 {
			return err
		}
		rows += n
		return a.rewrite(ctx, m, &p)
	})
	return rows, err
}

// rewrite writes a file without the events of a person. A file without other events is removed.
func (a *Archiver) rewrite(ctx context.Context, m *Manifest, p *Person) error {
	err := check(ctx, a.store, m) // so that a damaged file does not become a good one
	if err != nil {
		return err
	}
	day, err := time.Parse(dayLayout, m.Day)
	if err != nil {
		return &Mismatch{m.Path, "the manifest names no day"}
	}
	d, err := newDraft()
	if err != nil {
		return err
	}
	defer d.close()
	_, err = each(ctx, a.store, m.Path, nil, func(r *Row) error {
		if p.has(r) {
			return nil
		}
		return d.write(r)
	})
	if err == nil {
		err = d.finish()
	}
	if err == nil && d.tally.rows > 0 {
		err = a.replace(ctx, m, d, day)
	}
	if err != nil {
		return err
	}
	return a.remove(ctx, m.Path)
}

// replace keeps a file in the place of another one.
func (a *Archiver) replace(ctx context.Context, old *Manifest, d *draft, day time.Time) error {
	digest, sealed := "0", true
	err := a.pool.QueryRow(ctx,
		`SELECT digest::text, sealed FROM archives WHERE path = $1 UNION ALL SELECT '0', true LIMIT
		  1`, old.Path).Scan(&digest, &sealed)
	if err != nil {
		return fmt.Errorf("ask the database about %s: %w", old.Path, err)
	}
	fresh, err := a.keep(ctx, d, day, old.Region, old.Source, []string{old.Path})
	if err != nil {
		return err
	}
	return a.note(ctx, &fresh, digest, sealed)
}
