package settings

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryVariableOfTheReferenceServerIsReadOrNamed(t *testing.T) {
	all := strings.Fields(peerNames)
	if len(all) != 114 {
		t.Fatalf("the list holds %d names, want 114", len(all))
	}
	read := Variables()
	for _, name := range all {
		_, named := unsupported[name]
		isRead := slices.Contains(read, name)
		if named == isRead {
			t.Errorf("%s: read is %v and named as unsupported is %v, want one of them", name, isRead, named)
		}
	}
}

func TestWhatIsIgnoredIsNotReadAndSaysWhy(t *testing.T) {
	read := Variables()
	for name, u := range unsupported {
		if slices.Contains(read, name) {
			t.Errorf("%s is read and named as unsupported", name)
		}
		if len(u.why) < 20 {
			t.Errorf("%s is ignored because %q: say why, and what to do instead", name, u.why)
		}
	}
}

func TestIgnoredVariablesAreNamedOneByOne(t *testing.T) {
	cfg := fromEnv(t,
		"OTEL_TRACES_EXPORTER=zipkin", "OTEL_PROPAGATORS=jaeger,b3,baggage", "LOCAL_CACHE_SIZE_IN_BYTES=1000000",
		"STATSD_HOST=statsd", "BACKEND_TYPE=memcache",
		"REDIS_POOL_ON_EMPTY_BEHAVIOR=CREATE", "REDIS_PIPELINE_LIMIT=5", "DOG_STATSD_MOGRIFIER_A_PATTERN=x",
		"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION=1s", "PATH=/bin", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
	)
	var got []string
	for _, line := range cfg.Warnings {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "ignored: "), ":")
		got = append(got, name)
	}
	want := []string{
		"DOG_STATSD_MOGRIFIER_A_PATTERN", "LOCAL_CACHE_SIZE_IN_BYTES", "REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION",
		"REDIS_PIPELINE_LIMIT", "REDIS_POOL_ON_EMPTY_BEHAVIOR",
		"STATSD_HOST", "BACKEND_TYPE=memcache", "OTEL_TRACES_EXPORTER=zipkin", "OTEL_PROPAGATORS",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("named at start (-want +got):\n%s", diff)
	}
}

func TestValuesThatAskForNothingNeedNoWarning(t *testing.T) {
	cfg := fromEnv(t, "TRACING_ENABLED=false", "USE_STATSD=false", "USE_DOG_STATSD=false", "REDIS_PERSECOND=False",
		"LOCAL_CACHE_SIZE_IN_BYTES=0", "REDIS_POOL_ON_EMPTY_BEHAVIOR=WAIT", "CONFIG_TYPE=FILE")
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings: %q", cfg.Warnings)
	}
}

func TestWhatDiffersIsRead(t *testing.T) {
	read, peer := Variables(), strings.Fields(peerNames)
	for name := range differs {
		if !slices.Contains(read, name) || !slices.Contains(peer, name) {
			t.Errorf("%s is said to differ, and is not read by both", name)
		}
	}
}
