package api

import (
	"context"
	"math"
	"net/http"
	"slices"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

// diff serves GET …/diff: what a change between two versions means.
func (a *API) diff(c *call) (any, error) {
	asked, err := c.query("from", "to")
	if err != nil {
		return nil, err
	}
	var versions [2]*database.VersionText
	for i, name := range []string{"from", "to"} {
		n, err := number(asked, name, 0, math.MaxInt64)
		if err == nil && n == 0 {
			err = admin.NewProblem(http.StatusBadRequest, "%s is missing: give the number of a version", name)
		}
		if err == nil {
			versions[i], err = a.Database.VersionOf(c.ctx, c.domain(), n)
		}
		if err != nil {
			return nil, err
		}
	}
	return a.compare(c.ctx, versions)
}

// compare compares two versions, one comparison at a time: large ones take seconds of a processor, and much memory.
func (a *API) compare(ctx context.Context, versions [2]*database.VersionText) (*rulediff.Diff, error) {
	select {
	case a.comparing <- struct{}{}:
		defer func() { <-a.comparing }()
	case <-ctx.Done():
		return nil, tooMuch()
	}
	var loads [2]rules.Load
	for i, v := range versions {
		if ctx.Err() != nil {
			return nil, tooMuch()
		}
		document := rules.Document{Domain: v.Domain, Version: v.Version.Version, Hash: v.Hash, Text: v.Text}
		loads[i] = rules.CheckPublished(rules.FilesConfig{}, document)
		if loads[i].Rejected() {
			warns := func(p descriptors.Problem) bool { return p.Warning }
			return nil, &database.Refused{slices.DeleteFunc(loads[i].Problems, warns)}
		}
	}
	d, err := rulediff.Compare(ctx, loads[0], loads[1])
	if err != nil {
		return nil, tooMuch()
	}
	return d, nil
}

// tooMuch is the problem of a comparison that has not ended in time.
func tooMuch() error {
	return admin.NewProblem(http.StatusServiceUnavailable,
		"the comparison needs more than %v: try again, or compare the files with spillway diff", AnswerWithin)
}
