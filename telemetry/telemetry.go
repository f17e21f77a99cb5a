package telemetry

import (
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config is what is measured. The zero value works.
type Config struct {
	NearLimitRatio float64           // where near_limit begins, 0..1; 0 means 0.8
	Labels         map[string]string // put on every metric
	Version        string            // of this program, for spillway_build_info
}

// Telemetry holds the metrics of one sidecar. It is safe for concurrent use, and nothing in it blocks a decision.
type Telemetry struct {
	ratio    float64
	began    time.Time // what durations are measured from
	registry *prometheus.Registry
	register prometheus.Registerer
	series   *seriesSet
	rules    rules
	sources  sources     // of statsd
	timed    atomic.Bool // statsd wants response times
	traced   atomic.Bool // requests may have spans

	totals totals

	degraded, overAdmitted, requests *prometheus.CounterVec
	errors, storeErrors, storeCalls  *words
	excess                           *words
	latency                          *prometheus.HistogramVec
	storeLatency                     prometheus.Histogram
	away                             atomic.Int64 // unix nanoseconds of the last decision without the store
}

// totals are the numbers that need no label of a request or a rule. Measure reads them.
type totals struct {
	Hash atomic.Pointer[string] `metric:"config_info" label:"hash" help:"Always 1; a hash of the rules in use."`

	Loads      atomic.Int64 `metric:"config_generation" compat:"service.config_load_success" help:"Loads of rules."`
	LoadErrors atomic.Int64 `compat:"service.config_load_error" help:"Loads of rules refused; the last good ones stay."`
	LastGood   atomic.Int64 `metric:"config_last_success_timestamp_seconds" help:"When the rules in use were loaded."`
	LastLoad   atomic.Int64 `metric:"config_last_load_successful" help:"Whether the newest load of rules was taken."`
	Documents  atomic.Int64 `metric:"published_rules_refused_total" help:"Published rules that do not compile."`

	Unknown  atomic.Int64 `compat:"service.rate_limit.domain_not_found" statsd:"service.rate_limit.other.domain_not_found" help:"Requests for an unknown domain."`
	Shadowed atomic.Int64 `compat:"service.global_shadow_mode" help:"Refusals that SHADOW_MODE turned into an OK."`
	Bad      atomic.Int64 `metric:"bad_overrides_total" help:"Overrides in descriptors that could not be read."`
	Overflow atomic.Int64 `metric:"metric_series_overflow_total" help:"Hits under the key other: too many values."`

	Panics   atomic.Int64 `metric:"panics_total" help:"Panics that were recovered, in answers and in the background."`
	Unlogged atomic.Int64 `metric:"decision_log_skipped_total" help:"Decisions for LOG_DECISIONS that were too many."`
	Sent     atomic.Int64 `metric:"spans_exported_total" help:"Spans that were sent."`
	Full     atomic.Int64 `metric:"spans_dropped_total" labels:"reason=queue" help:"Spans that were not sent."`
	Failed   atomic.Int64 `metric:"spans_dropped_total" labels:"reason=export"`

	MetricsSent   atomic.Int64 `metric:"metric_exports_total" labels:"outcome=sent" help:"Sendings over OTLP."`
	MetricsFailed atomic.Int64 `metric:"metric_exports_total" labels:"outcome=failed"`
}

// New returns the metrics, all at zero.
func New(cfg Config) *Telemetry {
	t := &Telemetry{ratio: cfg.NearLimitRatio, began: time.Now(), registry: prometheus.NewRegistry()}
	t.series = newSeriesSet(&t.totals.Overflow)
	if t.ratio == 0 {
		t.ratio = 0.8
	}
	t.register = prometheus.WrapRegistererWith(cfg.Labels, t.registry)
	t.compat()
	t.own(cfg.Version)
	t.compatSources()
	t.Measure(func() any { return &t.totals })
	t.register.MustRegister(t.series, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t
}

// compat registers what has a name in the reference server, besides the series of limits.
func (t *Telemetry) compat() {
	const p = "ratelimit_service_"
	t.errors = t.words(p+"should_rate_limit_error",
		"Decisions without the store (redis_error), and calls that failed (service_error).", "err_type")
	t.requests = t.vector(p+"total_requests", "Calls over gRPC.", "grpc_method")
	t.latency = prometheus.NewHistogramVec(latencies(p+"response_time_seconds", "Time from request to answer."),
		[]string{"grpc_method"})
	t.register.MustRegister(t.latency)
}

// latencies are the options of a histogram of durations: classic buckets from 50 µs to 1.6 s, and native ones.
func latencies(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}
}

// own registers what only Spillway has.
func (t *Telemetry) own(version string) {
	const p = "spillway_"
	t.rules.known = map[ruleLabels]*RuleCounters{}
	t.Measure(func() any { return t.rules.stats() })
	t.excess = t.words(p+"excess_requests_total",
		"Requests refused because they exceed a bound: bytes, descriptors, memory beside other large ones, "+
			"readings of a long path, or charges that are made all or none.", "reason")
	t.overAdmitted = t.vector(p+"over_admitted_total",
		"Charges that the shared store refused too late, after their requests had been admitted without it.", "domain",
		"rule")
	t.degraded = t.vector(p+"degraded_decisions_total", "Charges decided without the shared store.", "domain", "rule",
		"reason")
	t.register.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: p + "degraded", Help: "Whether a request of the last five seconds was decided without the shared store.",
	}, t.degradedNow))
	t.storeErrors = t.words(p+"store_errors_total",
		"Calls to the shared store without a decision, also those that were not sent.", "reason")
	t.storeCalls = t.words(p+"store_calls_total",
		"Calls to a server of the shared store: ok, or why it did not decide.", "outcome")
	t.storeLatency = prometheus.NewHistogram(latencies(p+"store_call_seconds",
		"Time of calls that were sent to a server of the shared store."))
	t.register.MustRegister(t.storeLatency)
	build := prometheus.GaugeOpts{Name: p + "build_info", Help: "Always 1; the labels name the build.",
		ConstLabels: prometheus.Labels{
			"version": version, "revision": revision(), "goversion": runtime.Version(),
		}}
	t.register.MustRegister(prometheus.NewGaugeFunc(build, func() float64 { return 1 }))
}

