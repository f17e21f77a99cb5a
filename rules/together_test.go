package rules

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mistakes are items of sections of a file, each wrong by itself.
var mistakes = []struct{ section, item string }{
	{"rules", "- { name: r1, scope: user, limti: 5/1m }"},
	{"rules", "- { name: r2, limit: 5/1x }"},
	{"rules", "- { name: r3, scope: user, limit: 5/1m, prioritty: 5, match: { endpoints: [\"/r3/{id}\"] } }"},
	{"rules", "- { name: r4, scope: user, limit: 5/1m, match: { endpoints: [\"/v1/*\"] } }"},
	{"rules", "- { name: r5, action: block }"},
	{"rules", "- { name: r6, action: blok, match: { endpoints: [\"/r6/a**b\"] } }"},
	{"rules", "- { name: r7, scope: ip, limit: { count: 20000, per: 1m, burst: 5, algorithm: sliding_log } }"},
	{"rules", "- { name: r8, scope: [user, ip], match: { endpoints: [/r8] }, limit: 0/1m }"},
	{"rules", "- { name: r9, scope: [user, ip], match: { endpoints: [/r9] }, limit: 5/1m }\n" +
		"- { name: r9b, scope: [user, ip], match: { endpoints: [/r9], users: [ann] }, limit: 5/1m }\n" +
		"- { name: r9c, scope: [user, ip], match: { endpoints: [/r9], users: [ann] }, limit: 5/1m }"},
	{"rules", "- { name: r10, scope: user, action: throttle, limit: { count: 5, per: 1m, algorithm: fixed_window } }"},
	{"rules", "- { name: 1.5, match: { endpoints: [/r11] }, limit: 5/1m }"},
	{"rules", "- { name: r12, scope: ip, limit: 5/1m, penalty: { threshold: 0, detection_window: 1m, cool_down: " +
		"90000d } }"},
	{"rules", "- { name: r13, scope: ip, limit: 5/1m, response: { status: 99, message: \"{what}\" } }"},
	{"rules", "- r14"},
	{"costs", "- { cost: 5, match: { endpoints: [\"/c1/{id}\"] } }"},
	{"costs", "- { cost: 0, match: { endpoints: [\"/c2/a**b\"] } }"},
	{"users", "u1: { tier: prro }"},
	{"users", "u2: { limits: [5/1s, { count: 20000, per: 1m, algorithm: sliding_log }], burst: x }"},
	{"tenants", "t1: { burst: 5 }"},
	{"descriptors", "- { key: d1, rate_limit: { unit: minut } }"},
	{"descriptors", "- { key: d2, rate_limit: { unit: minute } }"},
	{"descriptors", "- { key: d3, share_threshold: true, shadow_mode: 5 }"},
	{"descriptors", "- { keey: d4, descriptors: [{ key: d, share_threshold: true }] }"},
	{"descriptors", "- { key: d5, value: 1.5, rate_limit: { unit: day, requests_per_unit: 5, name: o, " +
		"replaces: [{ name: o }] } }"},
	{"headers", "both, of course"},
	{"penalty", "{ cool_down: soon, threshold: 5 }"},
	{"timezone", "Berlin"},
}

var line = regexp.MustCompile(`(?m)a\.yaml:\d+:\d+|in line \d+|^\d+:\d+`)

// found are the problems of a file that has these mistakes, without their places.
func found(chosen []int) map[string]bool {
	sections := map[string]string{
		"rules": "- { name: base, scope: user, match: { tiers: [pro] }, limit: 100/1m }\n", "descriptors": "- { " +
			"key: k }\n",
	}
	for _, i := range chosen {
		sections[mistakes[i].section] += mistakes[i].item + "\n"
	}
	var text strings.Builder
	text.WriteString("domain: shop\n")
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		text.WriteString(name + ":\n  " + strings.ReplaceAll(strings.TrimSpace(sections[name]), "\n", "\n  ") + "\n")
	}
	load := new(Files).compile([]source{{path: "a.yaml", text: []byte(text.String())}}, nil)
	all := map[string]bool{}
	for _, one := range brief(load.Problems) {
		all[line.ReplaceAllString(one, "")] = true
	}
	return all
}

// TestProblemsAreReportedTogether: a file with several mistakes has the problems that each of them has alone, so that
// no problem shows only when another one is mended.
func TestProblemsAreReportedTogether(t *testing.T) {
	alone := make([]map[string]bool, len(mistakes))
	for i := range mistakes {
		if alone[i] = found([]int{i}); len(alone[i]) == 0 {
			t.Errorf("nothing is wrong with %s", mistakes[i].item)
		}
	}
	if sound := found(nil); len(sound) > 0 {
		t.Fatalf("the file is wrong without a mistake: %v", sound)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		chosen := r.Perm(len(mistakes))[:2+r.IntN(len(mistakes)-2)]
		want := map[string]bool{}
		for _, i := range chosen {
			maps.Copy(want, alone[i])
		}
		if diff := cmp.Diff(want, found(chosen)); diff != "" {
			t.Fatalf("mistakes %v (-want +got):\n%s", chosen, diff)
		}
	}
}

// TestProblemsOfAFileWithoutADomain, or with a broken one, are reported beside it.
func TestProblemsOfAFileWithoutADomain(t *testing.T) {
	for head, want := range map[string]string{
		"": "the file has no domain; add `domain: NAME`, the name that Envoy's filter sends", "domain: " +
			"1.5\n": "1.5 is a " +
			"number, where text is needed; quote it: \"1.5\"",
	} {
		text := head + "rules:\n  - { name: a, limit: 5/1m }\n  - { name: a, scope: user, limit: 0/1m }\n"
		load := new(Files).compile([]source{{path: "a.yaml", text: []byte(text)}}, nil)
		all := strings.Join(brief(load.Problems), "\n")
		for _, one := range []string{want, `rule "a" has a limit and no scope`, `duplicate rule name "a"`,
			`no request can pass rule "a"`} {
			if !strings.Contains(all, one) {
				t.Errorf("%q is not reported with %q:\n%s", one, head, all)
			}
		}
	}
}
