package journal

import (
	"encoding/json"
	"fmt"
)

// Others is the identity, and the endpoint, of all those that were too many for a sidecar to name.
const Others = "(others)"

// Rows is what an entry holds: usage in one stream, events in the other. Rows of usage that differ in numbers alone are
// added up, within an entry and over entries.
type Rows struct {
	Identities []Row   `json:"identities,omitempty"` // the rule "" counts whole requests, others what they charged
	Tenants    []Row   `json:"tenants,omitempty"`    // likewise of tenants, of all their users together: they are in Identities, too
	Calls      []Row   `json:"calls,omitempty"`      // whole requests of a user, or of a key without one, to an endpoint; by hour
	Endpoints  []Row   `json:"endpoints,omitempty"`  // by the rule that decided
	Keys       []Row   `json:"keys,omitempty"`       // of API keys: these requests are in Identities, too
	Caches     []Row   `json:"caches,omitempty"`     // of the sidecar
	Events     []Event `json:"events,omitempty"`
}

// Row is what was counted of one name within a minute. A list has the fields that its names have.
type Row struct {
	Minute   int64  `json:"minute"` // Unix time / 60
	Domain   string `json:"domain,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Name     string `json:"name,omitempty"`     // "" where it is unknown, Others where they were too many
	Endpoint string `json:"endpoint,omitempty"` // of a call
	Outcome  string `json:"outcome,omitempty"`
	Requests int64  `json:"requests,omitempty"`
	Cost     int64  `json:"cost,omitempty"`
	Refused  int64  `json:"refused,omitempty"` // of the requests with a key
	Hits     int64  `json:"hits,omitempty"`
	Misses   int64  `json:"misses,omitempty"`
	Latency  Sketch `json:"latency,omitzero"` // of the decisions
}

// Event is one request. Texts are "" and numbers 0 where they are unknown.
type Event struct {
	At         int64   `json:"at"` // Unix time in microseconds
	Domain     string  `json:"domain,omitempty"`
	Outcome    string  `json:"outcome,omitempty"`
	Rule       string  `json:"rule,omitempty"` // that decided
	Identity   string  `json:"identity,omitempty"`
	Tenant     string  `json:"tenant,omitempty"`  // of the request
	APIKey     string  `json:"api_key,omitempty"` // its id, or its name in Keys, by which the copier finds the id
	IP         string  `json:"ip,omitempty"`
	Method     string  `json:"method,omitempty"`
	Endpoint   string  `json:"endpoint,omitempty"`
	Count      int64   `json:"count,omitempty"` // what the counter that decided held
	Limit      int64   `json:"limit,omitempty"` // what it may hold; 0: no limit decided
	Cost       int64   `json:"cost,omitempty"`
	Status     int     `json:"status,omitempty"`      // of HTTP
	RetryAfter float64 `json:"retry_after,omitempty"` // in seconds
	Latency    int64   `json:"latency,omitempty"`     // of the decision, in microseconds
	Weight     int64   `json:"weight,omitempty"`      // how many requests the event counts for
}

// Usage returns the lists of usage.
func (r *Rows) Usage() [][]Row {
	return [][]Row{r.Identities, r.Tenants, r.Calls, r.Endpoints, r.Keys, r.Caches}
}

// Marshal returns the rows as the text of an entry.
func (r *Rows) Marshal() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // no value of these types is refused
	}
	return text
}

// Unmarshal returns the rows of an entry. An event without a weight counts for itself. Numbers below 0 are refused:
// they cannot be added to what a customer owes.
func Unmarshal(text []byte) (*Rows, error) {
	r := new(Rows)
	err := json.Unmarshal(text, r)
	for _, list := range r.Usage() {
		for i := range list {
			if err == nil {
				err = list[i].check()
			}
		}
	}
	for i := range r.Events {
		e := &r.Events[i]
		if e.Weight == 0 {
			e.Weight = 1
		}
		if e.Weight < 0 && err == nil {
			err = fmt.Errorf("the weight of event %d must be positive, not %d", i, e.Weight)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the rows of an entry: %w", err)
	}
	return r, nil
}

// check refuses a row that cannot be added up.
func (r *Row) check() error {
	if min(r.Requests, r.Cost, r.Refused, r.Hits, r.Misses) < 0 {
		return fmt.Errorf("the numbers of a row must be from 0, not %+v", *r)
	}
	latency := r.Latency
	r.Latency = Sketch{}
	for _, b := range latency.Buckets {
		if b.Index < 0 || b.Index >= Buckets || b.N <= 0 {
			return fmt.Errorf("a bucket of latencies must be from 0 to %d and hold something, not %+v", Buckets-1, b)
		}
		r.Latency.add(b.Index, b.N)
	}
	return nil
}
