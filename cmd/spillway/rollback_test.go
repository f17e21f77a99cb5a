package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// TestWhatWasRolledBackFrom tells a roll back from a step forward by the publications of a domain, the oldest first:
// versions, 0 for none, c and a number for a canary.
func TestWhatWasRolledBackFrom(t *testing.T) {
	for history, want := range map[string]string{
		"":            "",
		"1":           "",
		"1 2":         "",
		"1 2 1":       "version 2",
		"1 2 2 1 1":   "version 2",
		"1 2 1 2":     "",
		"1 2 1 2 1":   "version 2",
		"2 1":         "", // a draft that is older
		"2 1 2":       "version 1",
		"1 2 3 1":     "version 3",
		"1 2 3 2 4":   "",
		"1 2 c3":      "",
		"1 2 c3 c3 2": "version 3",
		"1 2 c1 2":    "version 1",
		"1 2 c1 1":    "",
		"1 2 c1 1 2":  "version 1",
		"1 2 c3 3":    "",
		"1 2 0":       "",
		"1 2 0 2":     "unpublish",
		"1 2 0 3":     "",
	} {
		var newestFirst []object
		for _, one := range strings.Fields(history) {
			version, canary := one, "0"
			if digits, is := strings.CutPrefix(one, "c"); is {
				version, canary = text(newestFirst[0], "version"), digits
			}
			p := object{"version": json.Number(version), "canary": json.Number(canary)}
			newestFirst = append([]object{p}, newestFirst...)
		}
		if got := rolledBack(newestFirst); got != want {
			t.Errorf("after %s %s was rolled back from, want %s", history, strconv.Quote(got), strconv.Quote(want))
		}
	}
}
