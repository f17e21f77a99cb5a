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

// errUnsettled: the files changed each time they were read.
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

// digest differs for snapshots that hold something else, or could not be read for another reason.
func (s snapshot) digest(err error, p *published) digest {
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
	p.addTo(add)
	return digest(hash.Sum(nil))
}

// snapshot lists and reads the files. A folder may be swapped for another while it is read; then what was read is a mix
// of the two, or some or all files are missing for a moment, and it is read again. So what is wrong with the files is
// believed when it is found twice in a row, at the same places: after a swap a link leads to another place. The
// notifier, when there is one, learns what to watch before anything is read, so that no change goes unseen.
func (f *Files) snapshot(n *notifier) (snapshot, error) {
	for range maxTries {
		before, err := f.list()
		n.follow(before.places)
		if err == nil {
			before.readAll()
		}
		after, again := f.list()
		switch {
		case err != nil && again != nil && err.Error() == again.Error() && before.misses(after):
			return snapshot{}, err
		case err == nil && again == nil && before.equal(after):
			return snapshot{before.sources}, nil
		}
	}
	return snapshot{}, errUnsettled
}

// listing is which files there are, and which places decide about that.
type listing struct {
	sources []source
	places  places
	gone    []string               // where paths lead at which nothing was found
	swapped bool                   // at one of them something was found a moment later
	seen    map[string]bool        // files and folders already taken, by where they are
	deep    bool                   // folders within the folder count too
	wanted  func(name string) bool //
}

func (l listing) equal(other listing) bool {
	return slices.EqualFunc(l.sources, other.sources, func(a, b source) bool {
		return a.path == b.path && a.real == b.real
	})
}

// misses reports whether two listings found nothing at the same places.
func (l listing) misses(other listing) bool {
	return !l.swapped && !other.swapped && slices.Equal(l.gone, other.gone)
}

// readAll reads all files.
func (l listing) readAll() {
	for i := range l.sources {
		read(&l.sources[i])
	}
}

// list finds the files, sorted by name.
func (f *Files) list() (listing, error) {
	root := f.root()
	l := listing{places: places{}, seen: map[string]bool{}, wanted: ruleFile}
	if f.cfg.Path == "" {
		l.deep = true
		l.wanted = func(name string) bool {
			return !strings.HasPrefix(name, "..") && !(f.cfg.IgnoreDotFiles && strings.HasPrefix(name, "."))
		}
	}
	if root == "" {
		return l, nil // the rules are published: files are not needed
	}
	l.places.reach(root)
	info, err := os.Stat(root)
	if err != nil {
		l.missing(root)
		return l, fmt.Errorf("rules: %w", err)
	}
	if info.IsDir() {
		err = l.folder(root, 1)
	} else {
		err = l.addFile(root, info)
	}
	if err == nil && len(l.sources) == 0 {
		err = fmt.Errorf("rules: %s must hold a rule file", root)
	}
	return l, err
}

// ruleFile reports whether a file in a folder of rules is one of them by its name.
func ruleFile(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

// folder adds the files of a folder whose names are wanted. Links are followed, and what two of them lead to is read
// once: Kubernetes shows each file of a ConfigMap both in ..data and beside it.
func (l *listing) folder(path string, depth int) error {
	if depth > maxFolders {
		return fmt.Errorf("rules: %s is more than %d folders deep", path, maxFolders)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if l.seen[real] {
		return nil
	}
	l.seen[real] = true
	l.places.inside(real)
	entries, err := os.ReadDir(real)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	for _, entry := range entries {
		if !l.wanted(entry.Name()) {
			continue
		}
		err = l.entry(filepath.Join(path, entry.Name()), entry, depth)
		if err != nil {
			return err
		}
	}
	return nil
}

// entry adds what one name in a folder leads to.
func (l *listing) entry(path string, entry fs.DirEntry, depth int) error {
	if entry.Type()&fs.ModeSymlink != 0 {
		l.places.reach(path)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(path) // the folder that the link led to may have been swapped for another meanwhile
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.missing(path)
		return nil // gone again, or a link that Kubernetes is about to remove
	case err != nil:
		return fmt.Errorf("rules: %w", err)
	case !info.IsDir():
		return l.addFile(path, info)
	case l.deep:
		return l.folder(path, depth+1)
	}
	return nil
}

// missing notes where a path leads at which nothing was found.
func (l *listing) missing(path string) {
	_, err := filepath.EvalSymlinks(path)
	if err == nil {
		l.swapped = true
		return
	}
	l.gone = append(l.gone, err.Error())
}

// addFile adds a file, unless it cannot be read to its end, as a pipe.
func (l *listing) addFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	if len(l.sources) == maxFiles {
		return fmt.Errorf("rules: there are more than %d files beside %s; name a folder that holds rule files only",
			maxFiles, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		l.gone = append(l.gone, err.Error()) // gone again, which the second listing shows
		return nil
	}
	if l.seen[real] {
		return nil
	}
	l.seen[real] = true
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
