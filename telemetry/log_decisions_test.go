package telemetry

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
)

// decided runs a log of decisions over some of them, and returns what it wrote.
func decided(t *testing.T, cfg DecisionLogConfig, all ...Summary) (lines []string, m *Telemetry) {
	t.Helper()
	var out bytes.Buffer
	m = New(Config{})
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	l := m.DecisionLog(cfg)
	for _, s := range all {
		if l.Wants(s.Outcome) {
			l.Write(s)
		}
	}
	must.Do(t, l.Close())
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(line, "level=INFO ")
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, m
}

func TestALineTellsOfADecision(t *testing.T) {
	lines, _ := decided(t, DecisionLogConfig{All: true, Rate: 1},
		Summary{Door: "rls", Domain: "shop", Rule: "per user", Scope: "user", Outcome: engine.Refused, Status: 429,
			Took: 1500 * time.Microsecond, Degraded: "timeout", Trace: "abc"})
	const want = `msg=decision door=rls domain=shop rule="per user" scope=user outcome=refused status=429 ` +
		`took_us=1500 degraded=timeout trace_id=abc`
	if len(lines) != 1 || lines[0] != want {
		t.Errorf("the log holds %q, want %q", lines, want)
	}
}

func TestOnlyRefusalsAreLoggedUnlessAllAre(t *testing.T) {
	every := []Summary{}
	for o := range engine.Outcomes {
		every = append(every, Summary{Outcome: o})
	}
	lines, _ := decided(t, DecisionLogConfig{Rate: 1}, every...)
	var got []string
	for _, line := range lines {
		_, line, _ = strings.Cut(line, "outcome=")
		line, _, _ = strings.Cut(line, " ")
		got = append(got, line)
	}
	if want := "refused blocked shadowed malformed"; strings.Join(got, " ") != want {
		t.Errorf("logged are %q, want %q", got, want)
	}
	if lines, _ = decided(t, DecisionLogConfig{All: true, Rate: 1}, every...); len(lines) != int(engine.Outcomes) {
		t.Errorf("%d of %d decisions are logged, want all", len(lines), engine.Outcomes)
	}
}

func TestDecisionsAreSampled(t *testing.T) {
	m := New(Config{})
	for rate, want := range map[float64][2]int{0: {0, 0}, 0.25: {2000, 3000}, 1: {10000, 10000}} {
		l := m.DecisionLog(DecisionLogConfig{Rate: rate, Log: slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))})
		wanted := 0
		for range 10000 {
			if l.Wants(engine.Refused) {
				wanted++
			}
		}
		if wanted < want[0] || wanted > want[1] {
			t.Errorf("at a rate of %v, %d of 10000 are wanted, want %d to %d", rate, wanted, want[0], want[1])
		}
		l.Close()
	}
}

func TestNoDecisionIsWantedBelowTheLevel(t *testing.T) {
	l := New(Config{}).DecisionLog(DecisionLogConfig{All: true, Rate: 1,
		Log: slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	defer l.Close()
	if l.Wants(engine.Refused) {
		t.Error("a decision is wanted, and the level hides it")
	}
}

func TestAFloodOfDecisionsIsCut(t *testing.T) {
	now := time.Unix(100, 0)
	var flood []Summary
	for range 1000 {
		flood = append(flood, Summary{Outcome: engine.Refused})
	}
	lines, m := decided(t, DecisionLogConfig{Rate: 1, Now: func() time.Time { return now }}, flood...)
	if len(lines) != decisionsPerSecond {
		t.Errorf("%d lines in a second, want %d", len(lines), decisionsPerSecond)
	}
	expectLine(t, scrape(t, m), "spillway_decision_log_skipped_total 900")
}

// blocked is a log that is not read.
type blocked struct{ read chan struct{} }

func (w blocked) Write(b []byte) (int, error) {
	<-w.read
	return len(b), nil
}

func TestALogThatNobodyReadsHoldsUpNoDecision(t *testing.T) {
	w := blocked{make(chan struct{})}
	m := New(Config{})
	second := int64(0)
	l := m.DecisionLog(DecisionLogConfig{Rate: 1, Log: slog.New(slog.NewTextHandler(w, nil)), Now: func() time.Time {
		second++
		return time.Unix(second, 0)
	}})
	for range 10 * decisionsWaiting { // would never end if one waited
		l.Write(Summary{Outcome: engine.Refused})
	}
	close(w.read)
	l.Close()
	if slices.Contains(scrape(t, m), "spillway_decision_log_skipped_total 0") {
		t.Error("no decision was skipped, though the log was not read")
	}
}

func TestTheNextLineTellsHowManyWereSkipped(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{}).DecisionLog(DecisionLogConfig{Rate: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
	l.skipped.Store(7)
	l.Write(Summary{Outcome: engine.Refused})
	l.Write(Summary{Outcome: engine.Refused})
	l.Close()
	first, second, _ := strings.Cut(out.String(), "\n")
	if !strings.HasSuffix(first, " skipped=7") || strings.Contains(second, "skipped") {
		t.Errorf("the log is\n%s\nwant the first line alone to tell of 7", out.String())
	}
}
