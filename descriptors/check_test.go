package descriptors

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// problems compiles a domain of script lines after changing it, and returns the problems that Compile reports, one line
// each.
func problems(t *testing.T, change func(*Domain), lines ...string) []string {
	t.Helper()
	s := script{domain: Domain{Pos: Pos{"shop.yaml", 1, 1}, Name: "shop"}}
	for _, line := range lines {
		s.configure(t, strings.Fields(line))
	}
	if change != nil {
		change(&s.domain)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	set, found := Compile([]Domain{s.domain}, Options{Now: func() time.Time { return now }})
	var out []string
	failed := false
	for _, p := range found {
		kind := "error: "
		if p.Warning {
			kind = "warning: "
		}
		failed = failed || !p.Warning
		out = append(out, kind+p.Text)
	}
	if failed != (set == nil) {
		t.Errorf("set %v with problems %q", set, out)
	}
	return out
}

// wants fails unless there is exactly one problem and it begins with kind and contains the rest.
func wants(t *testing.T, got []string, want string) {
	t.Helper()
	kind, text, _ := strings.Cut(want, ": ")
	if len(got) != 1 || !strings.HasPrefix(got[0], kind+": ") || !strings.Contains(got[0], text) {
		t.Errorf("problems %q, want one with %q", got, want)
	}
}

// TestProblems has one line of configuration, or one change, for each way to be wrong.
func TestProblems(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, c := range []struct{ line, want string }{
		{"attribute x=tenent", `error: "tenent" must be an attribute`},
		{"set ipv6_prefix=129", "error: ipv6_prefix 129"},
		{"cost 0 methods=GET", "error: cost 0"},
		{"cost 9007199254740993 methods=GET", "error: cost 9007199254740993"},
		{"cost 1 endpoints=/a?b", "error: query"},
		{"user a limits=x:1/1s,x:2/1s", `error: duplicate limit name "x"`},
		{"user a limits=1/1s/sliding_window burst=5", "error: use token_bucket"},
		{"user a limits=1/1s,unlimited", "error: unlimited stands beside"},
		{"user a burst=5", "warning: no limits"},
		{"user a limits=1/24h burst=1000000000", "error: hundred years"},
		{"rule " + long + " scope=user limit=1/1s", "error: longer than 256"},
		{`rule a"b scope=user limit=1/1s`, "error: quote"},
		{"rule a limit=1/1s", "error: no scope"},
		{"rule a scope=user", "error: no limit"},
		{"rule a scope=user users=m limit=1/1s action=block", "error: would never count"},
		{"rule a scope=user limit=10001/1s/sliding_log", "error: 10000"},
		{"rule a scope=user limit=1/87601h", "error: window"},
		{"rule a scope=user limit=-1/1s", "error: count -1"},
		{"rule a scope=user limit=1/1s/sliding_window post_paid", "error: token_bucket"},
		{"rule a scope=user limit=1/1s cost=-1", "error: cost -1"},
		{"rule a scope=user limit=1/1s endpoints=/a**b", "error: ** inside"},
		{"rule a scope=user limit=1/1s endpoints=/a/..;/b", "error: dot segment that servers read in different ways"},
		{"rule a scope=user limit=1/1s endpoints=/%zz", "error: without two hex digits"},
		{"rule a scope=user limit=1/1s endpoints=/a%2a", "error: an escaped star"},
		{"rule a scope=user limit=1/1s endpoints=/report;format=csv", "warning: taken for \"/report\""},
		{"rule a scope=user limit=1/1s endpoints=/a%2Fb", "warning: taken for \"/a/b\""},
		{"rule a scope=user limit=0/1s", "warning: no request can pass"},
		{"rule a scope=user limit=1/1s authenticated=false", "warning: can never apply"},
		{"rule a scope=ip limit=1/1s users=m authenticated=false", "warning: can never apply"},
		{"rule a scope=client+user limit=1/1s", "warning: client and by user"},
		{"rule a scope=tier limit=1/1s penalty=3/10m/1m", "warning: all clients together"},
		{"rule a scope=user limit=5/1s reserve=2", "error: needs post_paid"},
		{"rule a scope=user limit=5/1s post_paid reserve=6", "error: above the 5"},
		{"rule a scope=user limit=5/1s post_paid reserve=-1", "error: reserve -1"},
		{"set penalty=3/1h/1m", "warning: counts refusals by rules"},
		{"rule a scope=user limit=5/1s cost=6", "warning: cost of 6 is above the 5"},
		{"rule a scope=user limit=1/1s reason=x", "warning: action: block"},
		{"rule a action=block until=2025-01-01T00:00:00Z", "warning: until has passed"},
		{"rule a action=block", "error: would block every request"},
		{"rule a action=allow", "warning: exempts every request"},
		{"rule a scope=user limit=1/1s users=,b", "warning: empty name"},
		{"node =x : 1/minute", "error: empty key"},
		{"node a : 1/minute share", "error: share_threshold without"},
		{"node a : 1/minute name=x replaces=x", "error: same descriptor"},
		{"node a : 1/minute replaces=", "error: empty replaces"},
		{"node a : 1/minute post_paid", "error: token_bucket"},
		{"node a : post_paid", "warning: no effect"},
		{"node a : unlimited 1/minute", "error: unlimited stands beside"},
		{"node a : 1/year*11", "error: window"},
	} {
		t.Run(c.line, func(t *testing.T) { wants(t, problems(t, nil, c.line), c.want) })
	}
}

// TestProblemsOfTwoLines are about two things that do not go together.
func TestProblemsOfTwoLines(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"rule a scope=user limit=1/1s ; rule a scope=ip limit=1/1s", `error: duplicate rule name "a"`},
		{"rule a scope=user limit=1/1s ; rule b scope=user limit=1/1s", `warning: rule "b" can never apply`},
		{"rule a scope=user limit=1/1s ; rule b scope=user limit=1/1s priority=1", `warning: rule "a" can never apply`},
		{"rule a scope=user endpoints=/a,/b limit=1/1s ; rule b scope=user endpoints=/b/,a limit=1/1s",
			`warning: rule "b" can never apply`},
		{"user a tier=x ; user a tier=y", `error: duplicate user "a"`},
		{"key a limits=1/1s ; key a limits=2/1s", `error: duplicate key "a"`},
		{"node a=x* : 1/minute ; node a=xy* : 1/minute", "warning: 'shop.a_xy*' can never apply"},
		{"node a : 1/minute ; node a=* : 1/minute", "warning: 'shop.a' can never apply"},
		{"node a* : 1/minute ; node ab* : 1/minute", "warning: 'shop.ab*' can never apply"},
	} {
		t.Run(c.lines, func(t *testing.T) {
			wants(t, problems(t, nil, strings.Split(c.lines, " ; ")...), c.want)
		})
	}
}

