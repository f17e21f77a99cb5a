package live

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// Bounds of the decisions that are kept.
const (
	recentFor  = 5 * time.Minute // at least so long, unless they are longer than usual
	usualBytes = 1 << 10         // of one
	fixedBytes = 512             // of one without texts
	cellMost   = 4               // in a second, of one counter or client: the others are alike
)

// Decision is one that was kept: a refusal, or one that was made without the shared store.
type Decision struct {
	ID        string `json:"id"`                   // as answers and lines of the log have it
	RequestID string `json:"request_id,omitempty"` // the header x-request-id, where the door sees it
	Sidecar   string `json:"sidecar"`              // the host of the sidecar that decided
	Door      string `json:"door"`                 // rls, ext_authz or json
	Status    int    `json:"status"`               // of HTTP, for the client
	Event
	Name       string  `json:"name"`              // what headers call the rule
	Written    string  `json:"written,omitempty"` // where the rule is written
	Scope      string  `json:"scope,omitempty"`   // what it counts by
	Reason     string  `json:"reason,omitempty"`  // of a block, or why the request was too much
	Count      int64   `json:"count,omitempty"`   // of the limit
	Per        string  `json:"per,omitempty"`     // of the limit
	Cost       int64   `json:"cost,omitempty"`    // tokens that the request asked for
	Left       int64   `json:"left"`              // what was left; -1: it is not known
	ResetAfter float64 `json:"reset_after"`       // seconds, at that time, until it was full, or its window ended
}

// Recent keeps refusals and degraded decisions for some minutes, in bounded memory, and gives each an id. Of a flood it
// keeps a sample. It is safe for concurrent use.
type Recent struct {
	host    string
	most    int64 // bytes
	every   time.Duration
	burst   time.Duration
	now     func() time.Time
	seed    maphash.Seed
	cells   [1024]atomic.Int64 // by counter: a second, and how many were kept in it
	dropped atomic.Int64

	mu    sync.Mutex // guards all below
	kept  []*kept    // the oldest first
	bytes int64
	due   time.Time // when the next one would be in time if they came evenly
}

// kept is a decision with the number of its id.
type kept struct {
	id engine.ID
	Decision
	bytes int64
}

// NewRecent makes memory for so many decisions of a usual size, at least 1, of a sidecar on that host.
func NewRecent(decisions int, host string, now func() time.Time) *Recent {
	decisions = max(decisions, 1)
	every := recentFor / time.Duration(decisions)
	return &Recent{host: host, most: int64(decisions) * usualBytes, every: every, now: now, seed: maphash.MakeSeed(),
		burst: every * time.Duration(decisions/8)}
}

// RecentStats is how many decisions are kept.
type RecentStats struct {
	Kept    int   `metric:"kept_decisions" help:"Refusals and degraded decisions that can be looked up by their ids."`
	Dropped int64 `metric:"kept_decisions_dropped_total" help:"Those that got no id, because too many came at once."`
}

// Stats returns the counts.
func (r *Recent) Stats() RecentStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RecentStats{Kept: len(r.kept), Dropped: r.dropped.Load()}
}

// Observe keeps a refusal or a degraded decision, and gives it an id, which later observers and its door see.
func (r *Recent) Observe(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	if !v.Outcome.Refuses() && v.Degraded == "" {
		return
	}
	at := deciding(v)
	now := r.now()
	if !r.room(v, at, now) {
		r.dropped.Add(1)
		return
	}
	v.ID = engine.ID(rand.Uint64() | 1) // 0 means: without an id
	r.keep(kept{id: v.ID, Decision: r.describe(req, v, at, now)})
}

// deciding is the charge that decided: the first that the refusing rule refused, else the first; -1: the request has no
// charge.
func deciding(v *engine.Verdict) int {
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Refused && v.Match.Terms[i].Effect == v.Refusing {
			return i
		}
	}
	return min(len(v.Decisions), 1) - 1
}

