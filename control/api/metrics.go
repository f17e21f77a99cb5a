package api

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/telemetry"
)

// scrapeWithin is for what a scrape asks of the database and of Redis: without an answer, a metric is left out.
const scrapeWithin = time.Second

// metrics serves GET /metrics, to callers who may use all domains.
func (a *API) metrics() func(http.ResponseWriter, *http.Request, httpapi.Caller) {
	served := telemetry.ControlHandler(a.stats)
	return func(w http.ResponseWriter, r *http.Request, c httpapi.Caller) {
		if c.Domains != nil {
			c.Refuse("all domains").Write(w)
			return
		}
		served.ServeHTTP(w, r)
	}
}

// stats is what this control counts.
func (a *API) stats() telemetry.ControlStats {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	own := a.Copier.Stats()
	now, leads := a.Publisher.Status(), a.Leader.Status()
	s := telemetry.ControlStats{
		Leads: leads.Leads, Mended: now.Mended, Unheard: now.Unheard, Copies: own.Copies, Failures: own.Failures,
	}
	if !leads.Waits {
		s.Stale = time.Since(now.Current)
	}
	var err error
	s.Pending, err = a.Database.Pending(ctx)
	if err != nil {
		s.Pending = -1
	}
	s.Erasures, err = a.Database.OpenErasures(ctx)
	if err != nil {
		s.Erasures = -1
	}
	s.Archive = a.archived()
	queued, err := a.Copier.Queued(ctx)
	for _, one := range own.Streams {
		n, known := queued[one.Stream]
		if err != nil || !known {
			n = -1
		}
		s.Streams = append(s.Streams, telemetry.ControlStream{
			Stream: one.Stream, Entries: one.Entries, Rows: one.Rows, Again: one.Again, Missing: one.Missing,
			Dropped: one.Dropped, Moved: one.Moved, Refused: one.Refused, Queued: n, Behind: one.Behind,
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
		Runs: own.Runs, Partitions: own.Partitions, Files: own.Files, Rows: own.Rows, Bytes: own.Bytes,
		Deleted: own.Deleted,
		LastRun: own.LastRun, Failures: own.Failures,
	}
}
