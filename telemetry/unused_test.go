package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestRulesWhoseNamesChangeDoNotFillTheMemory: what never counted goes with its rules, what counted stays.
func TestRulesWhoseNamesChangeDoNotFillTheMemory(t *testing.T) {
	tel := New(Config{})
	o := tel.Observer(slog.New(slog.NewTextHandler(io.Discard, nil)))
	for i := range 100 {
		l := descriptors.Limit{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1,
			Window: descriptors.Day.Duration()}, Unit: descriptors.Day, Multiplier: 1}
		set, problems := descriptors.Compile([]descriptors.Domain{{Name: fmt.Sprint("d", i),
			Tree: []descriptors.Node{{Key: "k", Limits: []descriptors.Limit{l}}}}}, descriptors.Options{})
		if set == nil {
			t.Fatal(problems)
		}
		o.Use(set)
		if i == 7 {
			for domain, effect := range set.Effects() {
				tel.Decided(tel.Rule(domain, effect.Rule, effect.Scope), engine.Refused)
				tel.Count(tel.Series(domain, effect.Metric), Hit{Hits: 1})
			}
		}
	}
	if rules, series := len(tel.rules.known), len(tel.series.known); rules > 6 || series != 2 {
		t.Errorf("%d rules and %d series are kept, want those of two sets", rules, series)
	}
	if tel.rules.known[ruleLabels{"d7", "k", descriptors.ScopeDescriptor}] == nil {
		t.Error("the counter of a rule that counted is gone")
	}
}

// TestOverAdmissionsOutliveAChangeOfScope: rules of one name share that counter, with any scope.
func TestOverAdmissionsOutliveAChangeOfScope(t *testing.T) {
	tel := New(Config{})
	tel.Rule("shop", "per-user", "user")
	now := tel.Rule("shop", "per-user", "ip")
	tel.forgetUnused(&ruleCounters{limits: map[*descriptors.Effect]limitCounters{{}: {rule: now}}})
	now.over.Inc()
	var out strings.Builder
	must.Do(t, tel.Text(&out))
	if !strings.Contains(out.String(), `spillway_over_admitted_total{domain="shop",rule="per-user"} 1`) {
		t.Errorf("the over-admission is not counted:\n%s", out.String())
	}
}