// TestForeignEndpoints: what other tools would read is reported with the pattern to write.
func TestForeignEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"/users/{id}": "/users/*", "/orders/:id": "/orders/*", ":id": "/*", "^/api/.*$": "/api/**",
		"/users/<int:id>/posts": "/users/*/posts",
		"/files/{path...}":      "/files/**", "/files/{*path}": "/files/**", "/f/<path:name>": "/f/**",
		"/users/{id:[0-9]+}": "/users/*", `^/v\d+/users/[^/]+$`: "/v*/users/*", `/a\.json$`: "/a.json",
		"^/api": "/api/**", "^/api/": "/api/**",
		"/api/.*": "/api/**", "/(en|de)/home": "/*/home", "/v1/users/(.*)$": "/v1/users/**", "^/a/.+/b$": "/a/**/b",
		"/v{version}/x": "/v*/x",
	} {
		got := problems(t, nil, "rule a scope=user limit=1/1s endpoints="+text)
		wants(t, got, fmt.Sprintf("warning: did you mean %q?", want))
	}
}

// TestPrefixes: one segment below a prefix is reported, unless the domain is about what is further below as well.
func TestPrefixes(t *testing.T) {
	const rule = "rule a scope=user limit=1/1s endpoints="
	for _, text := range []string{"/api/v1/*", "/api/*", "/v2/*", "/x/admin/*", "/v1beta1/*"} {
		prefix := strings.TrimSuffix(text, "*")
		wants(t, problems(t, nil, rule+text), fmt.Sprintf("warning: so %sa and not %sa/b", prefix, prefix))
		for _, other := range []string{"**", "*/x", "a/b"} {
			got := problems(t, nil, rule+text, "rule b scope=user limit=1/1s endpoints="+prefix+other)
			if len(got) > 0 {
				t.Errorf("%s beside %s: %q", text, prefix+other, got)
			}
		}
	}
	for _, text := range []string{"/users/*", "/api/v1/**", "/api", "/api/v1/users/*", "/*/v1", "/apis"} {
		if got := problems(t, nil, rule+text); len(got) > 0 {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestNoProblems: what looks alike and is right.
func TestNoProblems(t *testing.T) {
	for _, lines := range []string{
		"node a=b_c : 1/minute ; node a_b=c : 1/minute",
		"node a=xy* : 1/minute ; node a=x* : 1/minute",
		"node a=x : 1/minute ; node a : 1/minute",
		"node a : 0/minute",
		"rule a scope=user limit=1/1s ; rule b scope=user limit=1/1s disabled",
		"rule a scope=user limit=1/1s ; rule b scope=user limit=1/1s action=log_only",
		"rule a scope=user limit=1/1s ; rule b scope=ip limit=1/1s",
		"rule a scope=user limit=1/1s tiers=x ; rule b scope=user limit=1/1s tiers=y",
		"rule a action=allow endpoints=/healthz ; rule b action=block users=m until=2027-01-01T00:00:00Z",
		"rule a scope=user limit=unlimited",
		"rule a scope=user limit=5/1s cost=6 post_paid",
	} {
		if got := problems(t, nil, strings.Split(lines, " ; ")...); len(got) > 0 {
			t.Errorf("%s: %q", lines, got)
		}
	}
}

// TestProblemsOfStructs are those that a line cannot show.
func TestProblemsOfStructs(t *testing.T) {
	one := Rule{Name: "a", Scope: ScopeUser, HasScope: true, Limits: oneLimit}
	bucket := []Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Burst: 1, Window: time.Second}}}
	with := func(change func(*Rule)) func(*Domain) {
		return func(d *Domain) {
			r := one
			change(&r)
			d.Rules = []Rule{r}
		}
	}
	response := func(r Response) func(*Domain) { return with(func(rule *Rule) { rule.Response = &r }) }
	penalty := &Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: time.Second}
	for name, c := range map[string]struct {
		change func(*Domain)
		want   string
	}{
		"empty domain":      {func(d *Domain) { d.Name = "" }, "error: domain is empty"},
		"control in domain": {func(d *Domain) { d.Name = "a\nb" }, "error: control bytes"},
		"no rule name":      {with(func(r *Rule) { r.Name = "" }), "error: no name"},
		"control in name":   {with(func(r *Rule) { r.Name = "a\rb" }), "error: control bytes"},
		"control in reason": {func(d *Domain) {
			d.Rules = []Rule{{Name: "a", Action: Block, Reason: "a\x7f", Match: Conditions{Users: []string{"m"}}}}
		}, "error: control bytes"},
		"no UTF-8":     {with(func(r *Rule) { r.Name = "a\xff" }), "error: control bytes"},
		"header name":  {response(Response{Headers: []Header{{"a b", "x"}}}), "error: header name"},
		"header value": {response(Response{Headers: []Header{{"a", "x\r\ny: z"}}}), "error: printable ASCII"},
		"long header name": {response(Response{Headers: []Header{{strings.Repeat("a", 257), "x"}}}),
			"error: longer than 256"},
		"long header value": {response(Response{Headers: []Header{{"a", strings.Repeat("a", 4097)}}}),
			"error: has 4097 bytes: a value has at most 4096"},
		"message":     {response(Response{Message: "a\nb"}), "error: control bytes"},
		"variable":    {response(Response{Message: "{retry} {limit}"}), "error: has {retry}, which is unknown"},
		"status":      {response(Response{Status: 99}), "error: status 99"},
		"retry after": {response(Response{RetryAfter: -1}), "error: retry_after"},
		"no max_delay": {with(func(r *Rule) {
			r.Action, r.Disabled, r.Limits = Throttle, true, bucket
		}), "error: max_delay"},
		"long max_delay": {with(func(r *Rule) {
			r.Action, r.MaxDelay, r.Limits = Throttle, time.Hour, bucket
		}), "warning: longer than any answer is held"},
		"max_delay alone": {with(func(r *Rule) { r.MaxDelay = time.Second }), "warning: action: throttle"},
		"cost header":     {func(d *Domain) { d.CostHeader = "x cost" }, "error: header name"},
		"penalty for all": {with(func(r *Rule) { r.Penalty, r.Scope = penalty, ScopeEndpoint }),
			"warning: penalty of rule \"a\" hits all clients together"},
		"penalty of a block": {func(d *Domain) {
			d.Rules = []Rule{{Name: "a", Action: Block, Penalty: penalty, Match: Conditions{Users: []string{"m"}}}}
		}, "warning: penalty of rule \"a\" has no effect"},
		"cidr": {with(func(r *Rule) { r.Match.CIDRs = make([]netip.Prefix, 1) }), "error: cidr cannot be read"},
		"count unset": {func(d *Domain) {
			d.Tree = []Node{{Key: "a", Limits: []Limit{{Limit: oneLimit[0].Limit, CountUnset: true}}}}
		}, "warning: requests_per_unit is missing in 'shop.a'"},
		"unlimited unit": {func(d *Domain) {
			d.Tree = []Node{{Key: "a", Limits: []Limit{{Unlimited: true, Unit: Day}}}}
		}, "error: when unlimited"},
		"duplicate node": {func(d *Domain) {
			d.Tree = []Node{{Key: "a", Nodes: []Node{{Key: "b", Value: "c"}, {Key: "b", Value: "c"}}}}
		}, "error: duplicate descriptor composite key 'shop.a.b_c'"},
		"empty user": {func(d *Domain) { d.Users = []Account{{}} }, "error: empty name"},
		"no algorithm": {with(func(r *Rule) {
			r.Limits = []Limit{{Limit: limit.Limit{Count: 1, Window: 1e9}}}
		}), "error: algorithm"},
	} {
		t.Run(name, func(t *testing.T) { wants(t, problems(t, c.change), c.want) })
	}
}

