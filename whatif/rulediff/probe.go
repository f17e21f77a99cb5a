package rulediff

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Treatment is one kind of client whose requests would be treated differently.
type Treatment struct {
	Domain   string   `json:"domain"`
	Who      []string `json:"who"`
	Requests []string `json:"requests"`
	Was      string   `json:"was"`
	Is       string   `json:"is"`
}

// Bounds of what is tried: every client that the rules name with every request that they name.
const (
	maxClients  = 2000
	maxRequests = 300
	maxProbes   = 200_000
)

// client is one kind of client to try.
type client struct {
	name string
	identity.Client
	before *identity.Client // who it is under the old set, where that may be another one
}

// ask is one kind of request to try.
type ask struct {
	name    string
	subject descriptors.Subject
}

// difference is what becomes of one client's request, before and after.
type difference struct{ who, request, was, is string }

// probe tries the clients and requests that the rules of both sets name, and anyone and anything else, with the matcher
// of the sidecar.
func (d *Diff) probe(ctx context.Context, domain string, old, new *descriptors.Set) error {
	p := newProber(old.Domain(domain), new.Domain(domain))
	clients, asks := p.clients(), p.asks()
	if len(clients) > maxClients || len(asks) > maxRequests || len(clients)*len(asks) > maxProbes {
		d.Truncated = true
		clients = clients[:min(len(clients), maxClients)]
		asks = asks[:max(min(len(asks), maxRequests, maxProbes/len(clients)), 1)]
	}
	var all []difference
	before, after := matcher{set: old, domain: domain}, matcher{set: new, domain: domain}
	for i := range clients {
		for j := range asks {
			if err := ctx.Err(); err != nil {
				return err
			}
			was, is := clients[i].requests(domain, &asks[j])
			all = compareOne(all, before.treat(was), after.treat(is), clients[i].name, asks[j].name)
		}
	}
	for _, entries := range p.leaves() {
		if err := ctx.Err(); err != nil {
			return err
		}
		req := &descriptors.Request{Domain: domain, Descriptors: []descriptors.Descriptor{{Entries: entries.entries}}}
		all = compareOne(all, before.treat(req), after.treat(req), entries.name, "its descriptor")
	}
	d.Treated = append(d.Treated, group(domain, all, len(asks))...)
	return ctx.Err()
}

// requests are what the client asks for under both sets.
func (c *client) requests(domain string, a *ask) (before, after *descriptors.Request) {
	was, is := a.subject, a.subject
	was.Client, is.Client = c.Client, c.Client
	if c.before != nil {
		was.Client = *c.before
	}
	return &descriptors.Request{Domain: domain, Subject: &was}, &descriptors.Request{Domain: domain, Subject: &is}
}

func compareOne(all []difference, before, after treatment, who, request string) []difference {
	was, is := contrast(before, after)
	if was != is {
		all = append(all, difference{who, request, was, is})
	}
	return all
}

// treatment is what becomes of a request: it is settled in a word, or limits count it.
type treatment struct {
	settled string // blocked, exempt, or no such domain
	parts   []part
}

// part is one limit that counts a request.
type part struct {
	text string
	cost int64
	how  string // it counts, beyond the text
}

// contrast writes what is in one of two treatments only.
func contrast(before, after treatment) (was, is string) {
	if before.settled != "" || after.settled != "" {
		return before.whole(), after.whole()
	}
	was, is = before.without(after), after.without(before)
	if was == "" && is == "" {
		return "", ""
	}
	return or(was, "nothing"), or(is, "nothing")
}

// whole is a treatment in a word.
func (t treatment) whole() string {
	switch {
	case t.settled != "":
		return t.settled
	case len(t.parts) == 0:
		return "no limit"
	}
	return "limited by rules"
}

// without are the parts that the other treatment does not have. Of one that is there, too, what differs is written.
func (t treatment) without(other treatment) string {
	var only []string
	for _, p := range t.parts {
		if slices.Contains(other.parts, p) {
			continue
		}
		at := slices.IndexFunc(other.parts, func(o part) bool { return o.text == p.text })
		if at >= 0 && other.parts[at].how != p.how {
			p.text += " " + p.how
		}
		if at >= 0 && other.parts[at].cost != p.cost {
			p.text += fmt.Sprintf(" at cost %d", p.cost)
		}
		only = append(only, p.text)
	}
	slices.Sort(only)
	return strings.Join(only, ", ")
}

// matcher matches requests with one set.
type matcher struct {
	set    *descriptors.Set
	domain string
	match  descriptors.Match
}

// treat matches a request.
func (m *matcher) treat(req *descriptors.Request) (t treatment) {
	if m.set.Domain(m.domain) == nil {
		return treatment{settled: "no such domain, so admitted"}
	}
	m.match.Reset()
	m.set.Match(req, &m.match)
	switch {
	case m.match.Block != nil:
		return treatment{settled: "blocked by " + m.match.Block.Rule}
	case m.match.Exempt != nil:
		return treatment{settled: "exempt by " + m.match.Exempt.Rule}
	}
	for i := range m.match.Terms {
		e, c := m.match.Terms[i].Effect, &m.match.Charges[i]
		if i == m.match.Gate-1 {
			t.parts = append(t.parts, part{text: "the domain's penalty", how: counted(e, c)})
			continue
		}
		t.parts = append(t.parts, part{charged(e, c), c.Cost, counted(e, c)})
	}
	for i := range m.match.Unlimited {
		t.parts = append(t.parts, part{text: nameOf(m.match.Unlimited[i].Effect) + " unlimited"})
	}
	return t
}

// charged is one limit that counts a request.
func charged(e *descriptors.Effect, c *limit.Charge) string {
	text := nameOf(e) + " " + amount(e.Limit, e.Calendar)
	switch {
	case e.Mode == limit.Shadow:
		text += " (only logged)"
	case c.MaxWait > 0:
		text += " (waits up to " + span(c.MaxWait) + ")"
	}
	return text
}

// counted is how a limit counts a request.
func counted(e *descriptors.Effect, c *limit.Charge) string {
	text := "by " + e.Scope
	if e.Mode == limit.Quota {
		text += ", as a quota"
	}
	if c.Op == limit.Debit {
		text += ", paid afterwards"
	}
	if p := c.Penalty; p != nil {
		text += fmt.Sprintf(", penalty %s after %d in %s, times %v", span(p.CoolDown), p.Threshold, span(p.Window),
			p.Multipliers)
		if p.DryRun {
			text += ", dry run"
		}
	}
	return text
}

func nameOf(e *descriptors.Effect) string {
	if e.Account != "" {
		return e.Rule + " " + e.Account
	}
	return e.Title()
}

// group puts together the requests of a client, and the clients, that are treated alike. Where all requests of a client
// differ in the same way, they are called that.
func group(domain string, all []difference, asks int) []Treatment {
	type row struct{ who, was, is string }
	requests := map[row][]string{}
	var rows []row
	for _, d := range all {
		r := row{d.who, d.was, d.is}
		if requests[r] == nil {
			rows = append(rows, r)
		}
		requests[r] = append(requests[r], d.request)
	}
	index := map[string]int{}
	var treated []Treatment
	for _, r := range rows {
		named := requests[r]
		if len(named) == asks {
			named = []string{"any request"}
		}
		key := strings.Join(append([]string{r.was, r.is}, named...), "\x00")
		at, known := index[key]
		if !known {
			at = len(treated)
			index[key] = at
			treated = append(treated, Treatment{Domain: domain, Requests: named, Was: r.was, Is: r.is})
		}
		treated[at].Who = append(treated[at].Who, r.who)
	}
	return treated
}
