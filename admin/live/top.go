package live

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/topk"
)

const (
	topSpan    = time.Minute // of one generation; a ranking is of the present one and the one before
	samplesMax = 2048        // samples of a second above which fewer are taken
	samplesMin = 512         // samples of a second below which more are taken
	everyMost  = 1024        // at least one decision in so many is a sample
)

// Top counts which keys are asked for and refused most, in memory that does not grow: a space-saving sketch, of samples
// where there are many decisions. Each count has an error, which is returned with it. It is safe for concurrent use.
type Top struct {
	size  int
	now   func() time.Time
	draw  func(below uint32) uint32 // a random number
	every atomic.Uint32             // one decision in so many is a sample

	mu      sync.Mutex // guards all below
	began   time.Time  // of the present generation
	second  time.Time  // in which samples are counted
	samples int
	coarse  [2]int64   // the rarest samples of the present and the past generation: one in so many
	present [2]*sketch // asked, refused
	past    [2]*sketch
	before  time.Time // when the past generation began
}

// NewTop makes a sketch of so many keys, at least 1.
func NewTop(keys int, now func() time.Time) *Top {
	t := &Top{size: max(keys, 1), now: now, draw: rand.Uint32N, began: now()}
	t.before = t.began
	t.every.Store(1)
	for i := range t.present {
		t.present[i], t.past[i] = topk.New[ranked, struct{}](t.size), topk.New[ranked, struct{}](t.size)
	}
	return t
}

// Sampled reports whether a decision is a sample. If so, Note has to be called for each of its keys.
func (t *Top) Sampled() bool {
	every := t.every.Load()
	return every == 1 || t.draw(every) == 0
}

// Note counts a key of a decision that is a sample. It keeps the texts.
func (t *Top) Note(domain, rule, key string, refused bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	weight := int64(t.every.Load())
	t.paceLocked(now)
	of := ranked{domain, rule, key}
	t.present[0].Add(of, weight)
	if refused {
		t.present[1].Add(of, weight)
	}
}

// turnLocked begins a generation when its time has come, and forgets one that is too old because nothing was decided
// meanwhile.
func (t *Top) turnLocked(now time.Time) {
	if now.Sub(t.began) >= topSpan {
		t.before, t.began = t.began, now
		t.past, t.present = t.present, t.past
		t.coarse[1], t.coarse[0] = t.coarse[0], 1
		for _, s := range t.present {
			s.Clear()
		}
	}
	if t.began.Sub(t.before) >= 2*topSpan {
		t.before, t.coarse[1] = t.began, 1
		for _, s := range t.past {
			s.Clear()
		}
	}
}

// paceLocked takes fewer samples where there are many.
func (t *Top) paceLocked(now time.Time) {
	t.turnLocked(now)
	every := t.every.Load()
	t.coarse[0] = max(t.coarse[0], int64(every))
	t.samples++
	switch {
	case now.Sub(t.second) >= time.Second:
		if t.samples < samplesMin && every > 1 {
			t.every.Store(every / 2)
		}
		t.second, t.samples = now, 0
	case t.samples > samplesMax && every < everyMost:
		t.every.Store(every * 2)
		t.samples = 0
	}
}

// Ranked is a key with how often it was asked for, or refused.
type Ranked struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Count  int64  `json:"count"`
	Error  int64  `json:"error"` // by which the count may be too high or, where decisions are sampled, too low
}

// Ranking is the keys that are asked for and refused most.
type Ranking struct {
	Since   time.Time `json:"since"`
	Every   int64     `json:"sampled_one_in"`
	Asked   []Ranked  `json:"asked"`
	Refused []Ranked  `json:"refused"`
	Floor   [2]int64  `json:"floor"` // counts that a key may have and not be in the list, of asked and refused
}

// Ranking returns what the sketch holds, the highest counts first.
func (t *Top) Ranking() Ranking {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paceLocked(t.now())
	t.samples--
	r := Ranking{Since: t.before.UTC(), Every: max(t.coarse[0], t.coarse[1])}
	r.Asked, r.Floor[0] = merged(t.present[0], t.past[0])
	r.Refused, r.Floor[1] = merged(t.present[1], t.past[1])
	for _, list := range [][]Ranked{r.Asked, r.Refused} {
		for i := range list {
			list[i].Error += sampling(list[i].Count, r.Every)
		}
	}
	return r
}

// sampling is the error of a count of samples: three standard deviations.
func sampling(count, every int64) int64 {
	if every <= 1 {
		return 0
	}
	return int64(3 * math.Sqrt(float64(count)*float64(every-1)))
}

// merged is the sum of two sketches, and the count that a key may have without being there.
func merged(sketches ...*sketch) ([]Ranked, int64) {
	lists, floors, floor := make([][]Ranked, len(sketches)), make([]int64, len(sketches)), int64(0)
	for i, s := range sketches {
		for _, c := range s.List() {
			k := c.Key
			lists[i] = append(lists[i], Ranked{Domain: k.domain, Rule: k.rule, Key: k.key, Count: c.Count,
				Error: c.Error})
		}
		floors[i] = s.Floor()
		floor += floors[i]
	}
	return mergeLists(lists, floors), floor
}

func sortRanked(list []Ranked) {
	slices.SortStableFunc(list, func(a, b Ranked) int {
		if a.Count != b.Count {
			return int(max(min(b.Count-a.Count, 1), -1))
		}
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
}

// Merge is the sum of the rankings of several sidecars.
func Merge(all []Ranking) Ranking {
	if len(all) == 0 {
		return Ranking{Asked: []Ranked{}, Refused: []Ranked{}}
	}
	sum := Ranking{Since: all[0].Since, Every: 1}
	var lists [2][][]Ranked
	var floors [2][]int64
	for _, r := range all {
		if r.Since.Before(sum.Since) {
			sum.Since = r.Since
		}
		sum.Every = max(sum.Every, r.Every)
		for i, list := range [][]Ranked{r.Asked, r.Refused} {
			lists[i], floors[i] = append(lists[i], list), append(floors[i], r.Floor[i])
			sum.Floor[i] += r.Floor[i]
		}
	}
	sum.Asked, sum.Refused = mergeLists(lists[0], floors[0]), mergeLists(lists[1], floors[1])
	return sum
}

// mergeLists adds up lists. A key that a list does not hold may have had that list's floor.
func mergeLists(lists [][]Ranked, floors []int64) []Ranked {
	all := int64(0)
	for _, f := range floors {
		all += f
	}
	sums := map[ranked]*Ranked{}
	for i, list := range lists {
		for _, e := range list {
			sum := sums[e.id()]
			if sum == nil {
				sum = &Ranked{Domain: e.Domain, Rule: e.Rule, Key: e.Key, Error: all}
				sums[e.id()] = sum
			}
			sum.Count += e.Count
			sum.Error += e.Error - floors[i]
		}
	}
	list := make([]Ranked, 0, len(sums))
	for _, sum := range sums {
		list = append(list, *sum)
	}
	sortRanked(list)
	return list
}

// ranked is what a key is ranked as.
type ranked struct{ domain, rule, key string }

func (r *Ranked) id() ranked { return ranked{r.Domain, r.Rule, r.Key} }

// sketch counts keys.
type sketch = topk.Sketch[ranked, struct{}]
