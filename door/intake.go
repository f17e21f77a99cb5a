package door

import "sync/atomic"

// Bounds of one message. gRPC itself takes MaxReceived, so that a message above its bound gets an answer and no error.
const (
	MaxReceived     = 4 << 20 // bytes
	MaxDescriptors  = 10_000
	defaultMaxBytes = 1 << 20
)

// Why a message is more than it may be.
const (
	ExcessBytes       = "bytes"       // it is too long
	ExcessDescriptors = "descriptors" // it has too many descriptors
	ExcessMemory      = "memory"      // it is large, and so are others that are being answered
)

// Bytes that the parts of a message take until it is answered.
const (
	EntryBytes      = 64   // a pair of strings, with the room that lists grow by
	DescriptorBytes = 1024 // a descriptor with its status, charge, key and decision, and the copies that are sent
)

// chunk is how many bytes a message takes from an intake at once. Up to that a message is small and not counted.
const chunk = 64 << 10

// Intake bounds what messages may bring: each one alone, and the memory of all large ones that are being answered. The
// doors of a sidecar share one. It is safe for concurrent use.
type Intake struct {
	maxBytes int
	memory   int64
	used     atomic.Int64
}

// NewIntake makes an intake for messages of at most maxBytes (0: 1 MiB). The large ones together take at most so much
// memory (0: no bound), except that one alone is always taken.
func NewIntake(maxBytes int, memory int64) *Intake {
	if maxBytes <= 0 {
		maxBytes = defaultMaxBytes
	}
	return &Intake{maxBytes: maxBytes, memory: memory}
}

// MaxBytes is how long a message may be.
func (i *Intake) MaxBytes() int {
	if i == nil {
		return defaultMaxBytes
	}
	return i.maxBytes
}

// reserve adds bytes to what a message has taken, unless it would be too much beside others.
func (i *Intake) reserve(taken, more int64) bool {
	used := i.used.Add(more)
	others := used - taken - more
	if i.memory > 0 && used > i.memory && others > 0 {
		i.used.Add(-more)
		return false
	}
	return true
}

// Share is the part of an intake that one message has. Without an intake it bounds the message alone. One goroutine
// uses it at a time.
type Share struct {
	Intake *Intake
	Excess string // why the message is refused unread; empty: it is not

	need, taken int64
	descriptors int
}

// Exceeds begins with a message of that many bytes, and reports whether it is refused for its size.
func (s *Share) Exceeds(size int) bool {
	s.End()
	if size > s.Intake.MaxBytes() {
		s.Excess = ExcessBytes
		return true
	}
	// The bytes are there as they came, and as the copy that the strings share.
	return !s.Add(2 * size)
}

// Add notes that the message needs so many more bytes, and reports whether it may have them.
func (s *Share) Add(bytes int) bool {
	s.need += int64(bytes)
	if s.need <= s.taken+chunk || s.Intake == nil {
		return true
	}
	more := (s.need - s.taken + chunk - 1) / chunk * chunk
	if !s.Intake.reserve(s.taken, more) {
		s.Excess = ExcessMemory
		return false
	}
	s.taken += more
	return true
}

// AddDescriptor notes a descriptor, and reports whether the message may have it.
func (s *Share) AddDescriptor() bool {
	s.descriptors++
	if s.descriptors > MaxDescriptors {
		s.Excess = ExcessDescriptors
		return false
	}
	return s.Add(DescriptorBytes)
}

// End gives back what the message has taken.
func (s *Share) End() {
	if s.taken > 0 {
		s.Intake.used.Add(-s.taken)
	}
	*s = Share{Intake: s.Intake}
}