// TestPenaltyBounds: each number of a penalty out of bounds is an error.
func TestPenaltyBounds(t *testing.T) {
	good := Penalty{Threshold: 3, DetectionWindow: time.Minute, CoolDown: time.Minute, Multipliers: []int{1, 24 * 60}}
	for name, change := range map[string]func(*Penalty){
		"threshold":   func(p *Penalty) { p.Threshold = 0 },
		"much":        func(p *Penalty) { p.Threshold = limit.MaxThreshold + 1 },
		"window":      func(p *Penalty) { p.DetectionWindow = 0 },
		"long window": func(p *Penalty) { p.DetectionWindow = limit.MaxWindow + 1 },
		"cool_down":   func(p *Penalty) { p.CoolDown = limit.MaxWindow + 1 },
		"multiplier":  func(p *Penalty) { p.Multipliers = []int{1, 0} },
	} {
		p := good
		change(&p)
		got := problems(t, func(d *Domain) {
			d.Rules = []Rule{{Name: "a", Scope: ScopeIP, HasScope: true, Limits: oneLimit, Penalty: &p}}
		})
		if len(got) != 1 || !strings.HasPrefix(got[0], "error: penalty") {
			t.Errorf("%s: problems %q", name, got)
		}
	}
}

// TestPenaltyWithinBounds: the last number that is right is right, one multiplier too many is not, and nor is a
// cool-down that would last for more than a day.
func TestPenaltyWithinBounds(t *testing.T) {
	many := slices.Repeat([]int{1}, limit.MaxMultipliers)
	for _, c := range []struct {
		p    Penalty
		want int
	}{
		{Penalty{Threshold: limit.MaxThreshold, DetectionWindow: limit.MaxWindow, CoolDown: time.Minute,
			Multipliers: []int{1, 24 * 60}}, 0},
		{Penalty{Threshold: 1, DetectionWindow: time.Microsecond, CoolDown: 24 * time.Hour}, 0},
		{Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: time.Second, Multipliers: many}, 0},
		{Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: time.Second, Multipliers: append(many, 1)}, 1},
		{Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: time.Minute, Multipliers: []int{24*60 + 1, 1}},
			1},
		{Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: time.Minute, Multipliers: []int{1 << 40}}, 1},
		{Penalty{Threshold: 1, DetectionWindow: time.Second, CoolDown: 24*time.Hour + 1}, 1},
	} {
		got := problems(t, func(d *Domain) {
			d.Rules = []Rule{{Name: "a", Scope: ScopeIP, HasScope: true, Limits: oneLimit, Penalty: &c.p}}
		})
		if len(got) != c.want {
			t.Errorf("%+v: problems %q, want %d", c.p, got, c.want)
		}
	}
}

