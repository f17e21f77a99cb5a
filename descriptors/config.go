package descriptors

import (
	"net/netip"
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Pos is where in a file something was written. The zero value means unknown.
type Pos struct {
	File         string
	Line, Column int
}

// Problem is what is wrong with a configuration, and where. A warning does not keep it from being used.
type Problem struct {
	Pos
	Text    string // what, and what to do
	Warning bool
	Never   string // of a warning that a rule, or some of its endpoints, can never apply: the rule's name
	Domain  string // of that rule
}

// Domain is one domain as a user wrote it, before Compile.
type Domain struct {
	Pos
	Name         string
	ChargeDenied bool              // trees: every descriptor counts even when one refuses; files default to true
	OnFailure    Failure           // of rules and nodes whose own is the zero value, of accounts and of overrides
	CoLocate     bool              // one hash tag for all counters of the domain, so that a request asks one shard
	Attributes   map[string]string // descriptor key -> attribute name, on top of the default mapping
	Costs        []Cost            // first match wins
	// over ext_authz: the request header whose value is the cost; naming it is trusting it
	CostHeader string
	Rules      []Rule
	Users      []Account // with their tier and own limits
	Tenants    []Account
	Keys       []Account        // API keys with limits of their own, by id; their tier is in Identity
	Identity   *identity.Config // who asks, for ext_authz; nil: the peer's address alone
	Timezone   *time.Location   // of calendar windows; nil: UTC
	IPv6Prefix int              // bits by which IPv6 addresses are keyed; 0 means 64
	Headers    HeaderStyle
	ResetUnix  bool // X-RateLimit-Reset as unix time instead of seconds
	Tree       []Node
	Penalty    *Penalty // one record per client over all rules; nil: none
	Defaults   *Rule    // for requests that nothing else limits; nil: no limit
}

// DefaultRule is the name of Domain.Defaults.
const DefaultRule = "default"

// HeaderStyle is which rate limit headers a domain's answers carry.
type HeaderStyle uint8

// The header styles.
const (
	HeadersX HeaderStyle = iota // x-ratelimit-*, the default
	HeadersIETF
	HeadersBoth
	HeadersNone
)

// Limit is a limit as a user wrote it.
type Limit struct {
	Pos
	limit.Limit
	Unlimited  bool
	Unit       Unit       // how it is reported; UnitUnknown: the largest whole unit of Window
	Multiplier uint32     // of Unit, with Unit
	Replaces   []Replaced // trees only
	CountUnset bool       // trees only: requests_per_unit was missing, which means 0

	CalendarUnit CalendarUnit // its windows are those of a calendar, in the domain's time zone; 0: none
}

// Replaced names a limit that steps back when the limit that carries it matches.
type Replaced struct {
	Pos
	Name string
}

// Unit is a unit of time in Envoy's requests and answers, from short to long. Their wire numbers are the door's
// business.
type Unit uint8

// The units.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Week
	Month // 30 days
	Year  // 365 days
)

// Node is one level of a descriptor tree.
type Node struct {
	Pos
	Key, Value     string // no value: any, one counter each
	Limits         []Limit
	Nodes          []Node
	Shadow         bool
	Quota          bool
	DetailedMetric bool
	ValueToMetric  bool
	ShareThreshold bool
	Metadata       map[string]any // as JSON: nil, bool, float64, string, []any, map[string]any
	OnFailure      Failure
	PostPaid       bool
	Reserve        int64 // with PostPaid: tokens taken in advance; 0: none
	Lease          Lease
	Response       *Response
}

// Scope is a set of attributes that a rule counts by. Global is the empty set; a rule without any scope has HasScope
// false.
type Scope uint8

// The scopes, in the order in which their values are in a key.
const (
	ScopeTenant Scope = 1 << iota
	ScopeUser
	ScopeIP
	ScopeEndpoint
	ScopeAPIKey
	ScopeTier
	ScopeClient       // the user where one is known, else the ip
	ScopeGlobal Scope = 0
)

// Rule is one scoped rule as a user wrote it.
type Rule struct {
	Pos
	Name      string
	Scope     Scope
	HasScope  bool // false: the user wrote no scope, which only block and allow may do
	Match     Conditions
	Limits    []Limit
	Action    Action
	MaxDelay  time.Duration // throttle
	Reason    string        // block
	Until     time.Time     // block; zero: for ever
	Priority  int           // lower wins; files default to 100
	Disabled  bool
	Cost      int64 // factor on the hits; 0: none given
	PostPaid  bool
	Reserve   int64 // with PostPaid: tokens taken in advance; 0: none
	Lease     Lease
	OnFailure Failure
	Response  *Response
	Penalty   *Penalty
}

// Lease is how many tokens of one counter a sidecar may have on lease at once. The zero value is as many as are of use.
type Lease int64

// NoLease: every charge is made in the store.
const NoLease Lease = -1

// most is the bound in tokens, 0 for none.
func (l Lease) most() int64 {
	switch {
	case l < 0:
		return 0
	case l == 0:
		return limit.MaxLease
	}
	return min(int64(l), limit.MaxLease)
}

// Action is what a rule does to a request that it refuses.
type Action uint8

// The actions.
const (
	Reject Action = iota
	Throttle
	LogOnly
	Block
	Allow
)

// Failure is what a rule does while the store cannot answer.
type Failure uint8

// The failure policies.
const (
	FailLocal  Failure = iota // decide in memory
	FailOpen                  // admit
	FailClosed                // refuse
	// of a rule or a node: decide in memory, against the domain's policy; Compile makes FailLocal of it
	FailStayLocal
)

// or is the policy of a rule or a node. Where that is the zero value, it is the domain's.
func (f Failure) or(domain Failure) Failure {
	switch f {
	case FailLocal:
		return domain
	case FailStayLocal:
		return FailLocal
	}
	return f
}

// Conditions select the requests of a rule: all of the given ones must hold, and one value of each is enough.
type Conditions struct {
	Endpoints []Pattern
	Methods   []string
	Users     []string
	Tenants   []string
	Tiers     []string
	CIDRs     []netip.Prefix
	Entries   map[string]string // descriptor entries that must be there

	Authenticated *bool // whether a user is known; nil: either
}

// Pattern is an endpoint pattern as written: * within a segment, ** across segments.
type Pattern struct {
	Pos
	Text string
}

// Response is the answer to a refused client.
type Response struct {
	Status     int    // 0: the door's own
	Message    string //
	Headers    []Header
	RetryAfter time.Duration // 0: computed
}

// Header is one response header.
type Header struct{ Name, Value string }

// Penalty raises a cool-down on clients that are refused again and again.
type Penalty struct {
	Threshold       int
	DetectionWindow time.Duration
	CoolDown        time.Duration
	Multipliers     []int
	DryRun          bool
}

// Cost is one row of a domain's cost table.
type Cost struct {
	Pos
	Match Conditions
	Cost  int64
}

// Account is a user, a tenant or an API key with a tier and limits of its own.
type Account struct {
	Pos
	Name   string
	Tier   string
	Limits []Limit
	Burst  int64 // holds for each of Limits; 0: none given
}
