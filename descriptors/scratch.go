package descriptors

// scratch is memory that matching uses again and again.
type scratch struct{}

// Reset empties the match and keeps its memory.
func (m *Match) Reset() {
	*m = Match{Charges: m.Charges[:0], Terms: m.Terms[:0], Unlimited: m.Unlimited[:0], scratch: m.scratch}
}
