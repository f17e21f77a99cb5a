package descriptors

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

var unitWords = map[string]Unit{
	"second": Second, "minute": Minute, "hour": Hour, "day": Day, "week": Week, "month": Month, "year": Year,
}

// node reads "KEY=VALUE > KEY : 10/minute[*N] FLAGS" and files it below the nodes that are there.
func (s *script) node(t testing.TB, args []string) {
	t.Helper()
	nodes := &s.domain.Tree
	var n *Node
	i := 0
	for ; i < len(args) && args[i] != ":"; i++ {
		if args[i] == ">" {
			continue
		}
		key, value, _ := strings.Cut(args[i], "=")
		n = nil
		for j := range *nodes {
			if (*nodes)[j].Key == key && (*nodes)[j].Value == value {
				n = &(*nodes)[j]
			}
		}
		if n == nil {
			*nodes = append(*nodes, Node{Key: key, Value: value})
			n = &(*nodes)[len(*nodes)-1]
		}
		nodes = &n.Nodes
	}
	for _, word := range args[min(i+1, len(args)):] {
		n.flag(t, word)
	}
}

func (n *Node) flag(t testing.TB, word string) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	last := func() *Limit { return &n.Limits[len(n.Limits)-1] }
	switch key {
	case "shadow":
		n.Shadow = true
	case "quota":
		n.Quota = true
	case "detailed":
		n.DetailedMetric = true
	case "value_to_metric":
		n.ValueToMetric = true
	case "share":
		n.ShareThreshold = true
	case "post_paid":
		n.PostPaid = true
	case "name":
		last().Name = value
	case "replaces":
		last().Replaces = append(last().Replaces, Replaced{Name: value})
	case "unlimited":
		n.Limits = append(n.Limits, Limit{Unlimited: true})
	case "algorithm":
		last().Algorithm = algorithm(t, value)
		if last().Algorithm == limit.TokenBucket {
			last().Burst = last().Count
		}
	case "per":
		last().Unit, last().Multiplier, last().Window = UnitUnknown, 0, duration(t, value)
	default:
		n.Limits = append(n.Limits, parseTreeLimit(t, word))
	}
}

func parseTreeLimit(t testing.TB, word string) Limit {
	t.Helper()
	o := parseOverride(t, word)
	l := Limit{Unit: o.Unit, Multiplier: o.Multiplier}
	l.Algorithm, l.Count, l.Window = limit.FixedWindow, int64(o.Count),
		o.Unit.Duration()*time.Duration(max(1, o.Multiplier))
	return l
}

func parseOverride(t testing.TB, word string) Override {
	t.Helper()
	count, unit, _ := strings.Cut(word, "/")
	unit, times, multiplied := strings.Cut(unit, "*")
	o := Override{Count: uint32(number(t, count)), Unit: unitWords[unit], Multiplier: 1}
	if multiplied {
		o.Multiplier = uint32(number(t, times))
	}
	return o
}

// parseRequest reads descriptors with ; between them: entries KEY=VALUE, hits @N (a refund: @-N), an override
// !10/minute*N, "-" for no entries. "#N" are the hits of the request, "domain:NAME" its domain, "none" no descriptors.
func parseRequest(t testing.TB, words []string) *Request {
	t.Helper()
	req := &Request{Domain: "shop", Descriptors: []Descriptor{{}}}
	for _, word := range words {
		d := &req.Descriptors[len(req.Descriptors)-1]
		switch {
		case word == ";":
			req.Descriptors = append(req.Descriptors, Descriptor{})
		case word == "-":
		case word == "none":
			req.Descriptors = nil
			return req
		case word[0] == '@':
			d.HitsGiven, d.NegativeHits = true, word[1] == '-'
			d.Hits = hits(t, strings.TrimPrefix(word[1:], "-"))
		case word[0] == '#':
			req.Hits = hits(t, word[1:])
		case word[0] == '!':
			o := parseOverride(t, word[1:])
			d.Override = &o
		case strings.HasPrefix(word, "domain:"):
			req.Domain = word[len("domain:"):]
		default:
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, Entry{key, value})
		}
	}
	return req
}

// parsePenalty reads THRESHOLD/WINDOW/COOL_DOWN.
func parsePenalty(t testing.TB, text string) *Penalty {
	t.Helper()
	parts := strings.Split(text, "/")
	return &Penalty{
		Threshold: int(number(t, parts[0])), DetectionWindow: duration(t, parts[1]), CoolDown: duration(t, parts[2]),
	}
}

func hits(t testing.TB, text string) uint64 {
	t.Helper()
	if text == "max" {
		return math.MaxUint64
	}
	n := must.Get(strconv.ParseUint(text, 10, 64))(t)
	return n
}
