package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestLeaseExample runs the table of leases on the page, on both twins.
func TestLeaseExample(t *testing.T) {
	client := connect(t)
	if err := client.ScriptLoad(t.Context(), limit.LeaseScript).Err(); err != nil {
		t.Fatal(err)
	}
	l := bucket(100, time.Second, 40)
	const first = future / 100_000 // the number of the first epoch
	var state limit.State
	for _, r := range readTable(t, "| at | step | tokens | lent | left | why |", 9) {
		now, n := future+r.span(0).Microseconds(), r.number(2)
		a := limit.Ask{Key: "leased", Limit: l, Least: 1, Parts: 1}
		switch r.text(1) {
		case "ask":
			a.Want = n
		case "spent":
			a.Reports[0] = limit.Report{Epoch: first, Spent: n}
		case "returned":
			a.Reports[1] = limit.Report{Epoch: first, Returned: n}
		case "take":
			c := limit.Charge{Key: a.Key, Limit: l, Cost: n}
			spend(t, &state, c, now)
			if _, _, err := run(client, now, c); err != nil {
				t.Fatalf("README.md:%d: %v", r.line, err)
			}
		default:
			t.Fatalf("README.md:%d: %q is no step", r.line, r.text(1))
		}
		want := limit.Lend(&state, &a, now)
		reply, err := client.EvalSha(t.Context(), limit.LeaseSHA, []string{a.Key}, a.Append(nil, now)).Text()
		if err != nil {
			t.Fatalf("README.md:%d: %v", r.line, err)
		}
		lua, err := limit.ReadGrant([]byte(reply))
		if err != nil {
			t.Fatalf("README.md:%d: %v", r.line, err)
		}
		for twin, got := range map[string]limit.Grant{"Go": want, "Lua": lua} {
			left, _ := limit.Left(&got.State, &l, now)
			if got.Tokens != r.number(3) || left != r.number(4) {
				t.Errorf("README.md:%d: %s lends %d and has %d left, the page %s and %s", r.line, twin, got.Tokens, left, r.text(3), r.text(4))
			}
		}
	}
}
