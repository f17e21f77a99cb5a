package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/topk"
)

// maxWho is how many of those who were limited most are kept.
const maxWho = 1000

// tops counts those who were limited, by their counters.
type tops struct {
	*topk.Sketch[string, Limited]
}

func newTops() *tops { return &tops{topk.New[string, Limited](maxWho)} }

// count counts one. What it is called is asked only of a new one.
func (t *tops) count(key string, when time.Time, called func() (who, rule string)) {
	one := &t.Add(key, 1).Value
	if one.First.IsZero() {
		one.First = when
		one.Who, one.Rule = called()
	}
	one.Last = when
}

// list returns them, the most frequent first.
func (t *tops) list() []Limited {
	list := []Limited{}
	for _, c := range t.List() {
		c.Value.Requests, c.Value.Over = c.Count, c.Error
		list = append(list, c.Value)
	}
	slices.SortFunc(list, func(a, b Limited) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Who, b.Who), cmp.Compare(a.Rule, b.Rule))
	})
	return list
}
