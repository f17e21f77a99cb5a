package journal

import "time"

// Kind is what names an identity.
type Kind uint8

// The kinds, in the order in which one is chosen for a request.
const (
	NoKind Kind = iota // there is no identity
	User
	APIKey
	Tenant
	Address
	folded // Others
	countedKey
	kinds
)

var kindWords = [kinds]string{"", "user", "api_key", "tenant", "ip", "", KeyKind}

// String returns the word before the colon in the name of an identity.
func (k Kind) String() string {
	if k >= kinds {
		return ""
	}
	return kindWords[k]
}

// Decided is one decision. Its texts are copied: they need to be valid only while Note runs.
type Decided struct {
	At       time.Time
	Domain   string
	Outcome  uint8 // an index of Config.Outcomes
	Requests int64 // 1, and 0 where the call only reports what an earlier request cost
	Cost     int64 // of the whole request, from 0

	Kind     Kind
	Identity string // its value, in plain
	Rules    []Charged

	Key     string // that the request was made with, in plain: the id of an API key, or what a mesh sends as one; "": none
	Refused bool

	Rule     string // that decided, or ""
	Endpoint string
	Latency  time.Duration

	Weight     int64 // of the event that it becomes, by Recorder.Weight; 0: it becomes none, and what follows is not read
	Method     string
	APIKey     string // what events show of the key
	IP         string // in plain
	Count      int64
	Limit      int64
	Status     int
	RetryAfter time.Duration
}

// Charged is what one rule was charged for a request.
type Charged struct {
	Rule string
	Cost int64
}
