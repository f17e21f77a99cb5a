package replay

import (
	"slices"
	"strings"
)

// format is how a line is written.
type format uint8

const (
	formatJSON format = iota
	formatEnvoy
	formatIstio
	formatCombined
	formatCount
)

var formatNames = [formatCount]string{"JSON", "Envoy's text", "Istio's text", "combined or common (nginx, Apache)"}

// counts are lines by their format.
type counts [formatCount]int64

func (c *counts) total() (n int64) {
	for _, one := range c {
		n += one
	}
	return n
}

const (
	learnedLines = 1000 // that names of fields are learned from
	learnedNames = 200  // at most
)

// learned is what lines showed so far about what they hold.
type learned struct {
	looked   [slotExtra][]string // fields that a slot's value is looked for in
	used     [slotExtra]uint32   // by slot: ranks of the fields that held a value, each by its bit; bit 0: none did
	formats  counts
	learning bool            // names of fields are noted
	names    map[string]bool // of the first lines
}

func newLearned() learned { return learned{learning: true, names: map[string]bool{}} }

// learn notes the name of a field.
func (l *learned) learn(field string) {
	if len(l.names) < learnedNames && !l.names[field] {
		l.names[strings.Clone(field)] = true
	}
}

// readAs are the formats that lines had, the most frequent first.
func (l *learned) readAs() (names []string) {
	most := []format{formatJSON, formatEnvoy, formatIstio, formatCombined}
	slices.SortStableFunc(most, func(a, b format) int { return int(l.formats[b] - l.formats[a]) })
	for _, f := range most {
		if l.formats[f] > 0 {
			names = append(names, formatNames[f])
		}
	}
	return names
}

// takenFrom is what was read from which fields, those that were guessed and those that were named.
func (l *learned) takenFrom() (pairs []FieldReport) {
	for _, u := range usual {
		for rank, field := range l.looked[u.slot] {
			if l.used[u.slot]&(2<<rank) != 0 {
				pairs = append(pairs, FieldReport{Is: u.name, Field: field})
			}
		}
	}
	return pairs
}

// like returns the fields of the log that may hold what the words say, sorted.
func (l *learned) like(words ...string) (fields []string) {
	for name := range l.names {
		lower := strings.ToLower(name)
		parts := strings.FieldsFunc(lower, func(r rune) bool { return r < 'a' || r > 'z' })
		if slices.Contains(parts, "agent") {
			continue
		}
		if slices.ContainsFunc(words, func(word string) bool {
			return slices.Contains(parts, word) || len(word) > 3 && strings.Contains(lower, word)
		}) {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return fields
}
