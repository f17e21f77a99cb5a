package rules

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Load reads, checks and compiles the files once.
func (f *Files) Load() Load {
	snap, err := f.snapshot(nil)
	if err != nil {
		return Load{Err: err}
	}
	return f.compile(snap.sources, nil)
}

// Read reads, checks and compiles several files and folders once, as one rule set. A file that two of them lead to is
// read once. It does not look at the paths of cfg.
func Read(cfg FilesConfig, paths ...string) Load {
	var all []source
	var unread []error
	for _, path := range paths {
		cfg.Path, cfg.RuntimeRoot = path, ""
		snap, err := NewFiles(cfg).snapshot(nil)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		for _, file := range snap.sources {
			if !slices.ContainsFunc(all, func(other source) bool { return other.real == file.real }) {
				all = append(all, file)
			}
		}
	}
	if len(unread) > 0 {
		return Load{Err: errors.Join(unread...)}
	}
	slices.SortStableFunc(all, func(a, b source) int { return cmp.Compare(a.path, b.path) })
	return NewFiles(cfg).compile(all, nil)
}

// Text lists what was found, one line each: what kept the rules from being read, then FormatProblems.
func (l Load) Text() string {
	text := FormatProblems(l.Problems)
	if l.Err == nil {
		return text
	}
	return l.Err.Error() + "\n" + text
}

// ParseDuration reads a duration as rule files write it. Zero is an error.
func ParseDuration(text string) (time.Duration, error) { return parseDuration(text) }

// Suggest returns what to do about an unknown word: the nearest one, else all of them.
func Suggest(word string, known []string) string { return suggest(word, known) }
