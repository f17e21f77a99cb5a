package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/telemetry"
)

// reports is what others see of a sidecar: log, metrics, traces, and what feeds the live page.
type reports struct {
	log       *slog.Logger
	loadLog   *slog.Logger // shows every line, also those of a load that fails as the last one did
	level     *slog.LevelVar
	secrets   telemetry.Secrets // which no line of the log shows
	telemetry *telemetry.Telemetry
	observer  *telemetry.Observer
	statsd    *telemetry.Statsd       // nil: they are not sent
	tracer    *telemetry.Tracer       // nil: no traces
	exports   *telemetry.MetricExport // nil: metrics are not sent over OTLP
	decisions *telemetry.DecisionLog  // nil: decisions are not logged
	top       *live.Top               // nil: nothing is ranked
	recent    *live.Recent            // nil: no decision is kept
	feed      live.Feed
}

// Start begins the log, the metrics, and what the settings ask for besides.
func (r *reports) Start(s *Sidecar) error {
	err := r.startLog(&s.cfg)
	if err != nil {
		return err
	}
	if s.cfg.Admin.TopKeys > 0 {
		r.top = live.NewTop(s.cfg.Admin.TopKeys, time.Now)
	}
	if s.cfg.Admin.Decisions > 0 {
		room := budgetOf(s.cfg.Memory, os.DirFS("/"))
		r.recent = live.NewRecent(room.keptDecisions(s.cfg.Admin.Decisions), hostName(), time.Now)
	}
	if m := &s.cfg.Metrics; m.SendsStatsd() {
		r.statsd = r.telemetry.Statsd(telemetry.StatsdConfig{
			Address: net.JoinHostPort(m.StatsdHost, strconv.Itoa(int(m.StatsdPort))),
			Dog:     m.DogStatsd, Tags: m.Labels, Every: m.Flush,
			OnError: func(err error) { r.log.Warn("statistics not sent to statsd", "error", err) },
		})
	}
	if l := &s.cfg.Log; !strings.EqualFold(l.Decisions, "off") {
		r.decisions = r.telemetry.DecisionLog(telemetry.DecisionLogConfig{
			All: strings.EqualFold(l.Decisions, "all"), Rate: l.DecisionsRate, Log: r.log,
		})
	}
	return r.startOpenTelemetry(&s.cfg)
}

// startOpenTelemetry begins traces and the export of metrics.
func (r *reports) startOpenTelemetry(cfg *settings.Config) (err error) {
	t := &cfg.Tracing
	source := telemetry.Source{Service: t.Service, Namespace: t.Namespace,
		Instance: cmp.Or(t.Instance, uuid.NewString()), Version: cfg.Version}
	if t.On() {
		r.tracer, err = r.telemetry.Tracer(telemetry.TraceConfig{
			GRPC: t.GRPC(), Source: source, Rate: t.Rate, Sampler: strings.ToLower(strings.TrimSpace(t.Sampler)),
			Propagators: t.Propagators(), Queue: t.Queue, Log: r.log,
		})
	}
	if err == nil && cfg.ExportsMetrics() {
		r.exports, err = r.telemetry.ExportMetrics(telemetry.MetricExportConfig{
			GRPC: cfg.MetricsOverGRPC(), Source: source, Log: r.log,
		})
	}
	return err
}

// startLog makes the log and the metrics.
func (r *reports) startLog(cfg *settings.Config) error {
	if cfg.Output == nil {
		cfg.Output = os.Stdout
	}
	level, err := settings.Level(cfg.Log.Level)
	if err != nil {
		return fmt.Errorf("LOG_LEVEL: %w", err)
	}
	r.level = new(slog.LevelVar)
	r.level.Set(level)
	r.secrets.Add(cfg.Secrets()...)
	lines := &telemetry.Lines{Out: cfg.Output}
	cfg.Output = lines
	log := telemetry.LogConfig{
		Out: lines, Level: r.level, JSON: strings.EqualFold(cfg.Log.Format, "json"), Secrets: &r.secrets,
	}
	r.log = telemetry.NewLogger(log)
	log.Every = true
	r.loadLog = telemetry.NewLogger(log)
	r.telemetry = telemetry.New(telemetry.Config{
		NearLimitRatio: cfg.Metrics.NearRatio, Labels: cfg.Metrics.PrometheusLabels(), Version: cfg.Version,
	})
	r.telemetry.Lines(lines)
	r.observer = r.telemetry.Observer(r.log)
	return nil
}

// Stop writes what waits. Each may take as long as within returns.
func (r *reports) Stop(within func(now time.Time) time.Duration) {
	if r.decisions != nil {
		_ = r.decisions.Close() // it cannot fail
	}
	flush := func(closing func(context.Context)) {
		ctx, cancel := context.WithTimeout(context.Background(), within(time.Now()))
		defer cancel()
		closing(ctx)
	}
	if r.tracer != nil {
		flush(r.tracer.Close)
	}
	if r.exports != nil {
		flush(r.exports.Close)
	}
	if r.statsd != nil {
		flush(r.statsd.Close)
	}
}

// observe adds those who see the verdicts: metrics, live page, journal, traces and the log of decisions.
func (s *Sidecar) observe(cfg *engine.Config) {
	cfg.Observers = []engine.Observer{s.reports.observer.Verdict, live.Observe(s.reports.top, &s.reports.feed)}
	usual := len(cfg.Observers)
	if s.reports.recent != nil {
		cfg.Observers = append(cfg.Observers, s.reports.recent.Observe)
		usual++
	}
	if s.cfg.Record.Use {
		cfg.Observers = append(cfg.Observers, s.observeJournal)
	}
	if s.reports.tracer != nil {
		cfg.OnDecide = s.reports.tracer.Decide
	}
	if s.reports.tracer != nil || s.reports.decisions != nil {
		cfg.Observers = append(cfg.Observers, telemetry.Watch(s.reports.decisions))
	}
	cfg.Timed = len(cfg.Observers) > usual // the others ask for times
}

// traceJSON makes the decisions behind /json part of their callers' traces.
func (r *reports) traceJSON(next http.Handler) http.Handler {
	if r.tracer == nil {
		return next
	}
	return r.tracer.HTTP(next)
}

// metrics serves them, unless they are off.
func (s *Sidecar) metrics() http.Handler {
	if s.cfg.Metrics.Disabled {
		return http.NotFoundHandler()
	}
	return s.reports.telemetry.Handler()
}

// logLevel lets the level of the log be read and changed while the sidecar runs. The next start has LOG_LEVEL again.
func (r *reports) logLevel() admin.LogLevel {
	return admin.LogLevel{
		Get: func() string { return settings.LevelName(r.level.Level()) },
		Set: func(name string) error {
			level, err := settings.Level(name)
			if err != nil {
				return err
			}
			r.level.Set(level)
			// The one line that every level shows, so that a silence in the log has a reason in it.
			shown := max(level, slog.LevelWarn)
			r.loadLog.Log(context.Background(), shown, "the level of the log was changed", "to",
				settings.LevelName(level))
			return nil
		},
	}
}
