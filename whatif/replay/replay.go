// Package replay decides the requests of an access log under a rule set, on the log's own clock: who would have been
// limited, when and by which rule, and what another rule set would have done. It works on lines as they come, and its
// memory does not grow with the log.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spillway-mesh/spillway/whatif"
)

// Config is what is replayed. Logs and Rules must be given.
type Config struct {
	Logs         []string  // files, compressed by gzip or not; a hyphen is In
	In           io.Reader //
	Rules        []string  // rule files and folders
	Against      []string  // those of the rule set to compare with; none: nothing is compared
	MergeDomains bool      // several files may add to one domain
	Domain       string    // empty: the only one of the rules
	Mapping      Mapping
	MaxBytes     int64 // memory of the counters of one rule set; default 256 MiB
	Reorder      int   // lines of a log that are put in order at once; default 4096

	OnProgress func(Progress) // called now and then; nil: not at all
	// called for each request that the rules refuse; an error ends the replay; nil: not at all
	OnRefusal func(Refusal) error
}

// Progress is how far a replay has come.
type Progress struct {
	Lines, Bytes int64
	Size         int64 // of all logs, as they are stored; 0: not known
}

// Refusal is one request that the rules refuse.
type Refusal struct {
	Time       time.Time `json:"time"`
	Rule       string    `json:"rule"`
	Who        string    `json:"who"`
	Outcome    string    `json:"outcome"`
	Method     string    `json:"method,omitempty"`
	Path       string    `json:"path,omitempty"`
	RetryAfter float64   `json:"retry_after,omitempty"` // seconds
}

const (
	defaultBytes   = 256 << 20
	defaultReorder = 4096
	progressEvery  = 4096 // requests
)

// run is one replay.
type run struct {
	cfg      Config
	layout   *layout
	progress progress
	streams  []*stream
	sides    []*side // the rules, and those to compare with
	clock    int64   // µs: of the latest request
	report   *Report
	timeline timeline
	changes  *changes // nil: nothing is compared
}

// Run replays the logs. The error is a *whatif.Unloadable where rules cannot be used; lines that cannot be read are not
// an error: the report counts them.
func Run(cfg Config) (report *Report, err error) {
	cfg.MaxBytes, cfg.Reorder = cmp.Or(cfg.MaxBytes, defaultBytes), cmp.Or(cfg.Reorder, defaultReorder)
	r := &run{cfg: cfg, report: &Report{Log: LogReport{Files: cfg.Logs}}}
	defer func() { err = errors.Join(err, r.close()) }()
	r.layout, err = cfg.Mapping.layout()
	if err != nil {
		return nil, err
	}
	err = r.load()
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Logs {
		s, err := open(name, cfg.In, cfg.Reorder, &r.progress)
		if err != nil {
			return nil, err
		}
		r.streams = append(r.streams, s)
		if name == "-" {
			r.progress.size = 0
		}
	}
	err = r.all()
	if err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// load loads the rule sets, and reports everything that is wrong with both.
func (r *run) load() error {
	var wrong []error
	for _, paths := range [][]string{r.cfg.Rules, r.cfg.Against} {
		if len(paths) == 0 {
			continue
		}
		t, err := whatif.New(whatif.Config{Paths: paths, MergeDomains: r.cfg.MergeDomains, MaxBytes: r.cfg.MaxBytes})
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		s := newSide(t, paths, r.layout)
		r.sides = append(r.sides, s)
		s.domain, err = t.Domain(r.cfg.Domain)
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(r.sides) > 1 {
		r.changes = newChanges()
	}
	return errors.Join(wrong...)
}

func (r *run) close() error {
	var all []error
	for _, s := range r.streams {
		all = append(all, s.close())
	}
	for _, s := range r.sides {
		all = append(all, s.trial.Close())
	}
	return errors.Join(all...)
}

// all replays every request, those of several logs in order of their time.
func (r *run) all() error {
	for n := 0; ; n++ {
		s := r.earliest()
		if s == nil {
			return nil
		}
		one := s.pop()
		err := r.one(one)
		s.give(one)
		if err != nil {
			return err
		}
		if r.cfg.OnProgress != nil && n%progressEvery == 0 {
			r.cfg.OnProgress(r.progress.now())
		}
	}
}

func (p *progress) now() Progress {
	return Progress{Lines: p.lines.Load(), Bytes: p.bytes.Load(), Size: p.size}
}

// earliest is the log whose next request comes first, or nil at the end of all.
func (r *run) earliest() (first *stream) {
	for _, s := range r.streams {
		s.fill(r.layout, &r.progress, r.broken)
		if len(s.ahead) > 0 && (first == nil || s.ahead[0].at < first.ahead[0].at) {
			first = s
		}
	}
	return first
}

// broken notes a line that cannot be read.
func (r *run) broken(s *stream, line []byte, err error) {
	log := &r.report.Log
	if errors.Is(err, errNoRequest) {
		log.Skipped++
		return
	}
	log.Broken++
	if len(log.Samples) < maxSamples {
		log.Samples = append(log.Samples, BrokenLine{File: s.name, Line: s.line, Reason: err.Error(),
			Text: clip(string(line[:min(len(line), 200)]))})
	}
}

// maxSamples is how many broken lines a report shows.
const maxSamples = 10

// one decides one request under each rule set. One that is older than the clock is decided at the clock's time.
func (r *run) one(rec *record) error {
	log := &r.report.Log
	log.Requests++
	if rec.at < r.clock {
		log.Late++
	} else {
		r.clock = rec.at
	}
	at := time.UnixMicro(r.clock).UTC()
	if log.From.IsZero() {
		log.From = at
	}
	log.To = at
	if rec.code == 429 {
		log.Answered429++
	}
	bucket := r.timeline.at(at)
	bucket.Requests++
	for i, s := range r.sides {
		err := s.decide(rec, at, bucket, i)
		if err != nil {
			return err
		}
	}
	if r.changes != nil {
		r.changes.compare(r.sides[0], r.sides[1], at)
	}
	if r.cfg.OnRefusal != nil && r.sides[0].last.refused {
		return r.cfg.OnRefusal(r.sides[0].refusal(rec, at))
	}
	return nil
}

// finish completes the report.
func (r *run) finish() *Report {
	log := &r.report.Log
	log.Lines = r.progress.lines.Load()
	for _, s := range r.streams {
		if s.err != nil && !errors.Is(s.err, io.EOF) {
			log.Broken++
			log.Samples = append(log.Samples, BrokenLine{File: s.name, Line: s.line + 1,
				Reason: fmt.Sprintf("the log cannot be read further: %v", s.err)})
		}
	}
	log.Missing, log.Formats, log.Fields = r.layout.missing(), r.layout.readAs(), r.layout.takenFrom()
	r.report.Rules = r.sides[0].report()
	r.report.Timeline = r.timeline.report(r.sides)
	if r.changes != nil {
		against := r.sides[1].report()
		r.report.Against, r.report.Changes = &against, r.changes.report()
	}
	if r.cfg.OnProgress != nil {
		r.cfg.OnProgress(r.progress.now())
	}
	return r.report
}
