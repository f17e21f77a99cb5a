package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// bound is a condition under which a replay fails.
type bound struct {
	text    string
	of      func(*replay.Report) int64
	above   float64
	percent bool
}

// bounded are what a condition may be about; all but refused are differences of two rule sets.
var bounded = map[string]func(*replay.Report) int64{
	"refused":        func(r *replay.Report) int64 { return r.Rules.Refused },
	"newly_refused":  func(r *replay.Report) int64 { return r.Changes.NewlyRefused },
	"newly_admitted": func(r *replay.Report) int64 { return r.Changes.NewlyAdmitted },
}

// parseBounds reads conditions such as refused>1%. Those about a difference need a second rule set.
func parseBounds(texts []string, compares bool) (all []bound, err error) {
	for _, text := range texts {
		name, number, found := strings.Cut(strings.ReplaceAll(text, " ", ""), ">")
		b := bound{text: text, of: bounded[name]}
		number, b.percent = strings.CutSuffix(number, "%")
		above, err := strconv.ParseFloat(number, 64)
		b.above = above
		switch {
		case !found || b.of == nil || err != nil || !(above >= 0):
			return nil, fmt.Errorf("--fail-if %q: write refused, newly_refused or newly_admitted, then > and a number "+
				"or a percentage, as in 'refused>1%%'", text)
		case name != "refused" && !compares:
			return nil, fmt.Errorf("--fail-if %q needs --against: it is about a difference", text)
		}
		all = append(all, b)
	}
	return all, nil
}

// judge is an error where one of the conditions holds, or the report cannot show that none does.
func judge(to io.Writer, bounds []bound, r *replay.Report) error {
	if exceeded(to, bounds, r) {
		return exit(exitFound)
	}
	if why := proofless(r); len(bounds) > 0 && why != "" {
		return errors.New("--fail-if shows nothing: " + why)
	}
	return nil
}

// proofless is why a report cannot show that conditions do not hold: fields that were named are in no line, or no
// rule applied to a request. It is empty where the report can.
func proofless(r *replay.Report) string {
	if len(r.Log.Missing) > 0 {
		return "no line has the field " + strings.Join(r.Log.Missing, ", ")
	}
	for _, side := range []*replay.SideReport{&r.Rules, r.Against} {
		if side != nil && side.Outcomes["no_limit"]+side.Outcomes["unknown_domain"] < r.Log.Requests {
			return ""
		}
	}
	text := "no rule applied to any request"
	for _, n := range r.Rules.Never[:min(len(r.Rules.Never), 1)] {
		text += fmt.Sprintf(": %s: %s", n.Rule, n.Why)
	}
	return text
}

// exceeded reports whether one of the conditions holds, and writes which.
func exceeded(to io.Writer, bounds []bound, r *replay.Report) (failed bool) {
	for _, b := range bounds {
		n := float64(b.of(r))
		if b.percent {
			n = 100 * n / max(float64(r.Log.Requests), 1)
		}
		if n > b.above {
			failed = true
			fmt.Fprintf(to, "spillway: --fail-if %s: it is %d of %d requests\n", b.text, b.of(r), r.Log.Requests)
		}
	}
	return failed
}
