package engine

import "github.com/spillway-mesh/spillway/limit"

// fewCharges is up to how many charges comparing each with each is cheaper than a table.
const fewCharges = 16

// inTurn lets charges on one counter show what was left after each of them, as the reference server does: two descriptors
// that are the same show 4 and then 3. The store tells for each what is left after the whole request. On a refused
// request that is what is shown.
func (v *Verdict) inTurn() {
	charges := v.Match.Charges
	if len(charges) < 2 || v.enforces() {
		return
	}
	if len(charges) <= fewCharges {
		for i := range charges {
			for j := i + 1; j < len(charges); j++ {
				if charges[i].Key == charges[j].Key {
					v.Decisions[i].Remaining += v.spent(j)
				}
			}
		}
		return
	}
	later := make(map[string]int64, len(charges))
	for i := len(charges) - 1; i >= 0; i-- {
		v.Decisions[i].Remaining += later[charges[i].Key]
		later[charges[i].Key] += v.spent(i)
	}
}

// spent is what charge i took as it passed. A debt shows no tokens at all, so what it took says nothing about them.
func (v *Verdict) spent(i int) int64 {
	if v.Match.Charges[i].Op != limit.Spend {
		return 0
	}
	return v.Decisions[i].Charged
}

// enforces reports whether an enforced limit refuses.
func (v *Verdict) enforces() bool {
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Refused && v.Match.Charges[i].Mode == limit.Enforced {
			return true
		}
	}
	return false
}
