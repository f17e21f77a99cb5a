package journal

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Others is the identity, and the endpoint, that stands for all those that a sidecar had no room to name.
const Others = "(others)"

// Usage is what a sidecar decided since its entry before. The rows of one key are added up, within an entry and over entries.
type Usage struct {
	Identities []IdentityRow
	Endpoints  []EndpointRow
	Keys       []KeyRow
	Caches     []CacheRow
}

// IdentityRow is what one identity used of one rule within a minute. The rule "" counts whole requests, once each; a named rule counts what it
// was charged.
type IdentityRow struct {
	Minute   int64 // Unix time / 60
	Domain   string
	Rule     string
	Identity string // "" where the request had none, Others where there was no room
	Outcome  string
	Requests int64
	Cost     int64
}

// EndpointRow is what was decided about one endpoint within a minute.
type EndpointRow struct {
	Minute   int64 // Unix time / 60
	Domain   string
	Rule     string // that decided, or ""
	Endpoint string // "" where it is unknown, Others where there was no room
	Outcome  string
	Requests int64
	Cost     int64
	Latency  Sketch // of the decisions
}

// KeyRow is how often one API key was used within a minute. These requests are in the rows of identities, too.
type KeyRow struct {
	Minute   int64 // Unix time / 60
	Domain   string
	Key      string // its name, made of KeyOf
	Requests int64
	Refused  int64 // of these
}

// CacheRow is how often one cache of the sidecar had the answer within a minute.
type CacheRow struct {
	Minute int64 // Unix time / 60
	Cache  string
	Hits   int64
	Misses int64
}

// Event is one request. Texts are "" and numbers 0 where they are unknown.
type Event struct {
	At         int64   `json:"at"` // Unix time in microseconds
	Domain     string  `json:"domain"`
	Outcome    string  `json:"outcome"`
	Rule       string  `json:"rule"` // that decided
	Identity   string  `json:"identity"`
	APIKey     string  `json:"api_key"` // the first characters of the key
	IP         string  `json:"ip"`
	Method     string  `json:"method"`
	Endpoint   string  `json:"endpoint"`
	Count      int64   `json:"count"` // what the counter that decided held
	Limit      int64   `json:"limit"` // what it may hold; 0: no limit decided
	Cost       int64   `json:"cost"`
	Status     int     `json:"status"`      // of HTTP
	RetryAfter float64 `json:"retry_after"` // in seconds
	Latency    int64   `json:"latency"`     // of the decision, in microseconds
	Weight     int64   `json:"weight"`      // how many requests the event stands for
}

// MarshalUsage returns the rows of an entry of the stream of usage.
func MarshalUsage(u *Usage) []byte { return AppendUsage(nil, u) }

// UnmarshalUsage returns what MarshalUsage was given.
func UnmarshalUsage(data []byte) (*Usage, error) {
	var lists struct {
		Identities []tuple `json:"identities"`
		Endpoints  []tuple `json:"endpoints"`
		Keys       []tuple `json:"keys"`
		Caches     []tuple `json:"caches"`
	}
	if err := json.Unmarshal(data, &lists); err != nil {
		return nil, fmt.Errorf("read rows of usage: %w", err)
	}
	u := &Usage{
		Identities: make([]IdentityRow, len(lists.Identities)),
		Endpoints:  make([]EndpointRow, len(lists.Endpoints)),
		Keys:       make([]KeyRow, len(lists.Keys)),
		Caches:     make([]CacheRow, len(lists.Caches)),
	}
	var faults []error
	for i, t := range lists.Identities {
		r := &u.Identities[i]
		faults = append(faults, t.into("identities", i, &r.Minute, &r.Domain, &r.Rule, &r.Identity, &r.Outcome, &r.Requests, &r.Cost))
	}
	for i, t := range lists.Endpoints {
		r := &u.Endpoints[i]
		faults = append(faults, t.into("endpoints", i, &r.Minute, &r.Domain, &r.Rule, &r.Endpoint, &r.Outcome, &r.Requests, &r.Cost, &r.Latency))
	}
	for i, t := range lists.Keys {
		r := &u.Keys[i]
		faults = append(faults, t.into("keys", i, &r.Minute, &r.Domain, &r.Key, &r.Requests, &r.Refused))
	}
	for i, t := range lists.Caches {
		r := &u.Caches[i]
		faults = append(faults, t.into("caches", i, &r.Minute, &r.Cache, &r.Hits, &r.Misses))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("read rows of usage: %w", err)
	}
	return u, nil
}

// MarshalEvents returns the rows of an entry of the stream of events.
func MarshalEvents(events []Event) []byte {
	b := []byte{'['}
	for i := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendEvent(b, &events[i])
	}
	return append(b, ']')
}

// UnmarshalEvents returns what MarshalEvents was given. An event without a weight stands for itself.
func UnmarshalEvents(data []byte) ([]Event, error) {
	events, known := readEvents(data)
	if !known {
		events = nil
		if err := json.Unmarshal(data, &events); err != nil {
			return nil, fmt.Errorf("read rows of events: %w", err)
		}
	}
	for i := range events {
		if events[i].Weight == 0 {
			events[i].Weight = 1
		}
		if events[i].Weight < 0 {
			return nil, fmt.Errorf("read rows of events: event %d: the weight must be positive, not %d", i, events[i].Weight)
		}
	}
	return events, nil
}

// tuple is a row as a list of values.
type tuple []json.RawMessage

// into decodes the values into the places, of which there are as many.
func (t tuple) into(list string, row int, places ...any) error {
	if len(t) != len(places) {
		return fmt.Errorf("%s: row %d must have %d values, not %d", list, row, len(places), len(t))
	}
	for i, place := range places {
		if err := json.Unmarshal(t[i], place); err != nil {
			return fmt.Errorf("%s: row %d: value %d: %w", list, row, i, err)
		}
	}
	return nil
}
