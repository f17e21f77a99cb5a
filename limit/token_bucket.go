package limit

// A token bucket keeps the tokens it is owed: Used as of the instant At + Rem/Count microseconds. Tokens come back at
// Count per Window, one by one. The zero state is a full bucket. Tokens taken in advance (throttle) are owed like others. Tokens that are
// lent are not owed, but out of reach: lease.go.

// maxDepth keeps what a bucket owes within what a double holds exactly.
const maxDepth = 1000 * MaxCount

var tokenBucket = algorithm{advance: bucketAdvance, left: bucketLeft, take: bucketTake, wait: bucketWait, reset: bucketReset}

// bucketAdvance charges rights that have died by now, and gives back the tokens that time has earned.
func bucketAdvance(t tally, l rate, now int64) tally {
	t = bucketEarn(bucketRoll(t, l, now), l, now)
	if t.lent+t.before > 0 {
		t = t.whole()
		if t.Used == 0 {
			t.At = (t.epoch+2)*epochMicros - 1 // nothing is owed before the rights end; thaw says the same of a stored one
		}
	}
	return t
}

// bucketEarn gives back the tokens that time has earned by now, and moves the anchor to the last of them.
func bucketEarn(t tally, l rate, now int64) tally {
	if t.Used == 0 {
		return t
	}
	if t.Used > l.burst+l.count {
		t.Used = min(t.Used, l.burst+bucketDepth(l)) // a lowered limit
	}
	if t.Rem >= l.count {
		t.At, t.Rem = t.At+1, 0 // a lowered count: its fractions are coarser
	}
	if t.At > now+l.window {
		t.At, t.Rem, t.changed = now, 0, true // the clock was set back by more than a window
	}
	if now <= t.At {
		return t
	}
	tokens, part := share(now-t.At, l.count, l.window)
	part -= t.Rem
	if part < 0 {
		borrowed := ceiling(-part, l.window)
		tokens, part = tokens-borrowed, part+borrowed*l.window
	}
	if tokens >= t.Used {
		t.State = State{}
		return t
	}
	since := ceiling(part, l.count)
	t.At, t.Rem, t.Used = now-since, since*l.count-part, t.Used-tokens
	return t
}

func bucketLeft(t tally, l rate, _ int64) int64 {
	return l.burst - t.Used - t.lent - t.before
}

func bucketTake(t tally, _ rate, n, now int64) (tally, int64) {
	n = max(n, -t.Used)
	if t.Used == 0 {
		t.At, t.Rem = now, 0
	}
	t.Used += n
	if t.Used == 0 {
		t.State = State{}
	}
	return t, n
}

func bucketWait(t tally, l rate, n, now int64) int64 {
	if n > l.burst {
		return bucketReset(t, l, now)
	}
	return bucketUntil(t, l, n-bucketLeft(t, l, now), now)
}

func bucketReset(t tally, l rate, now int64) int64 {
	if rights := t.lent + t.before; rights > 0 {
		t, _ = bucketTake(t, l, rights, now)
		t.At = max(t.At, (t.epoch+2)*epochMicros) // if all of them are spent, it is not full before this
	}
	if t.Used == 0 {
		return 0
	}
	return bucketUntil(t, l, t.Used, now)
}

// bucketDepth is how many tokens the balance can be below zero: what comes back in a window, or in the longest wait if
// that is longer. More is never reserved, and a limit that is lowered does not lock out for longer.
func bucketDepth(l rate) int64 {
	tokens, _ := share(l.count, max(l.window, LongestWait.Microseconds()), l.window)
	return min(tokens, maxDepth)
}

// bucketDue is the time after which n tokens are there that can be taken in advance, and whether that is within most.
func bucketDue(t tally, l rate, n, most, now int64) (wait int64, ok bool) {
	if n > l.burst || n-bucketLeft(t, l, now) > bucketDepth(l) {
		return 0, false
	}
	wait = bucketWait(t, l, n, now)
	return wait, wait <= most
}

// bucketUntil is the time until that many tokens have come back.
func bucketUntil(t tally, l rate, tokens, now int64) int64 {
	if tokens <= 0 {
		return 0
	}
	after, part := share(tokens, l.window, l.count)
	return t.At + after + ceiling(part+t.Rem, l.count) - now
}
