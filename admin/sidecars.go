package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
)

// SidecarList is every sidecar that shares the store.
type SidecarList struct {
	Sidecars []SidecarView `json:"sidecars"`
	Agree    bool          `json:"rules_agree"` // all have the same rules, but for canaries that are meant
	Rules    []string      `json:"rules"`       // the hashes of the rules in use
	// what is not known because the store does not answer, and why
	Unknown string `json:"unknown,omitempty"`
}

// SidecarView is a sidecar that lives.
type SidecarView struct {
	ID       string    `json:"id"`
	Self     bool      `json:"self"` // it is the one that answers
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Rules    string    `json:"rules"` // the hash of its rules; empty: it has none
	Domains  []string  `json:"domains"`
	Started  time.Time `json:"started"`
	Loaded   time.Time `json:"loaded,omitzero"` // when its rules came into use
	Degraded []string  `json:"degraded"`        // what does not work as it should
	// seconds since this was last read, where the store does not answer; not there: it is so now
	NotHeardFor float64 `json:"not_heard_for,omitempty"`
	// the management server that its rules come from; not there where they come from files alone
	XDS *XDSState `json:"xds,omitempty"`
	// domains of which a share of the sidecars uses another version
	Trials []TrialView `json:"trials,omitempty"`
}

// TrialView is what a sidecar has decided by one of the two versions of a canary, since it uses these rules.
type TrialView struct {
	Domain      string `json:"domain"`
	Publication int64  `json:"publication"`
	Version     int64  `json:"version"` // that this sidecar uses
	Canary      bool   `json:"canary"`  // it is the new one
	Requests    int64  `json:"requests"`
	Refused     int64  `json:"refused"`
}

// canaries are the canaries that a sidecar uses.
func (s *SidecarView) canaries() string {
	var all []string
	for _, t := range s.Trials {
		if t.Canary {
			all = append(all, fmt.Sprintf("%s@%d", t.Domain, t.Version))
		}
	}
	return strings.Join(all, " ")
}

// sidecars serves GET /v1/sidecars.
func (a *API) sidecars(ctx context.Context, _ *httpapi.None) (*SidecarList, error) {
	sidecars, unknown := a.Sidecars(ctx)
	view := &SidecarList{Sidecars: sidecars, Unknown: unknown, Agree: true}
	by := map[string]string{} // rules of the sidecars with the same canaries
	for _, s := range sidecars {
		view.Rules = append(view.Rules, s.Rules)
		if hash, known := by[s.canaries()]; known && hash != s.Rules {
			view.Agree = false
		}
		by[s.canaries()] = s.Rules
	}
	slices.Sort(view.Rules)
	view.Rules = slices.Compact(view.Rules)
	return view, nil
}

const topWithin = 2 * time.Second // for the other sidecars to answer

// topRequest asks for a ranking.
type topRequest struct {
	Domain string `query:"domain"`                     // one domain alone
	Rule   string `query:"rule"`                       // one rule alone
	Limit  int    `query:"limit" in:"1..1000" or:"20"` // how many of each list
	All    bool   `query:"all"`                        // asks all sidecars that share the store
}

// TopView is the keys that are asked for and refused most.
type TopView struct {
	Since    time.Time `json:"since"`          // since when it is counted: one to two minutes
	Every    int64     `json:"sampled_one_in"` // one decision in so many is counted, as so many
	Sidecars int       `json:"sidecars"`       // how many sidecars are in it
	Missing  []string  `json:"missing"`        // sidecars that live and did not answer
	// what is not known because the store does not answer, and why
	Unknown string   `json:"unknown,omitempty"`
	Asked   []TopKey `json:"asked"`   // keys that are asked for most
	Refused []TopKey `json:"refused"` // keys that are refused most
}

// TopKey is a key with how often it was asked for, or refused.
type TopKey struct {
	live.Ranked
	Name string  `json:"name"` // what headers call the rule
	Who  []Owner `json:"who"`  // whom it counts
	Own  bool    `json:"own"`  // it is a limit of its own of whom it counts
}

// TopOfAll is the rankings of all sidecars, the names of those that did not answer, and what is not known.
type TopOfAll func(ctx context.Context) (all []live.Ranking, missing []string, unknown string)

// top serves GET /v1/top.
func (a *API) top(ctx context.Context, in *topRequest) (*TopView, error) {
	if a.Top == nil {
		return nil, httpapi.NewProblem(http.StatusNotFound, "ADMIN_TOP_KEYS is 0, so there is no sketch of the keys")
	}
	view := &TopView{Sidecars: 1}
	ranking := a.Top.Ranking()
	if in.All {
		ctx, cancel := context.WithTimeout(ctx, topWithin)
		defer cancel()
		all, missing, unknown := a.TopOfAll(ctx)
		ranking, view.Sidecars, view.Missing, view.Unknown = live.Merge(all), len(all), missing, unknown
	}
	view.Since, view.Every = ranking.Since, ranking.Every
	view.Asked, view.Refused = a.named(in.shown(ranking.Asked)), a.named(in.shown(ranking.Refused))
	return view, nil
}

// shown is the first of a list that are of the domain and the rule that were asked for.
func (in *topRequest) shown(list []live.Ranked) []live.Ranked {
	var some []live.Ranked
	for _, one := range list {
		asked := (in.Domain == "" || one.Domain == in.Domain) && (in.Rule == "" || one.Rule == in.Rule)
		if asked && len(some) < in.Limit {
			some = append(some, one)
		}
	}
	return some
}

// named adds whom each key counts, as the rules in use write keys. Limits that a profile holds are in no rules: the key
// alone names their owner. A block by a profile has a name for a key.
func (a *API) named(list []live.Ranked) []TopKey {
	all := []TopKey{}
	set := a.Engine.Rules()
	for _, one := range list {
		key := TopKey{Ranked: one, Name: one.Rule, Who: []Owner{}}
		if set != nil {
			if _, c, found := set.CounterOf(one.Key); found {
				key.Own = c.Effect.Account != ""
				key.Name, key.Who = c.Effect.Title(), owners(c.Effect, one.Key)
			} else if strings.Contains(one.Key, ":~"+one.Rule+":") {
				key.Own = true
				key.Who = owners(&descriptors.Effect{}, one.Key)
			}
		}
		all = append(all, key)
	}
	return all
}
