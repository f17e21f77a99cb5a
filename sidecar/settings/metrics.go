package settings

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Metrics is where metrics and statistics go. The debug port has /metrics unless DISABLE_STATS is set.
type Metrics struct {
	// serves /metrics on PROMETHEUS_ADDR as well
	Prometheus bool `env:"USE_PROMETHEUS"`
	// host and port, with USE_PROMETHEUS
	Addr string `env:"PROMETHEUS_ADDR" envDefault:":9090"`
	Path string `env:"PROMETHEUS_PATH" envDefault:"/metrics"` // of the metrics there
	// share of a limit from which hits count as near_limit
	NearRatio float64 `env:"NEAR_LIMIT_RATIO" envDefault:"0.8"`
	// `k:v,k:v`: labels of every metric, tags of every statistic
	Labels map[string]string `env:"EXTRA_TAGS"`
	// no metrics on any port, and no statsd
	Disabled bool `env:"DISABLE_STATS"`
	// sends statistics to statsd, over TCP
	Statsd bool `env:"USE_STATSD"`
	// sends statistics to DogStatsD, over UDP; not with USE_STATSD
	DogStatsd  bool   `env:"USE_DOG_STATSD"`
	StatsdHost string `env:"STATSD_HOST" envDefault:"localhost"` // of statsd or DogStatsD
	StatsdPort uint16 `env:"STATSD_PORT" envDefault:"8125"`      // of statsd or DogStatsD
	// time from one sending of statistics to the next
	Flush time.Duration `env:"STATS_FLUSH_INTERVAL" envDefault:"10s" in:"1ms..1h"`
}

// MetricLabels are the labels that the metrics have themselves, so that those of EXTRA_TAGS need other names.
var MetricLabels = []string{
	"domain", "key1", "key2", "grpc_method", "err_type", "outcome", "rule", "scope", "reason", "store", "shard",
	"stream", "what", "to", "hash", "version", "revision", "goversion", "le", "quantile",
}

// SendsStatsd reports whether statistics are sent, to statsd or DogStatsD.
func (m *Metrics) SendsStatsd() bool { return (m.Statsd || m.DogStatsd) && !m.Disabled }

// validate adds the problems of the settings.
func (m *Metrics) validate(p *problems) {
	_, _, err := net.SplitHostPort(m.Addr)
	p.unless(err == nil, "PROMETHEUS_ADDR", m.Addr, "an address such as :9090 or 127.0.0.1:9090")
	p.unless(strings.HasPrefix(m.Path, "/") && !strings.ContainsAny(m.Path, " {}"), "PROMETHEUS_PATH", m.Path,
		"a path such as /metrics")
	p.unless(m.NearRatio > 0 && m.NearRatio <= 1, "NEAR_LIMIT_RATIO", m.NearRatio, "a number above 0 and at most 1")
	p.unless(!m.Statsd || !m.DogStatsd, "USE_DOG_STATSD", m.DogStatsd, "possible beside USE_STATSD: use one of them")
}

// PrometheusLabels are the tags as Prometheus takes them.
func (m *Metrics) PrometheusLabels() map[string]string {
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		all[labelOf(name)] = strings.ToValidUTF8(m.Labels[name], "?")
	}
	return all
}

// labelOf is the label of a tag. Labels have letters, digits and _, and those that metrics have themselves are taken.
func labelOf(tag string) string {
	label := notInLabels.ReplaceAllString(tag, "_")
	if !startsLabel.MatchString(label) || slices.Contains(MetricLabels, label) {
		return "tag_" + label
	}
	return label
}

var (
	notInLabels = regexp.MustCompile(`[^a-zA-Z0-9_]`)
	startsLabel = regexp.MustCompile(`^([a-zA-Z]|_[^_])`)
)

// renamed has a line for each tag that is another label.
func (m *Metrics) renamed() (lines []string) {
	for _, tag := range slices.Sorted(maps.Keys(m.Labels)) {
		if labelOf(tag) != tag {
			lines = append(lines, fmt.Sprintf("EXTRA_TAGS: for Prometheus the tag %q is the label %s", tag,
				labelOf(tag)))
		}
	}
	return lines
}

// warn adds a line for each variable that is set without effect.
func (m *Metrics) warn(set map[string]string, add func(is bool, line string)) {
	for _, name := range []string{"STATSD_HOST", "STATSD_PORT", "STATS_FLUSH_INTERVAL"} {
		add(set[name] != "" && !m.Disabled && !m.SendsStatsd(),
			name+": nothing is sent to statsd; set USE_STATSD=true or USE_DOG_STATSD=true as well")
	}
	add(m.Disabled && m.Prometheus, "USE_PROMETHEUS: DISABLE_STATS=true turns it off; remove one of them")
	add(m.Disabled && m.Statsd, "USE_STATSD: DISABLE_STATS=true turns it off; remove one of them")
	add(m.Disabled && m.DogStatsd, "USE_DOG_STATSD: DISABLE_STATS=true turns it off; remove one of them")
}
