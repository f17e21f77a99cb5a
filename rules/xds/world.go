package xds

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

type digest [sha256.Size]byte

// world is all that one response holds.
type world struct {
	version   string
	resources int
	digest    digest           // of the content, in any order
	set       *descriptors.Set // nil: refused
	problems  []descriptors.Problem
}

// take reads, checks and compiles a response. It is all or nothing: one bad resource refuses the response.
func (s *Source) take(r *discoveryv3.DiscoveryResponse) (w *world) {
	w = &world{version: r.GetVersionInfo(), resources: len(r.GetResources()), digest: digestOf(r.GetResources())}
	if fault := rules.Guard(func() { s.compile(w, r) }); fault != nil {
		s.cfg.OnPanic(fault)
		w.set = nil
		w.fail("", "the resources made the compiler panic: %v", fault)
	}
	return w
}

// compile fills in the set of a response, or its problems.
func (s *Source) compile(w *world, r *discoveryv3.DiscoveryResponse) {
	configs := w.decode(r, s.cfg.MaxMemory)
	if len(w.problems) > 0 {
		return
	}
	configs = w.join(configs, s.cfg.MergeDomains)
	if len(w.problems) > 0 {
		return
	}
	w.digest = arrange(configs)
	domains := make([]descriptors.Domain, len(configs))
	for i, c := range configs {
		domains[i] = w.domain(c)
		domains[i].ChargeDenied = !s.cfg.SpareDenied
	}
	if len(w.problems) > 0 {
		return
	}
	set, problems := descriptors.Compile(domains, s.cfg.Compile)
	if set == nil {
		problems = slices.DeleteFunc(problems, func(p descriptors.Problem) bool { return p.Warning })
	}
	w.set, w.problems = set, problems[:min(len(problems), maxProblems)]
}

// hash is a short hash of the content and of the set that came of it.
func (w *world) hash() string {
	sum := sha256.New()
	sum.Write(w.digest[:])
	w.set.Dump(sum)
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// maxProblems is how many problems of a response are logged and sent.
const maxProblems = 10

// fail adds a problem with a resource; an empty name is the whole response.
func (w *world) fail(resource, format string, args ...any) {
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, descriptors.Problem{Pos: position(resource),
			Text: fmt.Sprintf(format, args...)})
	}
}

// position is where something of a resource was written, for pages and problems.
func position(resource string) descriptors.Pos {
	return descriptors.Pos{File: strings.TrimSuffix("xds:"+shorten(resource, 300), ":")}
}

// reason is why a response is refused.
func (w *world) reason() string {
	return shorten(strings.ReplaceAll(strings.TrimSpace(rules.FormatProblems(w.problems)), "\n", "; "), maxReason)
}

// decode reads the resources, after a look at what they will take.
func (w *world) decode(r *discoveryv3.DiscoveryResponse, most int64) []*ratelimitv3.RateLimitConfig {
	all := size{most: most}
	configs := make([]*ratelimitv3.RateLimitConfig, 0, w.resources)
	for i, resource := range r.GetResources() {
		err := all.resource(resource.GetValue())
		if err != nil {
			w.fail("", "resource %d of %d: %v", i+1, w.resources, err)
			return nil
		}
		c := &ratelimitv3.RateLimitConfig{}
		err = anypb.UnmarshalTo(resource, c, proto.UnmarshalOptions{DiscardUnknown: true})
		switch {
		case err != nil:
			w.fail("", "resource %d of %d cannot be read as %s: %s", i+1, w.resources, typeURL,
				shorten(err.Error(), 200))
			continue
		case c.GetDomain() == "":
			w.fail(c.GetName(), "resource %d of %d has no domain", i+1, w.resources)
		}
		if c.GetName() == "" {
			c.Name = c.GetDomain()
		}
		configs = append(configs, c)
	}
	return configs
}

// join merges resources of one domain, where that is allowed, and then descriptors of one level that have the same key
// and value.
func (w *world) join(configs []*ratelimitv3.RateLimitConfig, merge bool) []*ratelimitv3.RateLimitConfig {
	slices.SortStableFunc(configs, func(a, b *ratelimitv3.RateLimitConfig) int {
		return strings.Compare(a.GetName(),
			b.GetName())
	})
	known := map[string]*ratelimitv3.RateLimitConfig{}
	joined := configs[:0:0]
	for _, c := range configs {
		before := known[c.GetDomain()]
		switch {
		case before == nil:
			known[c.GetDomain()] = c
			joined = append(joined, c)
		case merge:
			before.Descriptors = append(before.Descriptors, c.GetDescriptors()...)
		default:
			w.fail(c.GetName(),
				"duplicate domain %q, which the resource %q has already; set MERGE_DOMAIN_CONFIG=true to join "+
					"them", shorten(c.GetDomain(), 200), shorten(before.GetName(), 200))
		}
	}
	for _, c := range joined {
		c.Descriptors = w.merge(c.GetName(), c.GetDomain(), c.GetDescriptors())
	}
	return joined
}

