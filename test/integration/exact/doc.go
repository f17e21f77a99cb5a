// Package exact judges sidecars from outside: several of them share one Redis, callers note when they sent each request
// and when its answer came, and an oracle compares the merged admissions with a limiter that is exact. What exceeds it
// is over-admission, and must be 0. The oracle does not know how sidecars decide: by a script call each, or by tokens
// that they hold in advance.
//
// # What the oracle may conclude
//
// An admission happened at one instant, which the caller does not know: some instant from sent to answered, both
// included. So a history is wrong only if no choice of instants within these spans is one that the ideal limiter
// admits. Instants are whole microseconds of the clock of Redis, rounded down, as Redis rounds its own.
//
// Let D[a, b] be the cost of all admissions whose span lies within [a, b]. Whichever instants are chosen, at least D[a,
// b] was admitted in [a, b]. Each check below is an upper bound of the ideal on what [a, b] admits, so a breach proves
// over-admission: an exact system never fails. A span that is wide, because a call was slow, counts in fewer intervals:
// the oracle loses sharpness, never soundness.
//
// Token bucket: D[a, b] ≤ burst + rate × (b − a) for all a ≤ b. This is all that can be known: if it holds everywhere
// there are instants that an ideal bucket admits, as long as a cost may be split. Proof: let A(t) be what is admitted
// up to t. Instants exist if and only if some A has A(b) − A(a) ≥ D[a, b] (each interval gets what must happen in it;
// for spans on a line Hall's condition needs intervals only) and A(b) − A(a) ≤ burst + rate × (b − a). These are
// difference constraints, so A exists unless a cycle of them has a negative sum. Two upper bounds in a row are never
// better than one over both, as the burst counts once; nor are two lower bounds, as D of a whole is at least that of
// its parts. So a cycle takes turns: forward over [a1, b1] by an upper bound, back over [a2, b1] by a lower one,
// forward over [a2, b2], and so on. As much time goes forward as back, and the upper bound is linear in time, so the
// sum of the cycle is the sum of burst + rate × (b − a) − D[a, b] over the intervals that it goes back on. Each of
// these is at least 0.
//
// Fixed windows: the same with numbers of windows in place of instants, a burst of one limit and a rate of one limit
// per window. A run of m windows admits at most m limits.
//
// Sliding log: D[a, b] ≤ k × limit for every interval shorter than k windows. Necessary for all k, sharp for k = 1.
//
// Sliding window counter: fixed windows, and its own estimate. Let p be the cost that surely fell into the window
// before. The last of the admissions that lie within [start of the window, b] came at b or earlier, when p weighed at
// least as much as at b, so their cost is at most limit − p × (1 − f(b)), rounded as in the specification.
//
// The worst interval is found exactly, in n log n steps: a sweep over the ends b in order keeps, for each start a, D[a,
// b] + rate × a in a tree of maxima.
//
// # What else is counted
//
// A refusal is false if the ideal had room at every instant of its span, for any instants of the admissions: all that
// may have happened before its end is charged, as late as it may have happened (a later charge leaves a bucket with
// less), and nothing comes back within the span. What a call without an answer, or one that was refused because Redis
// did not answer, may have charged counts as charged, and so does each false refusal before. So an exact system has 0,
// and the count is that of admissions that were missed.
//
// Utilisation is what was admitted, divided by what the ideal admits of the same requests, each at the instant it was
// sent.
//
// # Rows
//
// They take long, so they have the build tag full: make test-all runs them. Each prints a line: what was asked,
// admitted, and would be by the ideal; over-admission; how close the worst interval came to its bound (-1: one more
// would have been allowed), which shows how sharp the oracle was; false refusals; utilisation; and how many decisions
// were made with leased tokens.
//
// Callers ask for less than the limit before something happens, so that sidecars have tokens on lease then, and for
// more afterwards, so that what is admitted beyond the limit shows. While Redis is away everything is refused
// (on_failure: closed), so no row needs an allowance for that. Only where Redis loses its state is one limit more
// allowed, once, and the row prints it.
//
// Bounds are about counts, so rows hold beside busy loops. Utilisation is judged where callers could send what they
// should. False refusals must be 0 where no tokens were leased.
package exact
