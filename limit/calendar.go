package limit

// Calendar is the windows of a calendar around the present, for a fixed window whose days or months are those of a
// place: they differ in length, so no arithmetic on the clock finds them. The sidecar makes it by its own clock; the
// store's clock decides which of the windows counts. It is never changed.
type Calendar struct {
	// Edges are the instants at which a window begins, in µs since the epoch: of the last window, of the present one
	// and of the two after it. None is before the one in front of it.
	Edges [4]int64
}