// merge joins the descriptors of one level that have the same key and value: the limit of one, the children of all.
// Envoy Gateway sends such ones for valid policies. Two different limits are a problem.
func (w *world) merge(resource, above string,
	nodes []*ratelimitv3.RateLimitDescriptor) []*ratelimitv3.RateLimitDescriptor {
	known := make(map[descriptors.Entry]*ratelimitv3.RateLimitDescriptor, len(nodes))
	merged := nodes[:0:0]
	for _, n := range nodes {
		entry := descriptors.Entry{Key: n.GetKey(), Value: n.GetValue()}
		before := known[entry]
		if before == nil {
			known[entry] = n
			merged = append(merged, n)
			continue
		}
		if !absorb(before, n) {
			w.fail(resource, "duplicate descriptor composite key '%s' with two different limits; keep one of them",
				shorten(above+"."+entry.Key+"_"+entry.Value, 400))
		}
	}
	for _, n := range merged {
		n.Descriptors = w.merge(resource, above+"."+n.GetKey()+"_"+n.GetValue(), n.GetDescriptors())
	}
	return merged
}

// absorb adds a descriptor to another one of the same key and value. It returns false where both have limits that
// differ.
func absorb(to, from *ratelimitv3.RateLimitDescriptor) bool {
	children := append(to.GetDescriptors(), from.GetDescriptors()...)
	to.Descriptors, from.Descriptors = nil, nil
	defer func() { to.Descriptors = children }()
	switch {
	case from.GetRateLimit() == nil:
		return true
	case to.GetRateLimit() == nil:
		to.RateLimit, to.ShadowMode, to.DetailedMetric = from.GetRateLimit(), from.GetShadowMode(),
			from.GetDetailedMetric()
		to.QuotaMode, to.Metadata = from.GetQuotaMode(), from.GetMetadata()
		return true
	}
	return proto.Equal(to, from)
}

// arrange sorts all levels whose order means nothing, and returns a digest of the content. Servers send resources and
// descriptors in random order.
func arrange(configs []*ratelimitv3.RateLimitConfig) (sum digest) {
	hash := sha256.New()
	var text []byte
	for _, c := range configs {
		sortLevel(c.GetDescriptors())
		// Marshalling fails on texts that are not UTF-8 only, and those were not decoded.
		text, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(text[:0], c)
		fmt.Fprintf(hash, "%d\n", len(text))
		hash.Write(text)
	}
	return digest(hash.Sum(nil))
}

func sortLevel(nodes []*ratelimitv3.RateLimitDescriptor) {
	if !overlap(nodes) {
		slices.SortFunc(nodes, func(a, b *ratelimitv3.RateLimitDescriptor) int {
			return cmp.Or(strings.Compare(a.GetKey(), b.GetKey()), strings.Compare(a.GetValue(), b.GetValue()))
		})
	}
	for _, n := range nodes {
		sortLevel(n.GetDescriptors())
	}
}

func joined(n *ratelimitv3.RateLimitDescriptor) string { return n.GetKey() + "_" + n.GetValue() }

// overlap reports whether two patterns of a level may match the same entry. Then the first in the server's order wins,
// so the order is part of the content. Patterns differ for sure where their texts differ before the first star.
func overlap(nodes []*ratelimitv3.RateLimitDescriptor) bool {
	var prefixes []string
	for _, n := range nodes {
		prefix, _, pattern := strings.Cut(joined(n), "*")
		if pattern {
			prefixes = append(prefixes, prefix)
		}
	}
	slices.Sort(prefixes)
	for i := 1; i < len(prefixes); i++ {
		if strings.HasPrefix(prefixes[i], prefixes[i-1]) {
			return true
		}
	}
	return false
}

// digestOf distinguishes responses that cannot be read.
func digestOf(resources []*anypb.Any) digest {
	sums := make([][]byte, len(resources))
	for i, r := range resources {
		one := sha256.Sum256(append([]byte(r.GetTypeUrl()+"\n"), r.GetValue()...))
		sums[i] = one[:]
	}
	slices.SortFunc(sums, bytes.Compare)
	return sha256.Sum256(bytes.Join(sums, nil))
}
