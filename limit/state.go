package limit

// State is what a store keeps for one key. The zero value is a counter that was never charged, which is the same as a
// full one. Which fields an algorithm uses is told in its file. Times are microseconds since the epoch.
type State struct {
	At   int64   // instant that Used refers to: anchor of the bucket, start of the window (a fixed one is marked); sliding log: last rewrite
	Rem  int64   // token bucket: fraction of a microsecond to add to At, in 1/Count
	Used int64   // tokens taken and not yet given back by time
	Prev int64   // sliding window: tokens taken in the window before; sliding log: Sum before the first entry of Log
	Log  []Entry // sliding log: one entry per instant with an admitted charge, oldest first
}

// Entry is what a sliding log took at one instant.
type Entry struct {
	At  int64 // when it was taken
	Sum int64 // tokens taken by this entry and all before it, also those that Log no longer holds
}

// Expires is the instant, in microseconds since the epoch, from which on the state is as good as one that was never
// charged; 0 if it is so now. A limit of 0 refuses everything and needs no state, but what another limit left in it stays
// for a window.
func (s *State) Expires(l Limit, now int64) int64 {
	t := open(s)
	if t.empty() {
		return 0
	}
	r := rateOf(&l)
	if r.count == 0 {
		return expiry(max(s.At, lastAt(s.Log))+r.window, now)
	}
	a := &algorithms[l.Algorithm]
	t = a.advance(t, r, now)
	if t.empty() {
		return 0
	}
	return expiry(now+a.reset(t, r, now), now)
}

func expiry(at, now int64) int64 {
	if at <= now {
		return 0
	}
	return at
}

// tally is a State while a request is decided on it: a copy, so that a refusal leaves no trace. The sliding log keeps
// what it would change beside Log, which is shared with the State until save.
type tally struct {
	State
	changed bool  // to be stored
	mark    int64 // fixed window: what At gets when it is stored
	epoch   int64 // bucket: in which it last lent something; 0 without rights outstanding
	lent    int64 // bucket: rights of that epoch
	before  int64 // bucket: rights of the epoch before
	rewrite bool  // log: not only appended to
	first   int   // log: index of the first entry that counts
	now     int64 // log: the instant of new entries, not before that of the newest one
	base    int64 // log: Sum before that entry
	kept    int64 // log: Sum up to which entries stay; below that of the last one after a refund
	added   int64 // log: taken now and not yet in Log
}

func open(s *State) tally {
	t := tally{State: *s}
	if n := len(s.Log); n > 0 {
		t.kept = s.Log[n-1].Sum
	}
	return t
}

// empty says that nothing is used, which is the zero State.
func (t *tally) empty() bool {
	if len(t.Log) > 0 || t.added > 0 {
		return t.logUsed() == 0
	}
	return t.Used == 0 && t.Prev == 0 && t.lent == 0 && t.before == 0
}

// save stores what the request changed.
func (t *tally) save(s *State) {
	switch {
	case !t.changed:
	case t.empty():
		*s = State{}
	case len(t.Log) > 0 || t.added > 0:
		t.saveLog(s)
	case t.lent+t.before > 0:
		t.freeze()
		*s = t.State
	default:
		*s = t.State
		s.At += t.mark
	}
}
