package limit

import "sync"

// Fate joins a request whose caller has left with the replies that come afterwards. The store makes one for a request
// that it leaves undecided while a reply is still to come, and the engine sets the comparison once policies have
// decided the request. The zero value is ready, nil drops the replies, and it is safe for concurrent use.
type Fate struct {
	mu      sync.Mutex           // guards all below
	compare func(reply *Request) // nil: the request is not decided yet
	early   []*Request           // replies that came before
}

// Compare sets what is called with each late reply, and calls it with those that have come already.
func (f *Fate) Compare(compare func(reply *Request)) {
	f.mu.Lock()
	early := f.early
	f.compare, f.early = compare, nil
	f.mu.Unlock()
	for _, reply := range early {
		compare(reply)
	}
}

// Reply brings the late reply to a request, or to a part of it: it is compared at once, or by Compare.
func (f *Fate) Reply(reply *Request) {
	if f == nil {
		return
	}
	f.mu.Lock()
	compare := f.compare
	if compare == nil {
		f.early = append(f.early, reply)
	}
	f.mu.Unlock()
	if compare != nil {
		compare(reply)
	}
}
