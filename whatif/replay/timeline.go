package replay

import "time"

// maxBuckets is how many points a timeline has. One that would have more gets buckets of twice the width.
const maxBuckets = 240

// timeline counts requests by when they came.
type timeline struct {
	origin  time.Time
	width   time.Duration
	buckets []bucket
}

// bucket counts the requests of one span of time.
type bucket struct {
	Requests int64
	refused  [2]int64   // by side
	rules    [2][]int64 // refused, by side and the number of the rule
}

// at returns the bucket of an instant, which is not before the first one.
func (t *timeline) at(instant time.Time) *bucket {
	if t.width == 0 {
		t.origin, t.width = instant.Truncate(time.Second), time.Second
	}
	number := int(instant.Sub(t.origin) / t.width)
	for number >= maxBuckets {
		t.halve()
		number /= 2
	}
	for len(t.buckets) <= number {
		t.buckets = append(t.buckets, bucket{})
	}
	return &t.buckets[number]
}

// halve makes one bucket of each two.
func (t *timeline) halve() {
	half := (len(t.buckets) + 1) / 2
	for i := range half {
		merged := t.buckets[2*i]
		if 2*i+1 < len(t.buckets) {
			merged.merge(&t.buckets[2*i+1])
		}
		t.buckets[i] = merged
	}
	clear(t.buckets[half:])
	t.buckets = t.buckets[:half]
	t.width *= 2
}

func (b *bucket) merge(other *bucket) {
	b.Requests += other.Requests
	for side := range b.refused {
		b.refused[side] += other.refused[side]
		for rule, n := range other.rules[side] {
			b.refuse(side, rule, n)
		}
	}
}

// refuse counts refusals by a rule.
func (b *bucket) refuse(side, rule int, n int64) {
	for len(b.rules[side]) <= rule {
		b.rules[side] = append(b.rules[side], 0)
	}
	b.rules[side][rule] += n
}

// report makes the timeline of the report.
func (t *timeline) report(sides []*side) Timeline {
	line := Timeline{Start: t.origin, Seconds: int64(t.width / time.Second)}
	for i := range t.buckets {
		b := &t.buckets[i]
		point := Point{Requests: b.Requests, Refused: b.refused[0], Rules: sides[0].named(b.rules[0])}
		if len(sides) > 1 {
			point.Against, point.AgainstRules = &b.refused[1], sides[1].named(b.rules[1])
		}
		line.Points = append(line.Points, point)
	}
	return line
}
