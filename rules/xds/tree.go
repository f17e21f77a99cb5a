package xds

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// units are the wire's units of time.
var units = map[ratelimitv3.RateLimitUnit]descriptors.Unit{
	ratelimitv3.RateLimitUnit_SECOND: descriptors.Second,
	ratelimitv3.RateLimitUnit_MINUTE: descriptors.Minute,
	ratelimitv3.RateLimitUnit_HOUR:   descriptors.Hour,
	ratelimitv3.RateLimitUnit_DAY:    descriptors.Day,
	ratelimitv3.RateLimitUnit_WEEK:   descriptors.Week,
	ratelimitv3.RateLimitUnit_MONTH:  descriptors.Month,
	ratelimitv3.RateLimitUnit_YEAR:   descriptors.Year,
}

// domain makes what a rule file with the same descriptors would be decoded to.
func (w *world) domain(c *ratelimitv3.RateLimitConfig) descriptors.Domain {
	at := position(c.GetName())
	return descriptors.Domain{Pos: at, Name: c.GetDomain(), Tree: w.nodes(at, c.GetName(), c.GetDescriptors())}
}

func (w *world) nodes(at descriptors.Pos, resource string, from []*ratelimitv3.RateLimitDescriptor) []descriptors.Node {
	nodes := make([]descriptors.Node, 0, len(from))
	for _, f := range from {
		n := descriptors.Node{
			Pos: at, Key: f.GetKey(), Value: f.GetValue(), Shadow: f.GetShadowMode(), Quota: f.GetQuotaMode(),
			DetailedMetric: f.GetDetailedMetric(),
			Nodes:          w.nodes(at, resource, f.GetDescriptors()),
		}
		if f.GetMetadata() != nil {
			n.Metadata = f.GetMetadata().AsMap()
		}
		if f.GetRateLimit() != nil {
			n.Limits = []descriptors.Limit{w.limit(at, resource, f)}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// limit makes a descriptor's limit. A count of 0 is absent on the wire, and refuses everything.
func (w *world) limit(at descriptors.Pos, resource string, of *ratelimitv3.RateLimitDescriptor) descriptors.Limit {
	policy := of.GetRateLimit()
	l := descriptors.Limit{Pos: at, Limit: limit.Limit{Algorithm: limit.FixedWindow, Name: policy.GetName()}}
	for _, r := range policy.GetReplaces() {
		l.Replaces = append(l.Replaces, descriptors.Replaced{Pos: at, Name: r.GetName()})
	}
	if policy.GetUnlimited() {
		l.Unlimited = true
		return l
	}
	unit, known := units[policy.GetUnit()]
	if !known {
		w.fail(resource, "invalid rate limit unit %q of the descriptor with key %q and value %q",
			policy.GetUnit().String(), shorten(of.GetKey(), 200), shorten(of.GetValue(), 200))
		return l
	}
	l.Unit, l.Multiplier, l.Window, l.Count = unit, 1, unit.Duration(), int64(policy.GetRequestsPerUnit())
	return l
}
