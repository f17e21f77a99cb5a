package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ControlStats is what a control counts.
type ControlStats struct {
	Leads    bool
	Mended   int64         // records and documents that were put into Redis
	Unheard  int64         // missing records that sidecars asked for, and for which there was no room
	Pending  int64         // changes that are not in Redis yet; below 0: not known
	Stale    time.Duration // since this control last had all changes in Redis, or found another one leading
	Copies   bool
	Failures int64 // of the copy
	Streams  []ControlStream
	Erasures int64           // that are open; below 0: not known
	Archive  *ControlArchive // nil: there is none
}

// ControlStream is what a control counts about a stream of the record.
type ControlStream struct {
	Stream                                                 string
	Entries, Rows, Again, Missing, Dropped, Moved, Refused int64
	Queued                                                 int64 // entries that wait in Redis; below 0: not known
	Behind                                                 time.Duration
}

// ControlArchive is what a control counts about its archive.
type ControlArchive struct {
	Runs, Partitions, Files, Rows, Bytes, Deleted int64
	LastRun                                       time.Time
	Failures                                      int64 // runs
}

// controlMetric is one metric of a control.
type controlMetric[S any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*S) float64
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var controlMetrics = []controlMetric[ControlStats]{
	{"leads", "Whether this control leads: of several, one puts changes into Redis.", prometheus.GaugeValue, func(s *ControlStats) float64 { return flag(s.Leads) }},
	{"mended_total", "Records and documents that this control has put into Redis.", prometheus.CounterValue, func(s *ControlStats) float64 { return float64(s.Mended) }},
	{"missing_dropped_total", "Records that sidecars asked for during a refill, dropped for want of room. The refill brings them.", prometheus.CounterValue, func(s *ControlStats) float64 { return float64(s.Unheard) }},
	{"outbox_rows", "Changes of the database that are not in Redis yet.", prometheus.GaugeValue, func(s *ControlStats) float64 { return float64(s.Pending) }},
	{"stale_seconds", "Time since this control last had all changes in Redis, or found that another one leads.", prometheus.GaugeValue, func(s *ControlStats) float64 { return s.Stale.Seconds() }},
	{"record_copies", "Whether this control copies the record.", prometheus.GaugeValue, func(s *ControlStats) float64 { return flag(s.Copies) }},
	{"erasures_open", "Erasures that were asked for and have not ended.", prometheus.GaugeValue, func(s *ControlStats) float64 { return float64(s.Erasures) }},
	{"record_failures_total", "Attempts to copy the record that failed; they are retried.", prometheus.CounterValue, func(s *ControlStats) float64 { return float64(s.Failures) }},
}

var controlStreamMetrics = []controlMetric[ControlStream]{
	{"record_entries_total", "Entries of a stream of the record that were stored.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Entries) }},
	{"record_rows_total", "Rows of the record that were stored.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Rows) }},
	{"record_again_total", "Entries that were stored already, and left out.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Again) }},
	{"record_missing_total", "Entries that left the stream before they were copied.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Missing) }},
	{"record_dropped_total", "Rows that sidecars dropped for want of room, as they report it.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Dropped) }},
	{"record_moved_total", "Rows whose time could not be right, stored under the time of the copy.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Moved) }},
	{"record_refused_total", "Entries that cannot be stored.", prometheus.CounterValue, func(s *ControlStream) float64 { return float64(s.Refused) }},
	{"record_queued_entries", "Entries that wait in the stream.", prometheus.GaugeValue, func(s *ControlStream) float64 { return float64(s.Queued) }},
	{"record_behind_seconds", "Age of the oldest entry of the last read.", prometheus.GaugeValue, func(s *ControlStream) float64 { return s.Behind.Seconds() }},
}

var controlArchiveMetrics = []controlMetric[ControlArchive]{
	{"archive_runs_total", "Runs of the archive that ended well. While it leads, a control starts one every hour.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Runs) }},
	{"archive_last_run_timestamp_seconds", "When the last run of the archive ended well.", prometheus.GaugeValue, func(a *ControlArchive) float64 { return float64(a.LastRun.Unix()) }},
	{"archive_partitions_total", "Partitions that were archived, checked and dropped.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Partitions) }},
	{"archive_files_total", "Files that were written into the archive.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Files) }},
	{"archive_rows_total", "Events in files that were written into the archive.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Rows) }},
	{"archive_bytes_total", "Bytes of files that were written into the archive.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Bytes) }},
	{"archive_deleted_files_total", "Files that were deleted, because they were old enough.", prometheus.CounterValue, func(a *ControlArchive) float64 { return float64(a.Deleted) }},
}

// controlCollector collects one snapshot. A gauge below 0 is not known, and left out.
type controlCollector struct{ take func() ControlStats }

const controlPrefix = "spillway_control_"

// Describe sends nothing: the metrics are those that Collect sends.
func (controlCollector) Describe(chan<- *prometheus.Desc) {}

// Collect takes one snapshot and sends its numbers.
func (c controlCollector) Collect(out chan<- prometheus.Metric) {
	snapshot := c.take()
	for i := range controlMetrics {
		m := &controlMetrics[i]
		if v := m.value(&snapshot); v >= 0 {
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(controlPrefix+m.name, m.help, nil, nil), m.kind, v)
		}
	}
	for i := range controlStreamMetrics {
		m := &controlStreamMetrics[i]
		desc := prometheus.NewDesc(controlPrefix+m.name, m.help, []string{"stream"}, nil)
		for n := range snapshot.Streams {
			if v := m.value(&snapshot.Streams[n]); v >= 0 {
				out <- prometheus.MustNewConstMetric(desc, m.kind, v, snapshot.Streams[n].Stream)
			}
		}
	}
	if snapshot.Archive != nil {
		snapshot.Archive.send(out)
	}
}

// send sends the numbers of an archive.
func (a *ControlArchive) send(out chan<- prometheus.Metric) {
	for i := range controlArchiveMetrics {
		m := &controlArchiveMetrics[i]
		if v := m.value(a); v >= 0 {
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(controlPrefix+m.name, m.help, nil, nil), m.kind, v)
		}
	}
	failures := prometheus.NewDesc(controlPrefix+"archive_failures_total", "Runs of the archive that failed; retried after a minute.", nil, nil)
	out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(a.Failures))
}

// Control measures a control. Only the list of metrics has it beside those of a sidecar.
func (t *Telemetry) Control(stats func() ControlStats) {
	t.register.MustRegister(controlCollector{stats})
}

// ControlHandler serves the metrics of a control, and those of its process.
func ControlHandler(stats func() ControlStats) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(controlCollector{stats}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}