// counts registers a counter that others add to.
func (t *Telemetry) counts(name, help string, n *atomic.Int64) {
	opts := prometheus.CounterOpts{Name: name, Help: help}
	t.register.MustRegister(prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) }))
}

func (t *Telemetry) vector(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	t.register.MustRegister(c)
	return c
}

// words registers a vector with one label of few values.
func (t *Telemetry) words(name, help, label string) *words {
	v := t.vector(name, help, label)
	return &words{make: func(word string) prometheus.Counter { return v.WithLabelValues(word) }}
}

// revision is the commit this program was built from, or empty.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// Handler serves the metrics in Prometheus' formats.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// Loaded counts a load of the rules that was taken, with a hash of them.
func (t *Telemetry) Loaded(hash string, at time.Time) {
	t.totals.Loads.Add(1)
	t.totals.Hash.Store(&hash)
	t.totals.LastLoad.Store(1)
	t.totals.LastGood.Store(at.Unix())
}

// LoadFailed counts a load of the rules that was refused.
func (t *Telemetry) LoadFailed() {
	t.totals.LoadErrors.Add(1)
	t.totals.LastLoad.Store(0)
}

// PublishedRefused counts a published document of rules that does not compile.
func (t *Telemetry) PublishedRefused() { t.totals.Documents.Add(1) }

// Panicked counts a panic that was recovered.
func (t *Telemetry) Panicked() {
	t.totals.Panics.Add(1)
	t.errors.of("service_error").Inc()
}

// StoreFailed counts a call to the store that failed. The reasons are the store's own few words.
func (t *Telemetry) StoreFailed(reason string) { t.storeErrors.of(reason).Inc() }

// StoreCalled counts and times a call to a server of the store; reason is why it did not decide, or empty. Sent is
// false for one that was kept back, which is not timed.
func (t *Telemetry) StoreCalled(reason string, sent bool, took time.Duration) {
	if reason == "" {
		reason = "ok"
	}
	t.storeCalls.of(reason).Inc()
	if sent {
		t.storeLatency.Observe(took.Seconds())
	}
}

// StoreAway counts a request of which at least one charge was decided without the store.
func (t *Telemetry) StoreAway() {
	t.errors.of("redis_error").Inc()
	t.away.Store(time.Now().UnixNano())
}

// degradedFor is how long a decision without the store shows in the gauge.
const degradedFor = 5 * time.Second

func (t *Telemetry) degradedNow() float64 {
	if time.Now().UnixNano()-t.away.Load() < int64(degradedFor) {
		return 1
	}
	return 0
}

// Exceeded counts a request that was refused because it brings too much.
func (t *Telemetry) Exceeded(reason string) { t.excess.of(reason).Inc() }

// Series returns the counters of a limit whose metric key comes from the configuration. It is for load time.
func (t *Telemetry) Series(domain string, levels []string) *Series {
	return t.series.static(domain, levels)
}

// Dynamic returns the counters of a limit whose metric key holds values of the request: bounded in number, and the
// values may be used again by the caller.
func (t *Telemetry) Dynamic(domain string, levels []string) *Series {
	return t.series.perRequest(domain, levels)
}

// Count adds a hit to a series.
func (t *Telemetry) Count(s *Series, h Hit) { s.Add(h, t.ratio) }

// Text writes every metric of this program's own as one line `name{labels} value`, sorted by name.
func (t *Telemetry) Text(w io.Writer) error { return writeText(w, t.registry) }
