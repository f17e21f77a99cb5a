package limit

// State is what a store keeps for one key. The zero value is a counter that was never charged, which is the same as a
// full one. Which fields an algorithm uses is told in its file. Times are microseconds since the epoch.
type State struct {
	At   int64   // instant that Used refers to: anchor of the bucket, start of the window
	Rem  int64   // token bucket: fraction of a microsecond to add to At, in 1/Count
	Used int64   // tokens taken and not yet given back by time
	Prev int64   // sliding window: tokens taken in the window before
	Log  []Entry // sliding log: one entry per admitted charge, oldest first
}

// Entry is one charge of a sliding log.
type Entry struct {
	At   int64 // when it was admitted
	Cost int64
}
