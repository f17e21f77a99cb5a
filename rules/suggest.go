package rules

import (
	"slices"
	"strings"
)

// suggest tells what to do about a word that is none of the known ones: the nearest one, else all of them.
func suggest(word string, known []string) string {
	near, best := "", 0
	for _, k := range known {
		distance := distance(normal(word), normal(k))
		if distance > tolerance(word) {
			continue
		}
		if near == "" || distance < best {
			near, best = k, distance
		}
	}
	if near != "" {
		return "did you mean " + quote(near) + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// normal makes words comparable that differ in case or in how they are joined.
func normal(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "-", "_")
}

// tolerance is how many slips of the finger a word may hold: a third of its letters, from one to five.
func tolerance(word string) int {
	return min(max(1, len(word)/3), 5)
}

// distance counts the letters to insert, remove, replace or swap with their neighbour that turn a into b.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var before, above, row [longest + 1]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}

// quote puts a word from the rule file's vocabulary in quotes.
func quote(word string) string { return `"` + word + `"` }

// sorted returns the keys of a table in order, for messages.
func sorted[V any](table map[string]V) []string {
	keys := make([]string, 0, len(table))
	for k := range table {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