// TestProblemsThatNoLineHas are those of what the lines of the other tests cannot express.
func TestProblemsThatNoLineHas(t *testing.T) {
	oneLimit := []Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: time.Second}}}
	r := Rule{Name: "a", Scope: ScopeUser, HasScope: true, Limits: oneLimit}
	for want, change := range map[string]func(){
		"warning: an entry with an empty key": func() { r.Match.Entries = map[string]string{"": "x"} },
		"error: throttles, which needs algorithm: token_bucket, not fixed_window": func() {
			r.Match.Entries, r.Action, r.MaxDelay = nil, Throttle, time.Second
		},
	} {
		before := r
		change()
		wants(t, problems(t, func(d *Domain) { d.Rules = []Rule{r} }), want)
		r = before
	}
}

// TestAllProblemsAtOnce: one mistake does not hide the next, and each has its place.
func TestAllProblemsAtOnce(t *testing.T) {
	at := func(line int) Pos { return Pos{"shop.yaml", line, 3} }
	set, found := Compile([]Domain{
		{Pos: at(1), Name: "shop", Rules: []Rule{{Pos: at(5), Name: "a"}, {Pos: at(6), Name: "a", Action: Allow,
			Match: Conditions{Users: []string{"m"}}}}},
		{Pos: Pos{"other.yaml", 1, 1}, Name: "shop",
			Tree: []Node{{Pos: at(9), Key: "k", Limits: []Limit{{Pos: at(10)}}}}},
	}, Options{})
	if set != nil {
		t.Fatal("a set in spite of errors")
	}
	var lines []int
	for _, p := range found {
		lines = append(lines, p.Line)
	}
	if want := []int{5, 6, 1, 10}; !slices.Equal(lines, want) {
		t.Errorf("problems in lines %v, want %v: %v", lines, want, found)
	}
	if text := found[2].Text; !strings.Contains(text, "shop.yaml:1:3") {
		t.Errorf("the duplicate domain does not say where the first is: %q", text)
	}
}
