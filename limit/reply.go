package limit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Read takes the reply of the script apart: decisions[i] is what charges[i] got, and now is the server's time. states
// may be nil; else states[i] is the state after a refused charge (the zero State for one that was allowed, and for a
// sliding log, whose entries stay on the server). An error means that the reply is not one of Script.
func (c *Call) Read(reply any, decisions []Decision, states []State) (now int64, err error) {
	switch reply := reply.(type) {
	case string:
		return c.ReadBytes([]byte(reply), decisions, states)
	case []byte:
		return c.ReadBytes(reply, decisions, states)
	}
	return 0, fmt.Errorf("read the reply of the script: it is a %T, not a string", reply)
}

// ReadBytes is Read of a reply that is still in the buffer of its connection. It keeps nothing of it.
func (c *Call) ReadBytes(reply []byte, decisions []Decision, states []State) (now int64, err error) {
	if len(reply) < nowSize {
		return 0, fmt.Errorf("read the reply of the script: %d bytes are too few", len(reply))
	}
	now = number(reply)
	if now < 0 || now > maxExact {
		return 0, errors.New("read the reply of the script: its time is none")
	}
	place, counts := nowSize, len(reply) > nowSize && reply[nowSize] == countsCode
	if counts {
		place++
	}
	for i := range decisions {
		var s State
		n, err := c.readCharge(reply[place:], counts, i, now, &decisions[i], &s)
		if err != nil {
			return 0, fmt.Errorf("read the reply of the script, charge %d of %d: %w", i+1, len(decisions), err)
		}
		place += n
		decisions[i].At = now
		if states != nil {
			states[i] = s
		}
	}
	if place < len(reply) {
		return 0, fmt.Errorf("read the reply of the script: %d bytes too many", len(reply)-place)
	}
	return now, nil
}

// readCharge reads what one charge got, only its count if the reply has counts, and returns how many bytes that was.
func (c *Call) readCharge(text []byte, counts bool, charge int, now int64, d *Decision, s *State) (size int, err error) {
	switch {
	case counts:
		return c.readCount(text, charge, now, d)
	case len(text) == 0:
		return 0, errShort
	case text[0] == 0 || text[0] >= keptCode:
		return c.readKept(text, charge, now, d, s)
	}
	return readSaid(text, d, s)
}

// readSaid reads what the general code says about a charge.
func readSaid(text []byte, d *Decision, s *State) (size int, err error) {
	if len(text) < saidSize {
		return 0, errShort
	}
	const follows, penalized = 4, 16
	outcome := Outcome(text[0] &^ (follows | penalized))
	if outcome != Allowed && outcome != Refused {
		return 0, fmt.Errorf("outcome %d is unknown", text[0])
	}
	*d = Decision{
		Outcome:    outcome,
		Remaining:  number(text[1:]),
		Charged:    number(text[9:]),
		ResetAfter: time.Duration(number(text[17:])) * time.Microsecond,
		RetryAfter: time.Duration(number(text[25:])) * time.Microsecond,
		Penalized:  text[0]&penalized != 0,
	}
	if outcome == Allowed {
		d.Wait, d.RetryAfter = d.RetryAfter, 0
	}
	if text[0]&follows == 0 {
		return saidSize, nil
	}
	text = text[saidSize:]
	if len(text) < stateSize {
		return 0, errShort
	}
	*s = State{At: number(text), Rem: number(text[8:]), Used: number(text[16:]), Prev: number(text[24:])}
	return saidSize + stateSize, nil
}

// What tight.lua replies about a charge: its state as it is kept, with a code in front unless the charge was allowed and took its cost. No
// state begins with a code, because a double of 0 begins with 0, and one from 1 on with leastKept or more.
const (
	keptCode  = 32   // marks a code; alone it is that of a whole request which has to come alone
	keptThird = 4    // the state has a third number
	keptTook  = 8    // the cost was taken; else what was taken follows as a double
	leastKept = 0x3f // from here on a byte is that of a state

	// What windows.lua replies about a whole request, whose charges took their costs: this code, then the count of each window.
	countsCode = 16
	countSize  = 4

	keptSize  = 12 // of a state
	thirdSize = 4  // of its third number
	tookSize  = 8
)

var (
	errShort   = errors.New("the bytes are too few")
	errForeign = errors.New("it is not the state of the counter")
)

// kept is what tight.lua replies about a charge.
type kept struct {
	outcome Outcome
	took    int64 // -1: the cost
	at      int64
	used    int64
	third   int64
	size    int // bytes
}

