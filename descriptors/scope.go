package descriptors

import (
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// algorithmCodes are the algorithms in keys.
var algorithmCodes = [...]string{limit.TokenBucket: "tb", limit.SlidingWindow: "sw", limit.FixedWindow: "fw",
	limit.SlidingLog: "sl"}

// limitTail is the end of a key: the limit and its algorithm.
func limitTail(l limit.Limit, place int) string {
	return keys.Tail(l.Name, place, algorithmCodes[l.Algorithm])
}

var scopeNames = [...]struct {
	scope Scope
	name  string
	attr  attribute
}{
	{ScopeTenant, "tenant", attrTenant}, {ScopeUser, "user", attrUser}, {ScopeIP, "ip", attrIP},
	{ScopeEndpoint, "endpoint", attrEndpoint},
	{ScopeAPIKey, "api_key", attrAPIKey}, {ScopeTier, "tier", attrTier}, {ScopeClient, "client", attrClient},
}

// String returns the scope as keys and pages write it: its attributes joined by +, or global.
func (s Scope) String() string {
	text := ""
	for _, named := range scopeNames {
		if s&named.scope == 0 {
			continue
		}
		if text != "" {
			text += "+"
		}
		text += named.name
	}
	if text == "" {
		return "global"
	}
	return text
}
