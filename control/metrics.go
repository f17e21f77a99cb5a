package control

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/telemetry"
)

// scrapeWithin is for what a scrape asks of the database and of Redis: without an answer, a metric is left out.
const scrapeWithin = time.Second

// metrics serves GET /metrics, to callers with the role viewer.
func (a *API) metrics() http.HandlerFunc {
	served := telemetry.ControlHandler(a.stats)
	return func(w http.ResponseWriter, r *http.Request) {
		caller, wrong := a.caller(r) // every role may read
		if wrong == nil && caller.limited() {
			wrong = caller.refuse("all domains")
		}
		if wrong != nil {
			a.turnAway(w, wrong)
			return
		}
		served.ServeHTTP(w, r)
	}
}

// stats is what this control counts.
func (a *API) stats() telemetry.ControlStats {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	own := a.Recorder.Stats()
	s := telemetry.ControlStats{
		Leads: a.Publisher.leads.Load(), Mended: a.Publisher.mended.Load(), Unheard: a.Publisher.missing.dropped.Load(), Pending: -1, Stale: time.Since(time.UnixMilli(a.Publisher.current.Load())), Copies: own.Copies, Failures: own.Failures,
	}
	err := a.Database.reads.QueryRow(ctx, `SELECT count(*) FROM outbox WHERE done_at IS NULL`).Scan(&s.Pending)
	if err != nil {
		s.Pending = -1
	}
	err = a.Database.reads.QueryRow(ctx, `SELECT count(*) FROM erasures WHERE state = 'open'`).Scan(&s.Erasures)
	if err != nil {
		s.Erasures = -1
	}
	s.Archive = a.archived()
	queued, err := a.Recorder.Queued(ctx)
	for _, one := range own.Streams {
		n, known := queued[one.Stream]
		if err != nil || !known {
			n = -1
		}
		s.Streams = append(s.Streams, telemetry.ControlStream{
			Stream: one.Stream, Entries: one.Entries, Rows: one.Rows, Again: one.Again, Missing: one.Missing, Dropped: one.Dropped, Moved: one.Moved, Refused: one.Refused, Queued: n, Behind: one.Behind,
		})
	}
	return s
}

// archived is what this control counts about its archive, or nil where it has none.
func (a *API) archived() *telemetry.ControlArchive {
	if a.Archive == nil {
		return nil
	}
	own := a.Archive.Stats()
	return &telemetry.ControlArchive{
		Runs: own.Runs, Partitions: own.Partitions, Files: own.Files, Rows: own.Rows, Bytes: own.Bytes, Deleted: own.Deleted,
		LastRun: own.LastRun, Failures: own.Failures,
	}
}