// parseKept parses it.
func parseKept(text []byte) (k kept, err error) {
	code, rest, err := openKept(text)
	if err != nil {
		return k, err
	}
	k = kept{outcome: Outcome(code & (byte(Allowed) | byte(Refused))), took: -1}
	if code&keptTook == 0 {
		if len(rest) < tookSize {
			return k, errShort
		}
		k.took, rest = number(rest), rest[tookSize:]
		if k.took < 0 || k.took > MaxCost {
			return k, errForeign
		}
	}
	if len(rest) < keptSize {
		return k, errShort
	}
	k.at, k.used, rest = number(rest), int64(binary.BigEndian.Uint32(rest[8:])), rest[keptSize:]
	if code&keptThird != 0 {
		if len(rest) < thirdSize {
			return k, errShort
		}
		k.third, rest = int64(binary.BigEndian.Uint32(rest)), rest[thirdSize:]
	}
	k.size = len(text) - len(rest)
	return k, nil
}

// openKept reads the code, which is that of a charge that took its cost where none is there, and returns what follows.
func openKept(text []byte) (code byte, rest []byte, err error) {
	if len(text) == 0 {
		return 0, nil, errShort
	}
	code = text[0]
	if code == 0 || code >= leastKept {
		return keptCode | keptTook | byte(Allowed), text, nil
	}
	outcome := code &^ (keptThird | keptTook)
	if outcome != keptCode|byte(Allowed) && outcome != keptCode|byte(Refused) {
		return 0, nil, fmt.Errorf("code %d is unknown", code)
	}
	return code, text[1:], nil
}

// readKept reads what tight.lua says about a charge, and computes the rest as the general code would.
func (c *Call) readKept(text []byte, charge int, now int64, d *Decision, s *State) (size int, err error) {
	k, err := parseKept(text)
	if err != nil {
		return 0, err
	}
	algorithm, l, cost, err := c.charge(charge)
	if err != nil {
		return 0, err
	}
	t, ok := k.tally(algorithm, l, now)
	if !ok {
		return 0, errForeign
	}
	if k.took < 0 {
		k.took = cost
	}
	*d = Decision{Outcome: k.outcome, Charged: k.took}
	rest(t, algorithm, l, cost, now, d)
	if k.outcome == Refused {
		*s = t.State
	}
	return k.size, nil
}

// charge unpacks what a reply is read with.
func (c *Call) charge(charge int) (algorithm Algorithm, l rate, cost int64, err error) {
	place := headSize + chargeSize*charge + 4
	if place >= len(c.packed) {
		return 0, rate{}, 0, errors.New("the call has no such charge")
	}
	packed := c.packed[place:]
	return Algorithm(packed[0]), rate{count: number(packed[4:]), window: number(packed[12:]), burst: number(packed[20:])}, number(packed[28:]), nil
}

// readCount reads what windows.lua says about a charge: what its window has counted, the charge included.
func (c *Call) readCount(text []byte, charge int, now int64, d *Decision) (size int, err error) {
	if len(text) < countSize {
		return 0, errShort
	}
	algorithm, l, cost, err := c.charge(charge)
	if err != nil {
		return 0, err
	}
	used := int64(binary.BigEndian.Uint32(text))
	if algorithm != FixedWindow || used < cost || used > l.count {
		return 0, errForeign
	}
	start, _ := l.begin(now)
	*d = Decision{Outcome: Allowed, Charged: cost}
	rest(tally{State: State{At: start, Used: used}}, algorithm, l, cost, now, d)
	return countSize, nil
}

// tally is the state, which is one of now, and whether it can be one.
func (k *kept) tally(algorithm Algorithm, l rate, now int64) (t tally, ok bool) {
	t.State = State{At: k.at, Used: k.used}
	switch {
	case l.count == 0 || algorithm.KeepsLog() || k.at < 0 || algorithm.Fills() && k.at > now:
		return t, false
	case algorithm.Fills():
		t.Rem = k.third
		return t, k.third < l.count
	}
	start, _ := l.begin(now)
	if t.At, t.Prev = start, k.third; algorithm == FixedWindow {
		start += l.mark()
	}
	return t, k.at == start
}

// BatchHead is how many bytes of the reply of BatchScript are for all requests. They are followed by what Cut cuts.
const BatchHead = nowSize

// Cut returns how many bytes at the beginning of a reply of BatchScript, after its head, are for the first request that is not cut off yet. It has as
// many charges as keys. With alone it has to come alone. A call reads the head followed by these bytes.
func Cut(reply []byte, keys int) (size int, alone bool, err error) {
	switch {
	case len(reply) > 0 && reply[0] == keptCode:
		return 1, true, nil
	case len(reply) > countSize*keys && reply[0] == countsCode:
		return 1 + countSize*keys, false, nil
	}
	for range keys {
		k, err := parseKept(reply[size:])
		if err != nil {
			return 0, false, fmt.Errorf("read the reply of the batch script: %w", err)
		}
		size += k.size
	}
	return size, false, nil
}
