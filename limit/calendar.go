package limit

// Calendar is the windows of a calendar around the present, for a fixed window whose days or months are those of a
// place: they differ in length, so no arithmetic on the clock finds them. The sidecar makes it by its own clock; the
// store's clock decides which of the windows counts. It is never changed.
type Calendar struct {
	// Edges are the instants at which a window begins, in µs since the epoch: of the last window, of the present one
	// and of the two after it. None is before the one in front of it.
	Edges [4]int64
}

// Window returns when the window begins and ends that holds an instant, and whether that is known: only within the
// edges.
func (c *Calendar) Window(at int64) (begin, end int64, known bool) {
	if at < c.Edges[0] {
		return 0, 0, false
	}
	for i, edge := range c.Edges[1:] {
		if at < edge {
			return c.Edges[i], edge, true
		}
	}
	return 0, 0, false
}
