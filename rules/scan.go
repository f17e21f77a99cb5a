package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFiles   = 10_000 // rule files of one load
	maxFolders = 32     // folders within each other
	maxTries   = 10     // readings until files stop changing meanwhile
)

// errUnsettled says that the files changed each time they were read.
var errUnsettled = errors.New("rules: the files keep changing while they are read")

// source is one file as it was read.
type source struct {
	path string // as the user would call it
	real string // where it is, all links followed
	text []byte
	err  error // it could not be read
}

// snapshot is all files as they were at one moment.
type snapshot struct{ sources []source }

type digest [sha256.Size]byte

// digest tells snapshots apart by what they hold and by why they could not be read.
func (s snapshot) digest(err error) digest {
	hash := sha256.New()
	add := func(text []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		hash.Write(size[:])
		hash.Write(text)
	}
	for _, file := range s.sources {
		add([]byte(file.path))
		add(file.text)
		add(fmt.Append(nil, file.err))
	}
	add(fmt.Append(nil, err))
	return digest(hash.Sum(nil))
}

// snapshot lists and reads the files. A folder may be swapped for another while it is read; then what was read is a mix
// of the two, and it is read again. The notifier, when there is one, is told what to watch before anything is read, so
// that no change goes unseen.
func (f *Files) snapshot(n *notifier) (snapshot, error) {
	for range maxTries {
		before, err := f.list()
		n.follow(before.places)
		if err != nil {
			return snapshot{}, err
		}
		for i := range before.sources {
			read(&before.sources[i])
		}
		after, err := f.list()
		if err == nil && before.equal(after) {
			return snapshot{before.sources}, nil
		}
	}
	return snapshot{}, errUnsettled
}

// listing is which files there are, and which places decide about that.
type listing struct {
	sources []source
	places  places
}

func (l listing) equal(other listing) bool {
	return slices.EqualFunc(l.sources, other.sources, func(a, b source) bool { return a.path == b.path && a.real == b.real })
}

// list finds the files, sorted by name.
func (f *Files) list() (listing, error) {
	root := f.root()
	l := listing{places: places{}}
	l.places.reach(root)
	info, err := os.Stat(root)
	if err != nil {
		return l, fmt.Errorf("rules: %w", err)
	}
	seen := map[string]bool{}
	switch {
	case !info.IsDir():
		err = l.add(root, info, seen)
	case f.cfg.Path != "":
		err = l.folder(root, seen, false, func(name string) bool {
			return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
		}, 1)
	default:
		err = l.folder(root, seen, true, func(name string) bool {
			return !strings.HasPrefix(name, "..") && !(f.cfg.IgnoreDotFiles && strings.HasPrefix(name, "."))
		}, 1)
	}
	if err != nil {
		return l, err
	}
	if len(l.sources) == 0 {
		return l, fmt.Errorf("rules: there is no rule file in %s", root)
	}
	return l, nil
}

// folder adds the files of a folder whose names are wanted. Links are followed, and what two of them lead to is read
// once: Kubernetes shows each file of a ConfigMap both in ..data and beside it.
func (l *listing) folder(path string, seen map[string]bool, deep bool, wanted func(string) bool, depth int) error {
	if depth > maxFolders {
		return fmt.Errorf("rules: %s is more than %d folders deep", path, maxFolders)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if seen[real] {
		return nil
	}
	seen[real] = true
	l.places.inside(real)
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	for _, entry := range entries {
		if !wanted(entry.Name()) {
			continue
		}
		child := filepath.Join(path, entry.Name())
		if entry.Type()&fs.ModeSymlink != 0 {
			l.places.reach(child)
		}
		info, err := os.Stat(child)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // gone again, or a link that Kubernetes is about to remove
		case err == nil && info.IsDir() && deep:
			err = l.folder(child, seen, deep, wanted, depth+1)
		case err == nil && !info.IsDir():
			err = l.add(child, info, seen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a file, unless it is none that can be read to its end, such as a pipe.
func (l *listing) add(path string, info fs.FileInfo, seen map[string]bool) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	if len(l.sources) == maxFiles {
		return fmt.Errorf("rules: there are more than %d files beside %s; name a folder that holds rule files only", maxFiles, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || seen[real] {
		return nil // gone again, which the second listing shows
	}
	seen[real] = true
	l.sources = append(l.sources, source{path: path, real: real})
	return nil
}

// read fills in the text of a file, or why it cannot be read. It reads one byte more than a rule file may have, for the
// decoder to refuse.
func read(file *source) {
	opened, err := os.Open(file.real)
	if err != nil {
		file.err = err
		return
	}
	defer opened.Close()
	file.text, file.err = io.ReadAll(io.LimitReader(opened, maxFileSize+1))
}
