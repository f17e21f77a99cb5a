package engine

import (
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

func TestOutcomes(t *testing.T) {
	block, allow := &descriptors.Effect{Rule: "block"}, &descriptors.Effect{Rule: "allow"}
	refusing, reported := &descriptors.Effect{Rule: "refusing"}, &descriptors.Effect{Rule: "reported"}
	first, free := &descriptors.Effect{Rule: "first"}, &descriptors.Effect{Rule: "free"}
	bare, large := &identity.Refusal{}, &identity.Refusal{Status: 431}
	unlimited := descriptors.Match{Known: true, Unlimited: []descriptors.Term{{Effect: free}}}
	answer := func(status int) *descriptors.Response { return &descriptors.Response{Status: status} }
	known := descriptors.Match{Known: true, Terms: []descriptors.Term{{Effect: first}}}
	blocked := descriptors.Match{Known: true, Block: block}
	for name, row := range map[string]struct {
		verdict Verdict
		want    string
		status  int
		effect  *descriptors.Effect
	}{
		"empty":     {Verdict{}, "unknown_domain", 200, nil},
		"no limit":  {Verdict{Match: descriptors.Match{Known: true}}, "no_limit", 200, nil},
		"unlimited": {Verdict{Match: unlimited}, "allowed", 200, free},
		"allowed":   {Verdict{Match: known}, "allowed", 200, first},
		"reported": {Verdict{Match: known, Reported: Status{Effect: reported}}, "allowed", 200,
			reported},
		"exempt": {Verdict{Match: descriptors.Match{Known: true, Exempt: allow}}, "exempt", 200,
			allow},
		"refused": {Verdict{Match: known, Refused: true, Refusing: refusing}, "refused", 429,
			refusing},
		"refused with a status": {Verdict{Match: known, Refused: true, Response: answer(503)}, "refused", 503,
			first},
		"refused with a bad status": {Verdict{Match: known, Refused: true, Response: answer(1000)}, "refused", 429,
			first},
		"excess":                  {Verdict{Refused: true, Excess: excessCharges}, "refused", 429, nil},
		"blocked":                 {Verdict{Match: blocked, Refused: true}, "blocked", 403, block},
		"malformed":               {Verdict{Refused: true, Malformed: bare}, "malformed", 400, nil},
		"malformed with a status": {Verdict{Refused: true, Malformed: large}, "malformed", 431, nil},
		"shadowed":                {Verdict{Match: known, Shadowed: true}, "shadowed", 200, first},
		"shadowed block":          {Verdict{Match: blocked, Shadowed: true}, "shadowed", 200, block},
		"shadowed and malformed":  {Verdict{Shadowed: true, Malformed: large}, "shadowed", 200, nil},
	} {
		row.verdict.Conclude()
		got, status, effect := row.verdict.Outcome.String(), row.verdict.HTTPStatus, row.verdict.Effect
		if got != row.want || status != row.status || effect != row.effect {
			t.Errorf("%s: %v, status %d, effect %v; want %v %d %v", name, got, status, effect, row.want, row.status,
				row.effect)
		}
	}
}

// TestAnIDIsReadAsItIsWritten: a part of an id cannot be read.
func TestAnIDIsReadAsItIsWritten(t *testing.T) {
	for _, id := range []ID{1, 0x09fbe70ed53de919, 1<<64 - 1} {
		if got, err := ParseID(id.String()); got != id || err != nil {
			t.Errorf("%s is read as %v (%v)", id, got, err)
		}
		if got, err := ParseID(id.String()[1:]); got != 0 || err == nil {
			t.Errorf("a part of %s is read as %v", id, got)
		}
	}
}
