package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		if cfg.Metrics.Flush != 10*time.Second || cfg.Metrics.StatsdPort != 8125 ||
			cfg.Metrics.StatsdHost != "localhost" {
			t.Errorf("with %q the defaults are %v to %s:%d", c.environ, cfg.Metrics.Flush, cfg.Metrics.StatsdHost,
				cfg.Metrics.StatsdPort)
		}
	}
}

// TestTagsAreLabelsOfPrometheus: the reference server takes any tags, and so a sidecar in its place has to start with
// them.
func TestTagsAreLabelsOfPrometheus(t *testing.T) {
	cfg := fromEnv(t, "EXTRA_TAGS=env:x,version:1,kube.ns:y,host-name:b,__own:1,9th:2,stream:z,odd:\xff")
	want := map[string]string{"env": "x", "tag_version": "1", "kube_ns": "y", "host_name": "b", "tag___own": "1",
		"tag_9th": "2", "tag_stream": "z", "odd": "?"}
	if diff := cmp.Diff(want, cfg.Metrics.PrometheusLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if cfg.Metrics.Labels["kube.ns"] != "y" {
		t.Errorf("statsd gets the tags %v", cfg.Metrics.Labels)
	}
	if !slices.Contains(cfg.Warnings, `EXTRA_TAGS: for Prometheus the tag "version" is the label tag_version`) {
		t.Errorf("the warnings are %q", cfg.Warnings)
	}
}

// TestStatisticsThatAreTurnedOffTwice: the warning names what turns them off.
func TestStatisticsThatAreTurnedOffTwice(t *testing.T) {
	for _, statsd := range []string{"USE_STATSD", "USE_DOG_STATSD"} {
		cfg := fromEnv(t, "DISABLE_STATS=true", "USE_PROMETHEUS=true", statsd+"=true", "STATSD_HOST=x")
		want := []string{"ignored: USE_PROMETHEUS: DISABLE_STATS=true turns it off; remove one of them",
			"ignored: " + statsd + ": DISABLE_STATS=true turns it off; remove one of them"}
		if diff := cmp.Diff(want, cfg.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	}
}
