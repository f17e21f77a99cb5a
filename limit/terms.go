package limit

// terms are the numbers of a charge as the scripts get them.
type terms struct {
	window int64
}

func termsOf(c *Charge) terms { return terms{window: max(c.Limit.Window.Milliseconds(), 1) * 1000} }
