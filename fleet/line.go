package fleet

// line is calls in the order of their replies: a ring that grows.
type line struct {
	calls []*Call // as many as a power of two
	first int
	count int
}

func (q *line) len() int { return q.count }

func (q *line) at(i int) *Call { return q.calls[(q.first+i)&(len(q.calls)-1)] }

func (q *line) push(c *Call) {
	if q.count == len(q.calls) {
		larger := make([]*Call, max(64, 2*len(q.calls)))
		for i := range q.count {
			larger[i] = q.at(i)
		}
		q.calls, q.first = larger, 0
	}
	q.calls[(q.first+q.count)&(len(q.calls)-1)] = c
	q.count++
}

func (q *line) head() *Call {
	if q.count == 0 {
		return nil
	}
	return q.calls[q.first]
}

func (q *line) pop() {
	q.calls[q.first] = nil
	q.first = (q.first + 1) & (len(q.calls) - 1)
	q.count--
}

// drain empties the line and returns what was in it.
func (q *line) drain() []*Call {
	all := make([]*Call, 0, q.count)
	for i := range q.count {
		all = append(all, q.at(i))
	}
	*q = line{}
	return all
}
