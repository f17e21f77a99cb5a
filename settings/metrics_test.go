package settings

import (
	"strings"
	"testing"
	"time"
)

func TestSettingsOfStatsdAreChecked(t *testing.T) {
	for line, environ := range map[string][]string{
		"USE_DOG_STATSD":       {"USE_STATSD=true", "USE_DOG_STATSD=true"},
		"STATS_FLUSH_INTERVAL": {"STATS_FLUSH_INTERVAL=500us"},
		"STATSD_PORT":          {"STATSD_PORT=70000"},
	} {
		_, err := FromEnvironment(environ, "sidecar")
		if err == nil || !strings.HasPrefix(err.Error(), line+": ") {
			t.Errorf("%q gives %v, want a problem with %s", environ, err, line)
		}
	}
}

func TestStatsdIsOffUnlessAskedFor(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    bool
	}{
		{nil, false},
		{[]string{"USE_STATSD=true"}, true},
		{[]string{"USE_DOG_STATSD=true"}, true},
		{[]string{"USE_STATSD=true", "DISABLE_STATS=true"}, false},
	} {
		cfg := fromEnv(t, c.environ...)
		if got := cfg.Metrics.SendsStatsd(); got != c.want {
			t.Errorf("with %q statistics are sent: %v, want %v", c.environ, got, c.want)
		}
		if cfg.Metrics.Flush != 10*time.Second || cfg.Metrics.StatsdPort != 8125 || cfg.Metrics.StatsdHost != "localhost" {
			t.Errorf("with %q the defaults are %v to %s:%d", c.environ, cfg.Metrics.Flush, cfg.Metrics.StatsdHost, cfg.Metrics.StatsdPort)
		}
	}
}
