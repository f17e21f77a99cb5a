package journal

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Gamma is the ratio between the bounds of neighbouring buckets of a Sketch: a quantile is at most 5 % away from the
// true one.
const Gamma = 1.1

// Buckets is how many buckets a Sketch has. The last one holds everything above 9 hours.
const Buckets = 256

// bounds are the upper bounds of the buckets, in nanoseconds.
var bounds = func() (b [Buckets]time.Duration) {
	for i := range b {
		b[i] = time.Duration(math.Round(math.Pow(Gamma, float64(i)) * 1000))
	}
	b[Buckets-1] = math.MaxInt64
	return b
}()

// firsts are the buckets of the shortest latencies of so many bits.
var firsts = func() (f [64]uint8) {
	for n := 1; n < len(f); n++ {
		f[n] = f[n-1]
		for uint64(bounds[f[n]]) < 1<<(n-1) {
			f[n]++
		}
	}
	return f
}()

// BucketOf returns the bucket i of a latency: it is in (Gamma^(i-1), Gamma^i] microseconds. Bucket 0 holds what is at
// most 1 µs.
func BucketOf(latency time.Duration) int {
	if latency <= time.Microsecond {
		return 0
	}
	i := int(firsts[bits.Len64(uint64(latency))])
	for latency > bounds[i] {
		i++
	}
	return i
}

// Bucket is how many latencies fell into one bucket.
type Bucket struct {
	Index int   `json:"i"`
	N     int64 `json:"n"`
}

// Sketch counts latencies in buckets of a logarithmic scale. Two sketches merge by adding, without loss. The zero value
// is empty; it is not safe for use from several goroutines.
type Sketch struct {
	Buckets []Bucket `json:"buckets"` // in order of Index, none empty
}

// Add counts a latency n times.
func (s *Sketch) Add(latency time.Duration, n int64) { s.add(BucketOf(latency), n) }

// Merge adds what another sketch has counted.
func (s *Sketch) Merge(other Sketch) {
	for _, b := range other.Buckets {
		s.add(b.Index, b.N)
	}
}

// Count returns how many latencies were counted.
func (s *Sketch) Count() int64 {
	n := int64(0)
	for _, b := range s.Buckets {
		n += b.N
	}
	return n
}

// Quantile returns the latency that the share q of all latencies, from 0 to 1, does not exceed, and 0 for an empty
// sketch.
func (s *Sketch) Quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(s.Count())))
	for _, b := range s.Buckets {
		rank -= b.N
		if rank <= 0 {
			return middle(b.Index)
		}
	}
	return 0
}

// middle returns the latency of a bucket whose greatest relative distance to the bucket's ends is least.
func middle(bucket int) time.Duration {
	if bucket == 0 {
		return time.Microsecond
	}
	return time.Duration(math.Round(2000 * math.Pow(Gamma, float64(bucket)) / (Gamma + 1)))
}

func (s *Sketch) add(index int, n int64) {
	if n <= 0 {
		return
	}
	at, found := slices.BinarySearchFunc(s.Buckets, index, func(b Bucket, i int) int { return b.Index - i })
	if !found {
		s.Buckets = slices.Insert(s.Buckets, at, Bucket{Index: index})
	}
	s.Buckets[at].N += n
}
