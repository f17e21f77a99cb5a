package descriptors

import (
	"hash/fnv"
	"strconv"
)

// classOf numbers a limit by its place in the rules and its window. Reloads keep the number. All accounts of a kind
// share one, so that the number of classes does not grow with the number of users.
func classOf(domain string, e *Effect) uint32 {
	h := fnv.New32a()
	write := func(part string) {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	write(domain)
	write(e.Scope)
	write(e.Rule)
	write(strconv.FormatInt(e.Limit.Window.Microseconds(), 10))
	for _, level := range e.Metric {
		write(level)
	}
	return h.Sum32()
}
