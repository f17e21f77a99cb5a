package descriptors

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// script is a domain that a test writes in lines of words.
type script struct {
	domain   Domain
	now      time.Time
	opt      Options
	warnings []Problem
}

func (s *script) compile(t testing.TB) *Set {
	t.Helper()
	s.opt.Now = func() time.Time { return s.now }
	set, problems := Compile([]Domain{s.domain}, s.opt)
	if set == nil {
		t.Fatalf("does not compile: %v", problems)
	}
	s.warnings = problems
	return set
}

// configure reads one line:
//
//	set charge_denied=false co_locate=true ipv6_prefix=56 secret=… prefix=… now=RFC3339 cost_header=… penalty=…
//	attribute KEY=ATTRIBUTE
//	cost N CONDITIONS
//	user NAME tier=T limits=…,… burst=N        tenant and key likewise
//	rule NAME scope=user+ip limit=100/1m,… action=… max_delay=1s penalty=THRESHOLD/WINDOW/COOL_DOWN CONDITIONS …
//	node KEY=VALUE > KEY : LIMIT FLAGS
func (s *script) configure(t testing.TB, words []string) {
	t.Helper()
	args := words[1:]
	switch words[0] {
	case "set":
		s.set(t, args)
	case "attribute":
		key, value, _ := strings.Cut(args[0], "=")
		if s.domain.Attributes == nil {
			s.domain.Attributes = map[string]string{}
		}
		s.domain.Attributes[key] = value
	case "cost":
		r := Rule{}
		for _, word := range args[1:] {
			r.condition(t, word)
		}
		s.domain.Costs = append(s.domain.Costs, Cost{Cost: number(t, args[0]), Match: r.Match})
	case "user":
		s.domain.Users = append(s.domain.Users, parseAccount(t, args))
	case "tenant":
		s.domain.Tenants = append(s.domain.Tenants, parseAccount(t, args))
	case "key":
		s.domain.Keys = append(s.domain.Keys, parseAccount(t, args))
	case "rule":
		s.domain.Rules = append(s.domain.Rules, parseRule(t, args))
	case "node":
		s.node(t, args)
	default:
		t.Fatalf("unknown line %q", words)
	}
}

func (s *script) set(t testing.TB, args []string) {
	t.Helper()
	for _, word := range args {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "charge_denied":
			s.domain.ChargeDenied = value == "true"
		case "co_locate":
			s.domain.CoLocate = value == "true"
		case "ipv6_prefix":
			s.domain.IPv6Prefix = int(number(t, value))
		case "secret":
			s.opt.KeySecret = []byte(value)
		case "prefix":
			s.opt.KeyPrefix = value
		case "now":
			s.now = instant(t, value)
		case "cost_header":
			s.domain.CostHeader = value
		case "penalty":
			s.domain.Penalty = parsePenalty(t, value)
		default:
			t.Fatalf("unknown setting %q", word)
		}
	}
}

func parseAccount(t testing.TB, args []string) Account {
	t.Helper()
	a := Account{Name: args[0]}
	for _, word := range args[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "tier":
			a.Tier = value
		case "limits":
			a.Limits = parseLimits(t, value)
		case "burst":
			a.Burst = number(t, value)
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return a
}

var actionNames = map[string]Action{"reject": Reject, "throttle": Throttle, "log_only": LogOnly, "block": Block,
	"allow": Allow}

func parseRule(t testing.TB, args []string) Rule {
	t.Helper()
	r := Rule{Name: args[0], Priority: 100}
	for _, word := range args[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "scope":
			r.Scope, r.HasScope = parseScope(value), true
		case "limit":
			r.Limits = parseLimits(t, value)
		case "action":
			r.Action = actionNames[value]
		case "max_delay":
			r.MaxDelay = duration(t, value)
		case "penalty":
			r.Penalty = parsePenalty(t, value)
		case "reason":
			r.Reason = value
		case "until":
			r.Until = instant(t, value)
		case "priority":
			r.Priority = int(number(t, value))
		case "cost":
			r.Cost = number(t, value)
		case "post_paid":
			r.PostPaid = true
		case "reserve":
			r.Reserve = number(t, value)
		case "disabled":
			r.Disabled = true
		default:
			r.condition(t, word)
		}
	}
	return r
}

func parseScope(text string) (s Scope) {
	for _, named := range scopeNames {
		for _, word := range strings.Split(text, "+") {
			if word == named.name {
				s |= named.scope
			}
		}
	}
	return s
}

func (r *Rule) condition(t testing.TB, word string) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	values := strings.Split(value, ",")
	switch key {
	case "endpoints":
		for _, v := range values {
			r.Match.Endpoints = append(r.Match.Endpoints, Pattern{Text: v})
		}
	case "methods":
		r.Match.Methods = values
	case "users":
		r.Match.Users = values
	case "tenants":
		r.Match.Tenants = values
	case "tiers":
		r.Match.Tiers = values
	case "authenticated":
		known := value == "true"
		r.Match.Authenticated = &known
	case "cidrs":
		for _, v := range values {
			r.Match.CIDRs = append(r.Match.CIDRs, netip.MustParsePrefix(v))
		}
	case "entries":
		r.Match.Entries = map[string]string{}
		for _, v := range values {
			k, v, _ := strings.Cut(v, ":")
			r.Match.Entries[k] = v
		}
	default:
		t.Fatalf("unknown word %q", word)
	}
}

// parseLimits reads limits such as [name:]100/1m[/algorithm], or unlimited, with commas between them.
func parseLimits(t testing.TB, text string) []Limit {
	t.Helper()
	var limits []Limit
	for _, one := range strings.Split(text, ",") {
		var l Limit
		name, rest, named := strings.Cut(one, ":")
		if !named {
			name, rest = "", one
		}
		l.Name = name
		if rest == "unlimited" {
			l.Unlimited = true
			limits = append(limits, l)
			continue
		}
		parts := strings.Split(rest, "/")
		l.Count, l.Algorithm = number(t, parts[0]), limit.TokenBucket
		l.Window = duration(t, parts[1])
		if len(parts) > 2 {
			l.Algorithm = algorithm(t, parts[2])
		}
		if l.Algorithm == limit.TokenBucket {
			l.Burst = l.Count
		}
		limits = append(limits, l)
	}
	return limits
}

func algorithm(t testing.TB, name string) limit.Algorithm {
	t.Helper()
	for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
		if a.String() == name {
			return a
		}
	}
	t.Fatalf("%q must be an algorithm", name)
	return 0
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n := must.Get(strconv.ParseInt(text, 10, 64))(t)
	return n
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	if days, found := strings.CutSuffix(text, "d"); found {
		return time.Duration(number(t, days)) * 24 * time.Hour
	}
	d := must.Get(time.ParseDuration(text))(t)
	return d
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at := must.Get(time.Parse(time.RFC3339, text))(t)
	return at
}
