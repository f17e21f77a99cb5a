package telemetry

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestJSONHasTheReferenceServersKeys(t *testing.T) {
	var out bytes.Buffer
	NewLogger(LogConfig{Out: &out, JSON: true}).Info("hello", "port", 1)
	var line map[string]any
	err := json.Unmarshal(out.Bytes(), &line)
	if err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	if line["@message"] != "hello" || line["level"] != "info" || line["@timestamp"] == nil || line["port"] != 1.0 {
		t.Errorf("a line of the log is %s", out.Bytes())
	}
}

func TestRepeatedErrorsAppearOnceInTenSeconds(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	log := NewLogger(LogConfig{Out: &out, Now: func() time.Time { return now }}).With("at", "here")
	for range 5 {
		log.Error("redis is away")
		log.Info("request")
	}
	log.Error("another")
	now = now.Add(10 * time.Second)
	log.Error("redis is away")
	text := out.String()
	if got := strings.Count(text, "redis is away"); got != 2 {
		t.Errorf("the error appears %d times, want 2:\n%s", got, text)
	}
	if !strings.Contains(text, `msg="redis is away" at=here repeated=4`) {
		t.Errorf("what was left out is not told:\n%s", text)
	}
	if strings.Count(text, "request") != 5 || !strings.Contains(text, "another") {
		t.Errorf("other lines are missing:\n%s", text)
	}
}

func TestEveryLineAppearsWhereItIsAskedFor(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(LogConfig{Out: &out, Every: true})
	log.Error("rules refused")
	log.Error("rules refused")
	if got := strings.Count(out.String(), "rules refused"); got != 2 {
		t.Errorf("the error appears %d times, want 2:\n%s", got, out.String())
	}
}

func TestTheMemoryOfRepeatedErrorsIsBounded(t *testing.T) {
	s := &seen{now: time.Now, at: map[string]*repeat{}}
	for i := range maxQuiets * 3 {
		s.pass(string(rune(i)))
	}
	if len(s.at) > maxQuiets {
		t.Errorf("%d messages remembered, want at most %d", len(s.at), maxQuiets)
	}
}
