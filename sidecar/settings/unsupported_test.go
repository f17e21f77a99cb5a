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
	for name, why := range unsupported {
		if slices.Contains(read, name) {
			t.Errorf("%s is read and named as unsupported", name)
		}
		if len(why) < 20 {
			t.Errorf("%s is ignored because %q: say why, and what to do instead", name, why)
		}
	}
}

func TestIgnoredVariablesAreNamedOneByOne(t *testing.T) {
	cfg := fromEnv(t,
		"OTEL_TRACES_EXPORTER=zipkin", "OTEL_PROPAGATORS=jaeger,b3,baggage", "LOCAL_CACHE_SIZE_IN_BYTES=1000000",
		"STATSD_HOST=statsd", "BACKEND_TYPE=memcache", "REDIS_TIMOUT=3s", "RULE=x", "MEMCACHE_TLS=false",
		"REDIS_POOL_ON_EMPTY_BEHAVIOR=WAIT", "HOME=/root", "REDIS_PORT=tcp://10.0.0.1:6379", "HOSTNAME=pod",
		"CONTROL_LISTEN=:1", "REDIS_PIPELINE_LIMIT=5", "DOG_STATSD_MOGRIFIER_A_PATTERN=x",
		"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION=1s", "PATH=/bin", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
	)
	var got []string
	for _, line := range cfg.Warnings {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "ignored: "), ":")
		got = append(got, name)
	}
	want := []string{
		"DOG_STATSD_MOGRIFIER_A_PATTERN", "LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_TLS",
		"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION",
		"REDIS_PIPELINE_LIMIT", "REDIS_POOL_ON_EMPTY_BEHAVIOR", "REDIS_TIMOUT", "RULE", "STATSD_HOST",
		"BACKEND_TYPE=memcache", "OTEL_TRACES_EXPORTER=zipkin", "OTEL_PROPAGATORS",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("named at start (-want +got):\n%s", diff)
	}
}

func TestAMisspeltVariableIsNamedWithTheRightOne(t *testing.T) {
	for wrong, right := range map[string]string{"REDIS_TIMOUT": "REDIS_TIMEOUT", "RULE": "RULES",
		"REDIS_PERSECOND_UR": "REDIS_PERSECOND_URL", "LIMIT_RESPONSE_HEADER_ENABLED": "LIMIT_RESPONSE_HEADERS_ENABLED",
		"redis_url": "REDIS_URL", "CONTROL_LISTN": "CONTROL_LISTEN"} {
		want := "ignored: " + wrong + ": it is unknown; did you mean " + right + "?"
		if got := fromEnv(t, wrong+"=x").Warnings; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: the lines at start are %q, want %q", wrong, got, want)
		}
	}
}

func TestPoolsAreExplained(t *testing.T) {
	got := fromEnv(t, "REDIS_URL=a:1", "REDIS_POOL_SIZE=3", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b:1",
		"REDIS_PERSECOND_POOL_SIZE=100").Warnings
	if len(got) != 2 || !strings.HasPrefix(got[0], "REDIS_POOL_SIZE=3: 8 is used") ||
		!strings.HasPrefix(got[1], "REDIS_PERSECOND_POOL_SIZE=100: ") || !strings.Contains(got[1], "2 are in use") {
		t.Errorf("the lines at start are %q", got)
	}
}

func TestValuesThatAskForNothingNeedNoWarning(t *testing.T) {
	cfg := fromEnv(t, "TRACING_ENABLED=false", "USE_STATSD=false", "USE_DOG_STATSD=false", "REDIS_PERSECOND=False",
		"CONFIG_TYPE=FILE")
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
