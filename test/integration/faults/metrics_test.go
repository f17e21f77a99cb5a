package faults

import (
	"slices"

	"github.com/spillway-mesh/spillway/test/servers"
)

// metrics is one scrape of the sidecar.
type metrics servers.Metrics

// scrape reads the sidecar's metrics. On a machine with too much to do the sidecar may hang up on a scrape that is slow
// to ask.
func (x *trial) scrape() (m metrics) {
	x.Helper()
	servers.Await(x, "the sidecar's metrics", func() error {
		now, err := servers.Scrape(x.sidecar.Debug)
		m = metrics(now)
		return err
	})
	return m
}

// sum is the sum over all series of a name that have all of the labels, written as name="value".
func (m metrics) sum(name string, labels ...string) int64 {
	return servers.Metrics(m).Sum(name, labels...)
}

// most is the largest of all series of a name.
func (m metrics) most(name string) float64 { return servers.Metrics(m).Most(name) }

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

// unknownAnswers is unknown from the answers alone, for a sidecar whose metrics are gone.
func (x *trial) unknownAnswers() (n int64) {
	for i := range x.all {
		if slices.Contains(unknownReasons, x.all[i].degraded) {
			n++
		}
	}
	return n
}

// unknownReasons are those after which it is unknown whether a charge was made.
var unknownReasons = []string{"timeout", "closed", "reply", "error", "script"}

// unknown is how many calls to the store may have been executed though no decision came back.
func (x *trial) unknown() int64 { return x.grown("spillway_redis_unknown_total") }

// lateReplies is how many calls the store decided after their answers had gone.
func (x *trial) lateReplies() int64 { return x.grown("spillway_redis_late_total") }
