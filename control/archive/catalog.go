package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Days are the days of an archive that are asked for, and the regions. The zero value is all.
type Days struct {
	From, To time.Time // the first day, and the day after the last; zero: no bound
	Region   *string   // nil: all
}

// ParseDays reads a day such as 2026-05-03 or a month such as 2026-05.
func ParseDays(text string) (Days, error) {
	day, err := time.Parse(dayLayout, text)
	if err == nil {
		return Days{From: day, To: day.AddDate(0, 0, 1)}, nil
	}
	month, err := time.Parse(monthLayout, text)
	if err != nil {
		return Days{}, fmt.Errorf("%q must be a day such as 2026-05-03 or a month such as 2026-05", text)
	}
	return Days{From: month, To: month.AddDate(0, 1, 0)}, nil
}

// has reports whether a day is asked for.
func (d *Days) has(day time.Time) bool {
	return (d.To.IsZero() || day.Before(d.To)) && !day.Add(24*time.Hour-1).Before(d.From)
}

// List returns the manifests of all files that count, by path. Files that another one replaces are left out.
func List(ctx context.Context, s Reader, days Days) ([]Manifest, error) {
	names, err := listed(ctx, s, days)
	if err != nil {
		return nil, err
	}
	var all []Manifest
	replaced := map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, listEnding) {
			continue
		}
		m, err := readManifest(ctx, s, name)
		if errors.Is(err, ErrMissing) { // it was removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
		for _, old := range m.Replaces {
			replaced[old] = true
		}
	}
	return slices.DeleteFunc(all, func(m Manifest) bool { return replaced[m.Path] }), nil
}

// listed are the names of all files of some days.
func listed(ctx context.Context, s Reader, days Days) ([]string, error) {
	prefix := ""
	if days.Region != nil {
		prefix = regionPart(*days.Region) + "/"
	}
	names, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		day, known := dayOf(name)
		return !known || !days.has(day)
	}), nil
}

// dayOf is the day in the name of a file of the archive.
func dayOf(name string) (time.Time, bool) {
	ending := path.Ext(name)
	_, rest, found := strings.Cut(path.Dir(name), "/")
	if !found || !strings.HasPrefix(name, "region=") || !strings.HasPrefix(path.Base(name), filePrefix) ||
		ending != fileEnding && ending != listEnding {
		return time.Time{}, false
	}
	day, err := time.Parse(pathLayout, rest)
	return day, err == nil
}

// readManifest reads one manifest, and refuses one that describes another file than the one beside it.
func readManifest(ctx context.Context, s Reader, name string) (Manifest, error) {
	in, err := s.Open(ctx, name)
	if err != nil {
		return Manifest{}, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return Manifest{}, fmt.Errorf("read %s: %w", name, err)
	}
	var m Manifest
	err = json.Unmarshal(text, &m)
	switch {
	case err != nil:
		return m, &Mismatch{name, fmt.Sprintf("the manifest cannot be read: %v", err)}
	case m.Format != format:
		return m, &Mismatch{name, fmt.Sprintf("the manifest has the format %d, and this program knows %d", m.Format,
			format)}
	case listPath(m.Path) != name:
		return m, &Mismatch{name, fmt.Sprintf("the manifest describes %q", m.Path)}
	}
	return m, nil
}

// remove removes a file. The row of the database goes first and the manifest next: what is left without both does not
// count, and is swept away later.
func (a *Archiver) remove(ctx context.Context, file string) error {
	_, err := a.pool.Exec(ctx, `DELETE FROM archives WHERE path = $1`, file)
	if err != nil {
		return fmt.Errorf("remove %s: %w", file, err)
	}
	a.step("row removed")
	err = a.store.Remove(ctx, listPath(file))
	if err != nil {
		return err
	}
	a.step("manifest removed")
	err = a.store.Remove(ctx, file)
	a.step("file removed")
	return err
}

// sweep removes what crashes left: files that another one replaces, and those of which neither a manifest nor the
// database knows.
func (a *Archiver) sweep(ctx context.Context) error {
	names, err := listed(ctx, a.store, Days{})
	if err != nil {
		return err
	}
	byFolder := map[string][]string{}
	for _, name := range names {
		byFolder[path.Dir(name)] = append(byFolder[path.Dir(name)], name)
	}
	for _, here := range byFolder {
		if len(here) == 2 && listPath(here[1]) == here[0] { // one file and its manifest
			continue
		}
		err = a.sweepFolder(ctx, here)
		if err != nil {
			return fmt.Errorf("sweep the archive: %w", err)
		}
	}
	return nil
}

// sweepFolder is sweep for the files of a region and day. A file that replaces others is noted first.
func (a *Archiver) sweepFolder(ctx context.Context, names []string) error {
	described, replaced, err := a.described(ctx, names)
	if err != nil {
		return err
	}
	maps.DeleteFunc(described, func(file string, _ *Manifest) bool { return replaced[file] })
	known, err := a.noteMissing(ctx, names, described)
	if err != nil {
		return err
	}
	left := func(name string) bool { return described[name] == nil && (replaced[name] || !known[name]) }
	for _, name := range names {
		if !strings.HasSuffix(name, fileEnding) || !left(name) {
			continue
		}
		err = a.remove(ctx, name)
		if err != nil {
			return err
		}
		a.cfg.Log.Info("archive: removed what another run left", "path", name)
	}
	return nil
}

// described are the files that have a manifest, and replaced those that a manifest names as such.
func (a *Archiver) described(ctx context.Context, names []string) (described map[string]*Manifest,
	replaced map[string]bool, err error) {
	described, replaced = map[string]*Manifest{}, map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, listEnding) {
			continue
		}
		m, err := readManifest(ctx, a.store, name)
		if err != nil {
			return nil, nil, err
		}
		described[m.Path] = &m
		for _, old := range m.Replaces {
			replaced[old] = true
		}
	}
	return described, replaced, nil
}

// noteMissing notes those files that the database does not list, and returns which it listed.
func (a *Archiver) noteMissing(ctx context.Context, names []string, described map[string]*Manifest) (map[string]bool,
	error) {
	known, err := a.noted(ctx, names)
	for file, m := range described {
		if err == nil && !known[file] {
			err = a.note(ctx, m, "0", true)
		}
	}
	return known, err
}

// noted are those files that the database lists.
func (a *Archiver) noted(ctx context.Context, names []string) (map[string]bool, error) {
	rows, err := a.pool.Query(ctx, `SELECT path FROM archives WHERE path = ANY ($1)`, names)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		known[name] = true
		return nil
	})
	return known, err
}
