package settings

import (
	"net"
	"slices"
	"strings"
	"time"
)

// Metrics is where metrics and statistics go. The debug port has /metrics unless DISABLE_STATS is set.
type Metrics struct {
	Prometheus bool              `env:"USE_PROMETHEUS"`                        // serves /metrics on PROMETHEUS_ADDR as well
	Addr       string            `env:"PROMETHEUS_ADDR" envDefault:":9090"`    // host and port, with USE_PROMETHEUS
	Path       string            `env:"PROMETHEUS_PATH" envDefault:"/metrics"` // of the metrics there
	NearRatio  float64           `env:"NEAR_LIMIT_RATIO" envDefault:"0.8"`     // share of a limit from which hits count as near_limit
	Labels     map[string]string `env:"EXTRA_TAGS"`                            // `k:v,k:v`: labels of every metric, tags of every statistic
	Disabled   bool              `env:"DISABLE_STATS"`                         // no metrics on any port, and no statsd
	Statsd     bool              `env:"USE_STATSD"`                            // sends statistics to statsd, over TCP
	DogStatsd  bool              `env:"USE_DOG_STATSD"`                        // sends statistics to DogStatsD, over UDP; not with USE_STATSD
	StatsdHost string            `env:"STATSD_HOST" envDefault:"localhost"`    // of statsd or DogStatsD
	StatsdPort uint16            `env:"STATSD_PORT" envDefault:"8125"`         // of statsd or DogStatsD
	Flush      time.Duration     `env:"STATS_FLUSH_INTERVAL" envDefault:"10s"` // time from one sending of statistics to the next
}

// MetricLabels are the labels that the metrics have themselves, so that EXTRA_TAGS may not name them.
var MetricLabels = []string{
	"domain", "key1", "key2", "grpc_method", "err_type", "outcome", "rule", "scope", "reason", "store", "shard", "to", "hash", "version", "revision", "goversion", "le", "quantile",
}

// SendsStatsd reports whether statistics are sent, to statsd or DogStatsD.
func (m *Metrics) SendsStatsd() bool { return (m.Statsd || m.DogStatsd) && !m.Disabled }

// validate adds the problems of the settings.
func (m *Metrics) validate(p *problems) {
	_, _, err := net.SplitHostPort(m.Addr)
	p.unless(err == nil, "PROMETHEUS_ADDR", m.Addr, "an address such as :9090 or 127.0.0.1:9090")
	p.unless(strings.HasPrefix(m.Path, "/") && !strings.ContainsAny(m.Path, " {}"), "PROMETHEUS_PATH", m.Path, "a path such as /metrics")
	p.unless(m.NearRatio > 0 && m.NearRatio <= 1, "NEAR_LIMIT_RATIO", m.NearRatio, "a number above 0 and at most 1")
	for name := range m.Labels {
		free := labelName.MatchString(name) && !strings.HasPrefix(name, "__") && !slices.Contains(MetricLabels, name)
		p.unless(free, "EXTRA_TAGS", name, "a label's name that is free: letters, digits and _")
	}
	p.unless(!m.Statsd || !m.DogStatsd, "USE_DOG_STATSD", m.DogStatsd, "possible beside USE_STATSD: use one of them")
	p.unless(m.Flush >= time.Millisecond && m.Flush <= time.Hour, "STATS_FLUSH_INTERVAL", m.Flush, "a duration from 1ms to 1h")
}

// warn adds a line for each variable that is set and has no effect.
func (m *Metrics) warn(set map[string]string, add func(is bool, line string)) {
	for _, name := range []string{"STATSD_HOST", "STATSD_PORT", "STATS_FLUSH_INTERVAL"} {
		add(set[name] != "" && !m.SendsStatsd(), name+": nothing is sent to statsd; set USE_STATSD=true or USE_DOG_STATSD=true as well")
	}
}
