package limit

import "sync"

// Fate joins what became of a request with the replies that come after its caller has left. The store makes one for a request that it leaves
// undecided while a reply is still to come. The engine sets the comparison once the request is decided by policy. The zero value is ready, a
// nil one drops the replies, and it is safe for concurrent use.
type Fate struct {
	mu      sync.Mutex                 // guards all below
	compare func([]Charge, []Decision) // nil: the request is not decided yet
	replies []lateReply                // that came before
}

// lateReply is the reply to a part of a request.
type lateReply struct {
	charges   []Charge
	decisions []Decision
}

// Compare sets what is called with each late reply, and calls it with those that have come already.
func (f *Fate) Compare(compare func(charges []Charge, decisions []Decision)) {
	f.mu.Lock()
	replies := f.replies
	f.compare, f.replies = compare, nil
	f.mu.Unlock()
	for _, r := range replies {
		compare(r.charges, r.decisions)
	}
}

// Reply brings a late reply: it is compared at once, or by Compare. The slices belong to the Fate from now on.
func (f *Fate) Reply(charges []Charge, decisions []Decision) {
	if f == nil {
		return
	}
	f.mu.Lock()
	compare := f.compare
	if compare == nil {
		f.replies = append(f.replies, lateReply{charges, decisions})
	}
	f.mu.Unlock()
	if compare != nil {
		compare(charges, decisions)
	}
}
