package descriptors

import (
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Request is what a door asks about. Its strings may hold any bytes.
type Request struct {
	Door        string // the name of the door that it came by
	Domain      string
	Descriptors []Descriptor
	Hits        uint64 // of the whole request; 0 means 1
	Excess      string // why the request is refused unread: it is larger than a request may be; empty: it is not
	Unread      int    // descriptors of a request that is refused for their number
	Part        Part   // the zero value but in replays

	Evidence *identity.Evidence // ext_authz: who may be asking; the engine resolves it into Subject
	Profiles *Profiles          // what is known about who asks beside the rules; the engine looks it up; nil: nothing
	// ext_authz: who asks for what, and Descriptors are not read; nil over RLS, where the descriptors hold that
	Subject *Subject
}

// Part is which of the two questions about a request that is paid afterwards this is. Replays set it: one line of a log
// is both questions, over either door.
type Part uint8

// The parts.
const (
	Whole  Part = iota // as the descriptors have it
	Coming             // Hits are charged, post-paid limits not yet
	Over               // Hits are charged to post-paid limits alone
)

// Subject is what ext_authz knows about a request. Path, Method and Host are as Envoy sent them.
type Subject struct {
	Client  identity.Client
	Path    string // with its query
	Method  string
	Host    string
	Entries []Entry // context extensions, for conditions on entries
}

// Descriptor is one descriptor of a request.
type Descriptor struct {
	Entries      []Entry
	Hits         uint64    // with HitsGiven
	HitsGiven    bool      // an explicit 0 is a peek
	NegativeHits bool      // the hits are given back
	Override     *Override // a limit that the mesh sends along, in place of the tree
}

// Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// Override is a limit in a descriptor. One with an unknown unit or a multiplier of 0 cannot be read and is ignored; a
// window beyond limit.MaxWindow is taken as that.
type Override struct {
	Count      uint32
	Unit       Unit
	Multiplier uint32 // 1 unless given
}

// Effect is the compiled behaviour of one limit of a rule or of a tree's node: shared by all requests, never changed.
type Effect struct {
	Name       string       // of the limit, else of the rule; trees: of the limit; may be empty
	Rule       string       // the rule's name; trees: of the limit, else the dotted path of the node
	Limit      limit.Limit  // the zero value for an unlimited one, a block and an allow
	Unit       Unit         // in which Limit is reported
	Multiplier uint32       // of Unit
	Calendar   CalendarUnit // its windows are those of a calendar; 0: none
	// what it counts by, as "tenant+user" or "global"; ScopeDescriptor for trees and overrides; empty for a block or
	// allow without one
	Scope     string
	Tree      bool   // is in a descriptor tree, or is an override
	Account   string // the user, tenant or API key whose own limit it is; empty for rules and trees
	Mode      limit.Mode
	QuotaToo  bool // it is in shadow, and a quota as well: one that always has room
	Action    Action
	OnFailure Failure
	Reserve   int64 // tokens that a post-paid request takes in advance; 0: none
	Response  *Response
	Measure
	Metadata map[string]any // never written to
	Metric   []string       // the levels of the reference server's metric key
	Dynamic  bool           // Metric depends on the request: see Term.Metric
	compiled
}

// Measure is what an action has besides a limit.
type Measure struct {
	Reason   string        // of a block
	Until    time.Time     // of a block; zero: for ever
	MaxDelay time.Duration // of a throttle
	Penalty  *Penalty      // of a rule that has one
}

// compiled is what this room alone needs of an effect.
type compiled struct {
	class uint32 // of its charges
	lease int64  // of its charges
	from  origin // what it was compiled from, for Dump
}

// Shadow reports whether the limit is counted and never enforced.
func (e *Effect) Shadow() bool { return e.Mode == limit.Shadow }

// Quota reports whether the limit refuses only together with the other quotas of its request.
func (e *Effect) Quota() bool { return e.Mode == limit.Quota }

// Term is where a charge came from: its Effect, and the descriptor on which it reports.
type Term struct {
	Effect     *Effect
	Descriptor int      // index into Request.Descriptors; -1: the request has none
	Metric     []string // the levels of the metric key; Effect.Metric unless Effect.Dynamic
	Settled    int64    // of a post-paid cost: what its request had taken in advance, which the charge is without
}

// Knows returns the attributes that the last request had, whose domain has rules.
func (m *Match) Knows() Scope { return m.scratch.attrs.scope() }

// Match is what a request comes to. It is made to be used again: Reset keeps the memory.
type Match struct {
	Known     bool           // the domain has a configuration
	Charges   []limit.Charge // to be spent together
	Terms     []Term         // Terms[i] is about Charges[i]
	Unlimited []Term         // limits that matched and never refuse (`unlimited`)
	Block     *Effect        // a block applies: refused, nothing is charged
	Exempt    *Effect        // an allow applies: admitted, nothing is charged
	// the path is long, and servers read it in different ways: it is not matched, and nothing is charged
	LongPath  bool
	BadLimits int // overrides that could not be read
	Gate      int // the number, from 1, of the charge that asks about the domain's penalty; 0: none
	Domain    *CompiledDomain
	scratch   scratch
}
