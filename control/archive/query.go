package archive

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/spillway-mesh/spillway/keys"
)

// Filter is which events are asked for. The zero value is all.
type Filter struct {
	Domain     string    // empty: all
	Identities []string  // any of these, also as the tenant of another; none: all
	Rule       string    // empty: all
	Outcome    string    // empty: all
	From, To   time.Time // from the one on, and before the other; zero: no bound
	Region     *string   // nil: all
}

// NamesOf returns how events may name an identity: as it is, and with the secret that sidecars have, if any.
func NamesOf(kind, value string, secret []byte) []string {
	return []string{kind + ":" + value, keys.NewNames("", secret).Identity(kind, value)}
}

// Progress is how far a walk through files has come.
type Progress struct {
	Rows, Of int64 // in the files that are done, and in all
}

// has reports whether an event is asked for.
func (f *Filter) has(r *Row) bool {
	switch {
	case f.Domain != "" && r.Domain != f.Domain, f.Rule != "" && r.Rule != f.Rule, f.Outcome != "" &&
		r.Outcome != f.Outcome,
		!f.From.IsZero() && r.At < f.From.UnixMicro(), !f.To.IsZero() && r.At >= f.To.UnixMicro():
		return false
	}
	return len(f.Identities) == 0 || slices.Contains(f.Identities, r.Identity) ||
		slices.Contains(f.Identities, r.Tenant)
}

// Query calls f with each event that is asked for, file by file in the order of their paths. A row is valid until f
// returns. An error of f ends it.
func Query(ctx context.Context, s Reader, ask Filter, f func(*Row) error, progress func(Progress)) error {
	return walk(ctx, s, Days{From: ask.From, To: ask.To, Region: ask.Region}, progress, func(m *Manifest) error {
		may := func(g parquet.RowGroup) bool {
			return len(ask.Identities) == 0 || mayHave(g, "identity", ask.Identities) ||
				mayHave(g, "tenant", ask.Identities)
		}
		_, err := each(ctx, s, m.Path, may, func(r *Row) error {
			if !ask.has(r) {
				return nil
			}
			return f(r)
		})
		return err
	})
}

// walk calls f with each file of some days.
func walk(ctx context.Context, s Reader, days Days, progress func(Progress), f func(m *Manifest) error) error {
	all, err := List(ctx, s, days)
	if err != nil {
		return err
	}
	var p Progress
	for i := range all {
		p.Of += all[i].Rows
	}
	for i := range all {
		progress(p)
		err = f(&all[i])
		if err != nil {
			return err
		}
		p.Rows += all[i].Rows
	}
	progress(p)
	return nil
}

// mayHave reports whether a column of a row group may have one of some values. It is false only where the column's
// filter proves it.
func mayHave(g parquet.RowGroup, column string, values []string) bool {
	leaf, known := g.Schema().Lookup(column)
	if !known {
		return true
	}
	filter := g.ColumnChunks()[leaf.ColumnIndex].BloomFilter()
	if filter == nil {
		return true
	}
	return slices.ContainsFunc(values, func(value string) bool {
		may, err := filter.Check(parquet.ValueOf(value))
		return may || err != nil
	})
}

// Verdict is what Verify found out about a file.
type Verdict struct {
	Manifest
	Problem string `json:"problem"` // empty: the file is as it was written
}

// Verify reads all files of some days, and calls f with what it found out about each. It returns how many are not as
// they were written.
func Verify(ctx context.Context, s Reader, days Days, progress func(Progress), f func(Verdict) error) (wrong int,
	err error) {
	err = walk(ctx, s, days, progress, func(m *Manifest) error {
		v := Verdict{Manifest: *m}
		err := check(ctx, s, m)
		var differs *Mismatch
		switch {
		case errors.As(err, &differs):
			v.Problem, wrong = differs.Why, wrong+1
		case errors.Is(err, ErrMissing):
			v.Problem, wrong = "it is missing", wrong+1
		case err != nil:
			return err
		}
		return f(v)
	})
	return wrong, err
}
