package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

const (
	format       = 1       // of manifests
	groupRows    = 100_000 // of one row group, which a writer holds in memory
	readRows     = 1024    // rows that are decoded together
	bloomBits    = 10      // per value: one of a hundred files without an identity is read for it
	idLength     = 16      // hex digits of the checksum in the name of a file
	maxManifest  = 1 << 20 // bytes
	fileEnding   = ".parquet"
	listEnding   = ".json"
	dayLayout    = "2006-01-02"
	monthLayout  = "2006-01"
	pathLayout   = "year=2006/month=01/day=02"
	filePrefix   = "events-"
	writerOfFile = "spillway"
)

// Manifest describes one file of the archive, and is kept next to it. A file without one is not whole and does not
// count.
type Manifest struct {
	Format    int       `json:"format"`
	Path      string    `json:"path"` // of the file
	Region    string    `json:"region"`
	Day       string    `json:"day"` // in UTC
	Rows      int64     `json:"rows"`
	Bytes     int64     `json:"bytes"`
	Checksum  string    `json:"checksum"` // SHA-256 of the rows as they were read back
	Columns   []string  `json:"columns"`
	Source    string    `json:"source"`   // the partition that it was made of, and its number in the database
	Replaces  []string  `json:"replaces"` // files that do not count any more
	WrittenAt time.Time `json:"written_at"`
}

// listPath is where the manifest of a file is.
func listPath(file string) string { return strings.TrimSuffix(file, fileEnding) + listEnding }

// draft is a file that is being written, in a temporary file without a name, so that a crash leaves nothing.
type draft struct {
	file  *os.File
	out   *parquet.GenericWriter[Row]
	tally *tally
	rows  []Row
}

// scratch makes a temporary file without a name.
func scratch() (*os.File, error) {
	file, err := os.CreateTemp("", "spillway-archive-")
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	return file, os.Remove(file.Name())
}

func newDraft() (*draft, error) {
	file, err := scratch()
	if err != nil {
		return nil, err
	}
	out := parquet.NewGenericWriter[Row](file, parquet.Compression(&parquet.Snappy),
		parquet.MaxRowsPerRowGroup(groupRows), parquet.CreatedBy(writerOfFile, "", ""),
		parquet.BloomFilters(parquet.SplitBlockFilter(bloomBits, "identity"),
			parquet.SplitBlockFilter(bloomBits, "tenant"), parquet.SplitBlockFilter(bloomBits, "ip"),
			parquet.SplitBlockFilter(bloomBits, "api_key")))
	return &draft{file: file, out: out, tally: newTally(), rows: make([]Row, 0, readRows)}, nil
}

// write appends a row.
func (d *draft) write(r *Row) error {
	d.tally.include(r)
	d.rows = append(d.rows, *r)
	if len(d.rows) < cap(d.rows) {
		return nil
	}
	return d.flush()
}

func (d *draft) flush() error {
	_, err := d.out.Write(d.rows)
	d.rows = d.rows[:0]
	return err
}

// finish completes the file.
func (d *draft) finish() error {
	err := errors.Join(d.flush(), d.out.Close())
	if err != nil {
		return fmt.Errorf("write a file of the archive: %w", err)
	}
	return nil
}

// close gives the temporary file back.
func (d *draft) close() { _ = d.file.Close() }

// keep puts a finished draft into the store, reads it back and compares, and puts the manifest beside it. The name of
// the file comes from its rows: keeping the same rows again changes nothing.
func (a *Archiver) keep(ctx context.Context, d *draft, day time.Time, region, source string,
	replaces []string) (Manifest, error) {
	sum := d.tally.checksum()
	m := Manifest{
		Format: format, Region: region, Day: day.Format(dayLayout), Rows: d.tally.rows, Checksum: sum,
		Columns: columns, Source: source, Replaces: append([]string{}, replaces...), WrittenAt: time.Now().UTC(),
		Path: path.Join(regionPart(region), day.Format(pathLayout), filePrefix+sum[:idLength]+fileEnding),
	}
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return m, err
	}
	m.Bytes = size
	err = a.store.Put(ctx, m.Path, d.file)
	if err != nil {
		return m, err
	}
	a.step("file stored")
	err = check(ctx, a.store, &m)
	if err != nil {
		return m, err
	}
	a.step("file read back")
	text, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = putText(ctx, a.store, listPath(m.Path), text)
	}
	a.step("manifest stored")
	return m, err
}

// putText keeps a small file.
func putText(ctx context.Context, s Store, name string, text []byte) error {
	file, err := scratch()
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(text)
	if err != nil {
		return err
	}
	return s.Put(ctx, name, file)
}

// Mismatch is the error of a file whose rows are not those of its manifest.
type Mismatch struct{ Path, Why string }

// Error names the file that differs, and how it does.
func (m *Mismatch) Error() string { return m.Path + ": " + m.Why }

// check reads the rows of a file from the store, and compares them with the manifest.
func check(ctx context.Context, s Reader, m *Manifest) error {
	t := newTally()
	size, err := each(ctx, s, m.Path, nil, func(r *Row) error {
		t.include(r)
		return nil
	})
	switch {
	case err != nil:
		return err
	case size != m.Bytes:
		return &Mismatch{m.Path, fmt.Sprintf("it has %d bytes, and %d were written", size, m.Bytes)}
	case t.rows != m.Rows:
		return &Mismatch{m.Path, fmt.Sprintf("it has %d rows, and %d were written", t.rows, m.Rows)}
	case t.checksum() != m.Checksum:
		return &Mismatch{m.Path, "the checksum of its rows is not that of the rows that were written"}
	}
	return nil
}

// each calls f with all rows of a file, in their order, and returns its size in bytes. It leaves out row groups that
// cannot have what is looked for; nil: none. A row is valid until f returns.
func each(ctx context.Context, s Reader, name string, may func(parquet.RowGroup) bool, f func(*Row) error) (size int64,
	err error) {
	file, size, err := local(ctx, s, name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	defer func() {
		if broken := recover(); broken != nil { // the decoder panics on some damaged files
			err = &Mismatch{name, fmt.Sprintf("it cannot be decoded: %v", broken)}
		}
	}()
	decoded, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true))
	if err != nil {
		return size, &Mismatch{name, fmt.Sprintf("it cannot be decoded: %v", err)}
	}
	for _, group := range decoded.RowGroups() {
		if may != nil && !may(group) {
			continue
		}
		err = eachOf(ctx, name, group, f)
		if err != nil {
			return size, err
		}
	}
	return size, nil
}

// eachOf is each for one row group.
func eachOf(ctx context.Context, name string, group parquet.RowGroup, f func(*Row) error) error {
	in := parquet.NewGenericRowGroupReader[Row](group)
	defer in.Close() //nolint:errcheck // it was only read
	rows := make([]Row, readRows)
	for ctx.Err() == nil {
		n, err := in.Read(rows)
		for i := range n {
			wrong := f(&rows[i])
			if wrong != nil {
				return wrong
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &Mismatch{name, fmt.Sprintf("it cannot be decoded: %v", err)}
		}
	}
	return ctx.Err()
}

// local is a file of the store as one of this machine: its own, or a copy without a name.
func local(ctx context.Context, s Reader, name string) (*os.File, int64, error) {
	in, err := s.Open(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	file, here := in.(*os.File)
	if here {
		info, err := file.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, file.Close())
		}
		return file, info.Size(), nil
	}
	defer in.Close()
	file, err = scratch()
	if err != nil {
		return nil, 0, err
	}
	size, err := io.Copy(file, in)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("read %s: %w", name, err), file.Close())
	}
	return file, size, nil
}