// room reports whether a decision may be kept: it is one of few of its counter, or its client, in this second, and not
// too many are kept in all. Most of a flood ends at the first question, without a lock.
func (r *Recent) room(v *engine.Verdict, at int, now time.Time) bool {
	whose := v.Client.User
	if at >= 0 {
		whose = v.Match.Charges[at].Key
	}
	cell := &r.cells[maphash.String(r.seed, whose)%uint64(len(r.cells))]
	second := now.Unix() << 8
	switch held := cell.Load(); {
	case held&^255 != second:
		cell.Store(second | 1) // of several at once one is too many
	case held&255 >= cellMost:
		return false
	default:
		cell.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.Sub(now) > r.burst {
		return false
	}
	if r.due.Before(now) {
		r.due = now
	}
	r.due = r.due.Add(r.every)
	return true
}

// describe is a decision as it is looked up. It copies what it holds of the request, whose memory is used again.
func (r *Recent) describe(req *descriptors.Request, v *engine.Verdict, at int, now time.Time) Decision {
	d := Decision{ID: v.ID.String(), Sidecar: r.host, Door: req.Door, Status: v.HTTPStatus, Event: event(req, v, now),
		Left: -1}
	if len(d.Descriptors) > 0 {
		d.Entries = nil // the same once more
	}
	if req.Evidence != nil {
		for i := range req.Evidence.Headers {
			if h := &req.Evidence.Headers[i]; h.Name == "x-request-id" {
				d.RequestID = clone(h.Value)
			}
		}
	}
	if v.Malformed != nil {
		d.Reason = v.Malformed.Message
	}
	e := v.Effect
	if at >= 0 {
		c, one := &v.Match.Charges[at], &v.Decisions[at]
		e = v.Match.Terms[at].Effect
		d.Key, d.Cost, d.Left = c.Key, c.Cost, one.Remaining
		d.Count, d.Per, d.ResetAfter = c.Limit.Count, c.Limit.Window.String(), one.ResetAfter.Seconds()
		d.Degraded = cmp.Or(d.Degraded, one.Reason)
	}
	if e != nil {
		d.Rule, d.Name, d.Scope, d.Written = e.Rule, e.Title(), e.Scope, Place(e.At())
		d.Reason = cmp.Or(d.Reason, e.Reason)
	}
	if v.Excess != "" {
		d.Reason = "the request asks for more than one request may: " + v.Excess
	}
	return d
}

// keep adds a decision, and forgets old ones until there is room for it.
func (r *Recent) keep(one kept) {
	one.bytes = one.size()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.kept) > 0 && r.bytes+one.bytes > r.most {
		r.bytes -= r.kept[0].bytes
		r.kept[0] = nil
		r.kept = r.kept[1:]
	}
	r.kept = append(r.kept, &one)
	r.bytes += one.bytes
}

// size is about how many bytes a decision takes.
func (d *Decision) size() int64 {
	all := fixedBytes
	for _, text := range []string{d.RequestID, d.Domain, d.Rule, d.Key, d.User, d.Tenant, d.APIKey, d.Address, d.Method,
		d.Path, d.Degraded, d.Name, d.Written, d.Scope, d.Reason} {
		all += len(text)
	}
	for _, one := range d.Descriptors {
		for _, e := range one.Entries {
			all += 32 + len(e.Key) + len(e.Value)
		}
	}
	for key, value := range d.Entries {
		all += 64 + len(key) + len(value)
	}
	return int64(all)
}

// Find returns the newest decision of an id, or of a request with that x-request-id.
func (r *Recent) Find(id string) (Decision, bool) {
	number, _ := engine.ParseID(strings.ToLower(id))
	r.mu.Lock()
	all := slices.Clone(r.kept) // decisions do not wait for the search
	r.mu.Unlock()
	for _, one := range slices.Backward(all) {
		if number != 0 && one.id == number || id != "" && one.RequestID == id {
			return one.Decision, true
		}
	}
	return Decision{}, false
}

// Place is where something was written.
func Place(at descriptors.Pos) string {
	switch {
	case at == descriptors.Pos{}:
		return ""
	case at.File == "":
		return fmt.Sprintf("line %d", at.Line)
	case at.Line == 0:
		return at.File
	}
	return fmt.Sprintf("%s:%d", at.File, at.Line)
}
