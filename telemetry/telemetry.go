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

// Config says what is measured. The zero value works.
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

	loads, loadErrors, shadowed, unknown prometheus.Counter
	panics, badOverrides                 prometheus.Counter
	degraded, overAdmitted, requests     *prometheus.CounterVec
	errors, storeErrors, storeCalls      *words
	excess                               *words
	publishedRefused                     prometheus.Counter
	latency                              *prometheus.HistogramVec
	storeLatency                         prometheus.Histogram
	generation, lastLoad, lastGood       prometheus.Gauge
	away                                 atomic.Int64           // unix nanoseconds of the last decision without the store
	hash                                 atomic.Pointer[string] // of the rules in use
	spans                                spanCounters
	unlogged                             prometheus.Counter // decisions that were to be logged
}

// New returns the metrics, all at zero.
func New(cfg Config) *Telemetry {
	t := &Telemetry{ratio: cfg.NearLimitRatio, began: time.Now(), registry: prometheus.NewRegistry(), series: newSeriesSet()}
	if t.ratio == 0 {
		t.ratio = 0.8
	}
	t.register = prometheus.WrapRegistererWith(cfg.Labels, t.registry)
	t.compat()
	t.own(cfg.Version)
	t.compatSources()
	t.register.MustRegister(t.series, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t
}

// compat registers what has a name in the reference server, besides the series of limits.
func (t *Telemetry) compat() {
	const p = "ratelimit_service_"
	t.loads = t.counter(p+"config_load_success", "Loads of the rules that were taken.")
	t.loadErrors = t.counter(p+"config_load_error", "Loads of the rules that were refused; the last good rules stay.")
	t.shadowed = t.counter(p+"global_shadow_mode", "Refusals that SHADOW_MODE turned into an OK.")
	t.unknown = t.counter(rateLimit+"domain_not_found", "Requests for a domain without rules.")
	t.errors = t.words(p+"should_rate_limit_error", "Decisions without the store (redis_error), and calls that failed (service_error).", "err_type")
	t.requests = t.vector(p+"total_requests", "Calls over gRPC.", "grpc_method")
	t.latency = prometheus.NewHistogramVec(latencies(p+"response_time_seconds", "Time from request to answer."), []string{"grpc_method"})
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
	t.rules.known = map[ruleLabels]*Rule{}
	t.rules.desc = prometheus.NewDesc(p+"decisions_total", "Requests decided, by outcome and by the rule that decided.", []string{"domain", "rule", "scope", "outcome"}, nil)
	t.register.MustRegister(&t.rules)
	t.publishedRefused = t.counter(p+"published_rules_refused_total", "Published documents of rules that do not compile; the ones before them stay.")
	t.panics = t.counter(p+"panics_total", "Panics that were recovered, in answers and in the background.")
	t.badOverrides = t.counter(p+"bad_overrides_total", "Overrides in descriptors that could not be read and were ignored.")
	t.excess = t.words(p+"excess_requests_total", "Requests refused because they exceed a bound: bytes, descriptors, memory beside other large ones, readings of a long path, or charges that are made all or none.", "reason")
	t.overAdmitted = t.vector(p+"over_admitted_total", "Charges that the shared store refused too late, after their requests had been admitted without it.", "domain", "rule")
	t.degraded = t.vector(p+"degraded_decisions_total", "Charges decided without the shared store.", "domain", "rule", "reason")
	t.register.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: p + "degraded", Help: "Whether a request of the last five seconds was decided without the shared store.",
	}, t.degradedNow))
	t.storeErrors = t.words(p+"store_errors_total", "Calls to the shared store without a decision, also those that were not sent.", "reason")
	t.storeCalls = t.words(p+"store_calls_total", "Calls to a server of the shared store: ok, or why it did not decide.", "outcome")
	t.storeLatency = prometheus.NewHistogram(latencies(p+"store_call_seconds", "Time of calls that were sent to a server of the shared store."))
	t.register.MustRegister(t.storeLatency)
	t.generation = t.gauge(p+"config_generation", "How many loads of the rules were taken since the start.")
	t.lastLoad = t.gauge(p+"config_last_load_successful", "Whether the newest load of the rules was taken.")
	t.lastGood = t.gauge(p+"config_last_success_timestamp_seconds", "When the rules in use were loaded.")
	t.counts(p+"metric_series_overflow_total", "Hits counted under the key other: too many values.", &t.series.dropped)
	build := t.gauges(p+"build_info", "Always 1; the labels name the build.", "version", "revision", "goversion")
	build.WithLabelValues(version, revision(), runtime.Version()).Set(1)
	t.register.MustRegister(configInfo{t})
	t.spans = t.spanCounters()
	t.unlogged = t.counter(p+"decision_log_skipped_total", "Decisions that LOG_DECISIONS asks for and that were too many to log.")
}

func (t *Telemetry) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	t.register.MustRegister(c)
	return c
}

// counts registers a counter that others add to.
func (t *Telemetry) counts(name, help string, n *atomic.Int64) {
	opts := prometheus.CounterOpts{Name: name, Help: help}
	t.register.MustRegister(prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) }))
}

func (t *Telemetry) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	t.register.MustRegister(g)
	return g
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

func (t *Telemetry) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	t.register.MustRegister(g)
	return g
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

// configInfo names the rules in use by their hash: one series at a time.
type configInfo struct{ t *Telemetry }

// Describe describes nothing, so that there may be no series before the first load.
func (c configInfo) Describe(chan<- *prometheus.Desc) {}

// Collect sends the hash of the rules in use.
func (c configInfo) Collect(out chan<- prometheus.Metric) {
	hash := c.t.hash.Load()
	if hash == nil {
		return
	}
	desc := prometheus.NewDesc("spillway_config_info", "Always 1; the label is a hash of the rule files and of all that the rules in use hold.", []string{"hash"}, nil)
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, *hash)
}

// Handler serves the metrics in Prometheus' formats.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// Loaded counts a load of the rules that was taken, with a hash of them.
func (t *Telemetry) Loaded(hash string, at time.Time) {
	t.loads.Inc()
	t.generation.Inc()
	t.hash.Store(&hash)
	t.lastLoad.Set(1)
	t.lastGood.Set(float64(at.UnixMilli()) / 1e3)
}

// LoadFailed counts a load of the rules that was refused.
func (t *Telemetry) LoadFailed() {
	t.loadErrors.Inc()
	t.lastLoad.Set(0)
}

// PublishedRefused counts a published document of rules that does not compile.
func (t *Telemetry) PublishedRefused() { t.publishedRefused.Inc() }

// Panicked counts a panic that was recovered.
func (t *Telemetry) Panicked() {
	t.panics.Inc()
	t.errors.of("service_error").Inc()
}

// StoreFailed counts a call to the store that failed. The reasons are the store's own few words.
func (t *Telemetry) StoreFailed(reason string) { t.storeErrors.of(reason).Inc() }

// StoreCalled counts and times a call to a server of the store; reason is why it did not decide, or empty. Sent is false
// for one that was kept back, which is not timed.
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

// BadOverrides counts overrides that could not be read.
func (t *Telemetry) BadOverrides(n int) { t.badOverrides.Add(float64(n)) }

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
