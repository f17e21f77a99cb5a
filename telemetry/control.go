package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ControlStats is what a control counts. A number below 0 is not known.
type ControlStats struct {
	Leads    bool          `metric:"control_leads" help:"Whether this control leads: one of several writes to Redis."`
	Mended   int64         `metric:"control_mended_total" help:"Profiles and documents this control put into Redis."`
	Unheard  int64         `metric:"control_missing_dropped_total" help:"Missing profiles of a refill that had no room."`
	Pending  int64         `metric:"control_waiting_changes" help:"Changes of the database that are not in Redis yet."`
	Stale    time.Duration `metric:"control_stale_seconds" help:"Time since all changes were known to be in Redis."`
	Copies   bool          `metric:"control_record_copies" help:"Whether this control copies the record."`
	Failures int64         `metric:"control_record_failures_total" help:"Copies of the record that failed; retried."`
	Streams  []ControlStream
	Erasures int64           `metric:"control_erasures_open" help:"Erasures that were asked for and have not ended."`
	Archive  *ControlArchive // nil without one
}

// ControlStream is what a control counts about a stream of the record.
type ControlStream struct {
	Stream  string        `label:"stream"`
	Entries int64         `metric:"control_record_entries_total" help:"Entries of a stream of the record, stored."`
	Rows    int64         `metric:"control_record_rows_total" help:"Rows of the record that were stored."`
	Again   int64         `metric:"control_record_again_total" help:"Entries that were stored already, and left out."`
	Missing int64         `metric:"control_record_missing_total" help:"Entries that left the stream before the copy."`
	Dropped int64         `metric:"control_record_dropped_total" help:"Rows that sidecars dropped for want of room."`
	Moved   int64         `metric:"control_record_moved_total" help:"Rows with a wrong time, stored under the copy's."`
	Refused int64         `metric:"control_record_refused_total" help:"Entries that cannot be stored."`
	Queued  int64         `metric:"control_record_queued_entries" help:"Entries that wait in the stream."`
	Behind  time.Duration `metric:"control_record_behind_seconds" help:"Age of the oldest entry of the last read."`
}

// ControlArchive is what a control counts about its archive.
type ControlArchive struct {
	Runs       int64     `metric:"control_archive_runs_total" help:"Hourly runs of the archive that ended well."`
	Partitions int64     `metric:"control_archive_partitions_total" help:"Partitions archived and dropped."`
	Files      int64     `metric:"control_archive_files_total" help:"Files that were written into the archive."`
	Rows       int64     `metric:"control_archive_rows_total" help:"Events in files written into the archive."`
	Bytes      int64     `metric:"control_archive_bytes_total" help:"Bytes of files written into the archive."`
	Deleted    int64     `metric:"control_archive_deleted_files_total" help:"Files deleted when old enough."`
	LastRun    time.Time `metric:"control_archive_last_run_timestamp_seconds" help:"When a run last ended well."`
	Failures   int64     `metric:"control_archive_failures_total" help:"Failed runs; retried."`
}

// ControlHandler serves the metrics of a control, and those of its process.
func ControlHandler(stats func() ControlStats) http.Handler {
	registry := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	registry.MustRegister(statsCollector{func() any { return stats() }}, collectors.NewGoCollector(), process)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}
