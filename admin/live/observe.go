package live

import (
	"context"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// Observe returns what ranks the counters of verdicts, where top is not nil, and gives refusals to those who read feed.
func Observe(top *Top, feed *Feed) engine.Observer {
	return func(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
		if top != nil && v.Match.Domain != nil && top.Sampled() {
			top.rank(v)
		}
		if v.Outcome.Refuses() {
			if now := time.Now(); feed.Wanted(now) {
				feed.Publish(event(req, v, now))
			}
		}
	}
}

// rank notes the counters of a decision. A block by a profile has none, and is noted by whom it is about.
func (t *Top) rank(v *engine.Verdict) {
	domain := v.Match.Domain.Name
	if b := v.Match.Block; b != nil && b.Account != "" {
		t.Note(domain, b.Rule, b.Account, true)
	}
	for i := range v.Decisions {
		if i != v.Match.Gate-1 {
			t.Note(domain, v.Match.Terms[i].Effect.Rule, v.Match.Charges[i].Key,
				v.Decisions[i].Outcome == limit.Refused)
		}
	}
}

// maxEntries is how many entries of descriptors an event shows.
const maxEntries = 16

// event is a refusal as readers see it. It copies what it shows of the request, whose memory is used again.
func event(req *descriptors.Request, v *engine.Verdict, now time.Time) Event {
	e := Event{At: now.UTC(), Domain: clone(req.Domain), Outcome: v.Outcome.String(),
		RetryAfter: v.RetryAfter.Seconds(), Degraded: v.Degraded}
	if v.Effect != nil {
		e.Rule = v.Effect.Rule
	}
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Refused && v.Match.Terms[i].Effect == v.Refusing {
			e.Key = v.Match.Charges[i].Key
			break
		}
	}
	if req.Subject != nil {
		e.User, e.Tenant, e.APIKey = clone(v.Client.User), clone(v.Client.Tenant), clone(v.Client.Key)
		e.Method, e.Path = clone(req.Subject.Method), clone(withoutQuery(req.Subject.Path))
		if v.Client.Address.IsValid() {
			e.Address = v.Client.Address.String()
		}
		return e
	}
	describe(&e, req.Descriptors)
	return e
}

// describe adds the descriptors of a request to an event. A part of them would be another request.
func describe(e *Event, sent []descriptors.Descriptor) {
	e.Entries = map[string]string{}
	count := 0
	for _, d := range sent {
		one := Descriptor{Entries: []Entry{}}
		for _, entry := range d.Entries {
			if count++; count > maxEntries {
				e.Descriptors = nil
				return
			}
			key, value := clone(entry.Key), clone(entry.Value)
			e.Entries[key] = value
			one.Entries = append(one.Entries, Entry{Key: key, Value: value})
		}
		e.Descriptors = append(e.Descriptors, one)
	}
}

// clone is a copy of a text of a client, cut where it is long.
func clone(text string) string { return strings.Clone(Short(text)) }

// withoutQuery is a path without what may hold secrets.
func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
