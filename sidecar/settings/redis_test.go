package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestProblemsWithTwoStores(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	must.Do(t, os.WriteFile(file, []byte("\n"), 0o600))
	const both = "REDIS_PERSECOND=true REDIS_URL=a:1 REDIS_PERSECOND_URL="
	for environ, want := range map[string]string{
		"REDIS_PERSECOND=true REDIS_URL=a:1": `REDIS_PERSECOND_URL: "" is not a Redis, which REDIS_PERSECOND needs`,
		"REDIS_PERSECOND=true REDIS_PERSECOND_URL=a:1": `REDIS_URL: "" is not a Redis, which REDIS_PERSECOND needs ` +
			`for the other limits`,
		both + "b:1,c:1": `REDIS_PERSECOND_URL: a list of servers needs REDIS_PERSECOND_TYPE: sentinel (the master's ` +
			`name comes first), cluster or ring`,
		both + "b": `REDIS_PERSECOND_URL: not an address: use host:port, redis://host:port, rediss:// or a socket's ` +
			`path`,
		both + "b:1 REDIS_PERSECOND_TYPE=x": `REDIS_PERSECOND_TYPE: "x" is not one of single, sentinel, ` +
			`cluster, ring`,
		both + "b:1 REDIS_PERSECOND_SOCKET_TYPE=x": `REDIS_PERSECOND_SOCKET_TYPE: "x" is not tcp or unix`,
		both + "b:1 REDIS_PERSECOND_POOL_SIZE=-1":  `REDIS_PERSECOND_POOL_SIZE: "-1" is not a number from 0 to 10000`,
		both + "b:1 REDIS_PERSECOND_TIMEOUT=-1s":   `REDIS_PERSECOND_TIMEOUT: "-1s" is not a duration from 0s`,
		both + "b:1 REDIS_PERSECOND_AUTH_FILE=/no": `REDIS_PERSECOND_AUTH_FILE: open /no: no such file or directory`,
		both + "b:1 REDIS_PERSECOND_SENTINEL_AUTH_FILE=/no": `REDIS_PERSECOND_SENTINEL_AUTH_FILE: open /no: no such ` +
			`file or directory`,
		"REDIS_URL=a:1 REDIS_AUTH_FILE=" + file: `REDIS_AUTH_FILE: "` + file + `" is empty`,
		"REDIS_URL=a:1 REDIS_AUTH=x REDIS_AUTH_FILE=" +
			file: `REDIS_AUTH and REDIS_AUTH_FILE are both set: use one of them`,
		"REDIS_URL=a:1 REDIS_SENTINEL_AUTH=x REDIS_SENTINEL_AUTH_FILE=" +
			file: `REDIS_SENTINEL_AUTH and REDIS_SENTINEL_AUTH_FILE are both set: use one of them`,
	} {
		_, err := FromEnvironment(strings.Fields(environ), "sidecar")
		if err == nil || err.Error() != want {
			t.Errorf("%s gives\n\t%v\nwant\n\t%s", environ, err, want)
		}
	}
}

func TestSettingsOfAStoreThatIsNotAskedFor(t *testing.T) {
	for environ, want := range map[string]string{
		"REDIS_PERSECOND=false REDIS_PERSECOND_URL=a:1,b:2 REDIS_PERSECOND_TYPE=x": "",
		"REDIS_PERSECOND=false REDIS_PERSECOND_TLS=true":                           "",
		"REDIS_PERSECOND_TLS=false REDIS_PERSECOND_AUTH=":                          "",
		"REDIS_PERSECOND_URL=a:1": "ignored: REDIS_PERSECOND_URL: " +
			"set REDIS_PERSECOND=true as well",
		"REDIS_URL=a:1 REDIS_SENTINEL_AUTH=x": "ignored: REDIS_SENTINEL_AUTH: there are no sentinels; REDIS_TYPE is " +
			"SINGLE",
		"REDIS_TYPE=sentinel REDIS_URL=m,a:1 REDIS_SENTINEL_AUTH=x": "",
		"REDIS_URL=a:1 REDIS_REPLICA_READS=usage": "ignored: REDIS_REPLICA_READS: there are no replicas that " +
			"Spillway knows of; REDIS_TYPE is SINGLE",
		"REDIS_TYPE=ring REDIS_URL=a:1,b:1 REDIS_REPLICA_READS=Usage": "ignored: REDIS_REPLICA_READS: there are no " +
			"replicas that Spillway knows of; REDIS_TYPE is ring",
		"REDIS_TYPE=sentinel REDIS_URL=m,a:1 REDIS_REPLICA_READS=usage": "",
		"REDIS_TYPE=cluster REDIS_URL=a:1 REDIS_REPLICA_READS=usage":    "",
		"REDIS_URL=a:1 REDIS_REPLICA_READS=none":                        "",
		"REDIS_CLUSTER_PIPELINE_PARALLELISM=4": "ignored: REDIS_CLUSTER_PIPELINE_PARALLELISM: " +
			noSerial,
		"REDIS_PERSECOND_PIPELINE_WINDOW=1ms": "ignored: REDIS_PERSECOND_PIPELINE_WINDOW: " +
			noPipeline,

		"REDIS_TYPE=cluster REDIS_AUTH=x REDIS_TLS=false": "no REDIS_URL: each sidecar counts alone, in memory; " +
			"without effect: REDIS_AUTH, REDIS_TYPE",

		"REDIS_PERSECOND_TLS=true": "ignored: REDIS_PERSECOND_TLS: set REDIS_PERSECOND=true as well",
		"REDIS_PERSECOND_POOL_SIZE=3 REDIS_PERSECOND_AUTH=x": "ignored: REDIS_PERSECOND_AUTH: set " +
			"REDIS_PERSECOND=true as well\n" +
			"ignored: REDIS_PERSECOND_POOL_SIZE: set REDIS_PERSECOND=true as well",
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if got := strings.Join(cfg.Warnings, "\n"); got != want {
			t.Errorf("%s warns %q, want %q", environ, got, want)
		}
	}
}
