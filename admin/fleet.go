package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-mesh/spillway/audit"
)

// FleetView is every sidecar that lives and shares the store.
type FleetView struct {
	Sidecars []SidecarView `json:"sidecars"`
	Agree    bool          `json:"rules_agree"` // all have the same rules
	Rules    []string      `json:"rules"`       // hashes of the rules in use
}

// SidecarView is one sidecar.
type SidecarView struct {
	ID       string    `json:"id"`
	Self     bool      `json:"self"` // it is the one that answers
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Rules    string    `json:"rules"` // hash of the rules in use; empty: none
	Domains  []string  `json:"domains"`
	Started  time.Time `json:"started"`
	Loaded   time.Time `json:"loaded,omitzero"` // when the rules came into use
	Degraded []string  `json:"degraded"`        // what does not work as it should
	XDS      *XDSState `json:"xds,omitempty"`   // none: its rules come from files alone
}

// fleet serves GET /v1/fleet.
func (a *API) fleet(c *call) (any, *Problem) {
	_, wrong := c.query()
	if wrong != nil {
		return nil, wrong
	}
	sidecars, err := a.Fleet(c.ctx)
	if err != nil {
		return nil, problem(http.StatusServiceUnavailable, "%v", err)
	}
	view := FleetView{Sidecars: sidecars, Rules: []string{}}
	for _, s := range sidecars {
		view.Rules = append(view.Rules, s.Rules)
	}
	slices.Sort(view.Rules)
	view.Rules = slices.Compact(view.Rules)
	view.Agree = len(view.Rules) < 2
	return view, nil
}

const (
	topDefault = 20
	topMost    = 1000
	topWithin  = 2 * time.Second // for the other sidecars to answer
)

// TopView is the keys that are asked for and refused most.
type TopView struct {
	Since    time.Time      `json:"since"`
	Every    int64          `json:"sampled_one_in"`
	Sidecars int            `json:"sidecars"` // whose sketches these are
	Missing  []string       `json:"missing"`  // sidecars that live and did not answer
	Asked    []audit.Ranked `json:"asked"`
	Refused  []audit.Ranked `json:"refused"`
}

// TopOfFleet is the rankings of all sidecars, and the names of those that did not answer.
type TopOfFleet func(ctx context.Context) (all []audit.Ranking, missing []string, err error)

// top serves GET /v1/top.
func (a *API) top(c *call) (any, *Problem) {
	asked, wrong := c.query("domain", "rule", "limit", "fleet")
	if wrong != nil {
		return nil, wrong
	}
	count, wrong := number(asked, "limit", topDefault, topMost)
	if wrong != nil {
		return nil, wrong
	}
	whole, wrong := flag(asked, "fleet")
	if wrong != nil {
		return nil, wrong
	}
	if a.Top == nil {
		return nil, problem(http.StatusNotFound, "ADMIN_TOP_KEYS is 0, so there is no sketch of the keys")
	}
	view := TopView{Sidecars: 1, Missing: []string{}}
	ranking := a.Top.Ranking()
	if whole {
		ctx, cancel := context.WithTimeout(c.ctx, topWithin)
		defer cancel()
		all, missing, err := a.TopOfFleet(ctx)
		if err != nil {
			return nil, problem(http.StatusServiceUnavailable, "%v", err)
		}
		ranking, view.Sidecars, view.Missing = audit.Merge(all), len(all), append(view.Missing, missing...)
	}
	view.Since, view.Every = ranking.Since, ranking.Every
	view.Asked = shown(ranking.Asked, asked, count)
	view.Refused = shown(ranking.Refused, asked, count)
	return view, nil
}

// shown is the first of a list that are of the domain and the rule that were asked for.
func shown(list []audit.Ranked, asked map[string]string, count int) []audit.Ranked {
	some := []audit.Ranked{}
	domain, byDomain := asked["domain"]
	rule, byRule := asked["rule"]
	for _, one := range list {
		if (!byDomain || one.Domain == domain) && (!byRule || one.Rule == rule) && len(some) < count {
			some = append(some, one)
		}
	}
	return some
}

// number reads a parameter that is a number from 1.
func number(asked map[string]string, name string, otherwise, most int) (int, *Problem) {
	text, given := asked[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, bad("%s %q must be a number from 1 to %d", name, text, most)
	}
	return n, nil
}

// flag reads a parameter that is true or false.
func flag(asked map[string]string, name string) (bool, *Problem) {
	switch text, given := asked[name]; {
	case !given || text == "false":
		return false, nil
	case text == "true":
		return true, nil
	default:
		return false, bad("%s %q must be true or false", name, text)
	}
}
