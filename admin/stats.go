package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/httpapi"
)

// statsRequest asks for what was counted.
type statsRequest struct {
	Limit int `query:"limit" in:"1..1000" or:"100"` // how many rules, those with most decisions first
}

// StatsView is what the sidecar that answers has counted since its start, and how its store does.
type StatsView struct {
	At       time.Time  `json:"at"`
	Started  time.Time  `json:"started"` // when it started, and all counts were 0
	Version  string     `json:"version"`
	Host     string     `json:"host"`
	Caller   CallerView `json:"caller"`
	Rules    string     `json:"rules"`    // the hash of the rules in use; empty for none
	Degraded []string   `json:"degraded"` // what does not work as it should
	// decisions of all rules by outcome: allowed, refused, blocked, exempt, shadowed, no_limit, unknown_domain or
	// malformed
	Outcomes  map[string]int64 `json:"outcomes"`
	Decisions []DecisionsView  `json:"decisions"` // the rules with most decisions
	LeftOut   int              `json:"left_out"`  // rules with decisions that are not in the list
	Store     StoreView        `json:"store"`
}

// CallerView is who asks, and what they may do.
type CallerView struct {
	Name   string `json:"name"`
	Role   string `json:"role" one:"view operate"`
	Events bool   `json:"events"` // the caller may read events
}

// DecisionsView is how often a rule had the last word, by outcome.
type DecisionsView struct {
	Domain   string           `json:"domain"`   // empty for a domain without rules
	Rule     string           `json:"rule"`     // empty where no rule applied
	Outcomes map[string]int64 `json:"outcomes"` // by outcome, without those that never were
}

// total is the number of decisions of all outcomes.
func (d *DecisionsView) total() int64 {
	var sum int64
	for _, n := range d.Outcomes {
		sum += n
	}
	return sum
}

// StoreView is how the store of the counters does.
type StoreView struct {
	Kind     string           `json:"kind" one:"memory redis"` // memory or redis
	Calls    map[string]int64 `json:"calls"`                   // calls to its servers: ok, or why one did not decide
	Latency  LatencyView      `json:"latency"`                 // of calls that were sent
	Breakers []BreakerView    `json:"breakers"`                // one for each server
	// why it cannot decide now, also where no request asks it; not there: it can
	Away string `json:"away,omitempty"`
}

// LatencyView is how long calls took.
type LatencyView struct {
	Count   int64        `json:"count"`
	Seconds float64      `json:"seconds"` // of all calls together
	Buckets []BucketView `json:"buckets"`
}

// BucketView is how many calls took at most so long.
type BucketView struct {
	Seconds float64 `json:"seconds"`
	Count   int64   `json:"count"`
}

// BreakerView is the breaker in front of a server.
type BreakerView struct {
	Server   string    `json:"server"`
	State    string    `json:"state" one:"closed half-open open"` // closed, half-open or open
	Since    time.Time `json:"since,omitzero"`                    // of the last change
	Opened   int64     `json:"opened"`                            // how often it opened
	Rejected int64     `json:"rejected"`                          // calls that it kept from the server
}

// stats serves GET /v1/stats. It reads counters that are there, and costs decisions nothing.
func (a *API) stats(ctx context.Context, in *statsRequest) (*StatsView, error) {
	view, c := a.Counted(), httpapi.CallerOf(ctx)
	view.At, view.Rules = a.Now().UTC(), a.InUse().Hash
	reads := a.EventsRole != httpapi.NoRole && c.Role >= a.EventsRole
	view.Caller = CallerView{c.Name, Roles.Word(c.Role), reads}
	view.cut(in.Limit)
	return &view, nil
}

// cut adds up the outcomes of all rules, and keeps the rules with most decisions.
func (v *StatsView) cut(most int) {
	v.Outcomes = map[string]int64{}
	for i := range v.Decisions {
		for outcome, n := range v.Decisions[i].Outcomes {
			v.Outcomes[outcome] += n
		}
	}
	slices.SortFunc(v.Decisions, func(a, b DecisionsView) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	v.LeftOut = max(len(v.Decisions)-most, 0)
	v.Decisions = v.Decisions[:len(v.Decisions)-v.LeftOut]
}
