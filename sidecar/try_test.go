package sidecar

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestTheLineToTryFitsTheRules runs what a sidecar prints at its start, in a shell: the second time the limit of 1
// refuses.
func TestTheLineToTryFitsTheRules(t *testing.T) {
	for name, text := range map[string]string{
		"a tree": "descriptors:\n- { key: tenant, descriptors: [{ key: plan, value: gold, rate_limit: " +
			"{ unit: day, requests_per_unit: 1 } }] }",
		"a tree with patterns": "descriptors:\n- { key: path, value: \"/it's/*\", rate_limit: { unit: day, " +
			"requests_per_unit: 1 } }",
		"a key of its own": "descriptors:\n- { key: crop, rate_limit: { unit: day, requests_per_unit: 1 } }",
		"behind what is free": "descriptors:\n- { key: a, rate_limit: { unlimited: true } }\n" +
			"- { key: b, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n" +
			"- { key: c, rate_limit: { unit: day, requests_per_unit: 1 } }",
		"users": "rules:\n- { name: r, scope: user, limit: 1/24h }",
		"all":   "rules:\n- { name: r, scope: global, limit: 1/24h }",
		"much": "rules:\n- { name: r, scope: [tenant, user, ip, endpoint], match: { tiers: [silver], " +
			"endpoints: [\"/v*/search/**\"], methods: [POST], cidrs: [\"198.51.100.0/24\"], entries: { area: north " +
			"} }, limit: 1/24h }",
		"clients": "rules:\n- { name: r, scope: client, limit: 1/24h }",
		"a tier":  "rules:\n- { name: r, scope: [tier, api_key], limit: 1/24h }",
		"an attribute": "attributes: { customer: user }\nrules:\n" +
			"- { name: r, scope: user, match: { users: [bob] }, limit: 1/24h }",
		"allowed and blocked": "rules:\n- { name: a, match: { endpoints: [\"/healthz\"] }, action: allow }\n" +
			"- { name: b, match: { users: [mallory] }, action: block }\n- { name: r, scope: ip, limit: 1/24h }",
	} {
		s := begin(t, "domain: "+strings.ReplaceAll(name, " ", "-")+"\n"+text+"\n")
		servers.Await(t, "the line to try of "+name, func() error { return s.logs("try: curl -i ") })
		_, line, _ := strings.Cut(s.log.String(), "try: curl -i ")
		line, _, _ = strings.Cut(line, "\n")
		for i, want := range []string{"200", "429"} {
			got, err := exec.Command("sh", "-c", "curl -s -o /dev/null -w '%{http_code}' "+line).CombinedOutput()
			if err != nil || string(got) != want {
				t.Errorf("%s: number %d of %s: %s, %v, want %s", name, i+1, line, got, err, want)
			}
		}
	}
}

// TestThereIsNoLineToTryWhereNothingIsLimited: it would show nothing.
func TestThereIsNoLineToTryWhereNothingIsLimited(t *testing.T) {
	s := begin(t, "domain: shop\ndescriptors:\n- { key: user, rate_limit: { unlimited: true } }\n")
	if s.logs("try: curl") == nil {
		t.Errorf("the log has a line to try:\n%s", s.log)
	}
}
