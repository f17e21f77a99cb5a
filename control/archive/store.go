package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reader reads files of an archive. Names have slashes in every store.
type Reader interface {
	// Open opens a file. The error is ErrMissing where it does not exist.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the names of all files that begin with a text, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Store keeps files. A file is there whole or not at all, also after a crash.
type Store interface {
	Reader
	// Put keeps a file, in the place of one of that name.
	Put(ctx context.Context, name string, file *os.File) error
	// Remove removes a file. A file that does not exist is not an error.
	Remove(ctx context.Context, name string) error
}

// ErrMissing means that a file does not exist.
var ErrMissing = errors.New("the file is not in the archive")

// Place is where an archive is, and how to open it. The zero value of all fields but At works.
type Place struct {
	At        string // a folder, or s3://bucket/prefix
	Endpoint  string // URL of the S3-compatible service; empty: that of AWS
	Region    string // of the bucket; empty: us-east-1
	AccessKey string // empty: as the tools of AWS find it: their variables, their file, the role of the machine
	SecretKey string
}

// OpenStore opens an archive. It does not wait for a service to be there.
func OpenStore(p Place) (Store, error) {
	rest, far := strings.CutPrefix(p.At, "s3://")
	if far {
		return openBucket(p, rest)
	}
	if p.At == "" || strings.Contains(p.At, "://") {
		return nil, fmt.Errorf("the archive %q must be a folder or s3://bucket/prefix", p.At)
	}
	return folder(p.At), nil
}

// folder is a store in a folder, which is made when the first file is kept.
type folder string

const halfEnding = ".part" // of files that are not whole

func (f folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// Open opens a file.
func (f folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := os.Open(f.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, name)
	}
	return file, err
}

// Put writes a file beside its place, waits until the disk has it, and moves it there. What a full disk had room for is
// removed.
func (f folder) Put(_ context.Context, name string, file *os.File) error {
	path := f.path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o750)
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	err = copyTo(path+halfEnding, file)
	if err == nil {
		err = os.Rename(path+halfEnding, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		_ = os.Remove(path + halfEnding) // a file that is moved has that name no longer
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

// copyTo writes a whole file, and waits until the disk has it.
func copyTo(path string, file *os.File) error {
	_, err := file.Seek(0, io.SeekStart)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return errors.Join(err, out.Sync(), out.Close())
}

// syncFolder waits until the disk has the names in a folder.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// List walks through the folder.
func (f folder) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(string(f), func(path string, entry os.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() || strings.HasSuffix(path, halfEnding):
			return ctx.Err()
		}
		name, err := filepath.Rel(string(f), path)
		name = filepath.ToSlash(name)
		if err == nil && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the archive: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Remove removes a file, and what is left of a write that was cut off.
func (f folder) Remove(_ context.Context, name string) error {
	for _, path := range []string{f.path(name), f.path(name) + halfEnding} {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// noRegion is the part of a path for events without a region, as other programs write a missing value.
const noRegion = "__HIVE_DEFAULT_PARTITION__"

// regionPart is a region as one part of a path.
func regionPart(region string) string {
	if region == "" {
		region = noRegion
	}
	return "region=" + url.PathEscape(region)
}
