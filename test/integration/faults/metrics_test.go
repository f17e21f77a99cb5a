package faults

import (
	"bufio"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// metrics is one scrape: values by name with labels.
type metrics map[string]float64

// scrape reads the sidecar's metrics.
func (x *trial) scrape() metrics {
	x.Helper()
	m, err := scrape(x.sidecar.Debug)
	if err != nil {
		x.Fatalf("read the sidecar's metrics: %v", err)
	}
	return m
}

func scrape(address string) (metrics, error) {
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	m := metrics{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		series, value, found := cutLast(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		if found && err == nil && series[0] != '#' {
			m[series] = n
		}
	}
	return m, lines.Err()
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 1 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// each calls visit for each series of a name that has all of the labels, written as name="value".
func (m metrics) each(name string, labels []string, visit func(value float64)) {
next:
	for series, value := range m {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		visit(value)
	}
}

// sum is the sum over all series of a name that have all of the labels.
func (m metrics) sum(name string, labels ...string) int64 {
	var total float64
	m.each(name, labels, func(value float64) { total += value })
	return int64(total)
}

// most is the largest of all series of a name.
func (m metrics) most(name string) float64 {
	var most float64
	m.each(name, nil, func(value float64) { most = max(most, value) })
	return most
}

// grown is by how much a sum has grown since the load began.
func (x *trial) grown(name string, labels ...string) int64 {
	return x.after.sum(name, labels...) - x.before.sum(name, labels...)
}

// grownSick is by how much a sum grew while the fault lasted.
func (x *trial) grownSick(name string, labels ...string) int64 {
	return x.well.sum(name, labels...) - x.sick.sum(name, labels...)
}

// changes is how often the breaker changed its state while the fault lasted; with to="open", how often it opened.
func (x *trial) changes(labels ...string) int64 {
	return x.grownSick("spillway_breaker_transitions_total", labels...)
}

// unknownAnswers is unknown by what the answers say, for a sidecar that cannot be asked any more.
func (x *trial) unknownAnswers() (n int64) {
	for i := range x.all {
		if slices.Contains(unknownReasons, x.all[i].degraded) {
			n++
		}
	}
	return n
}

// unknownReasons are those after which nobody knows whether a charge was made.
var unknownReasons = []string{"timeout", "closed", "reply", "error", "script"}

// unknown is how many calls to the store may have been executed though no decision came back.
func (x *trial) unknown() int64 { return x.grown("spillway_redis_unknown_total") }
