package sidecar

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAWrongSettingOfRedisIsNamed: a mistake is an error in the log with its variable, and lasts in /readyz.
func TestAWrongSettingOfRedisIsNamed(t *testing.T) {
	plain, guarded := servers.StartRedis(t), servers.StartRedis(t, "--requirepass", "sesame")
	a := newAuthority(t)
	cert, key := a.issue(t, "localhost", 2)
	port := servers.FreeAddr(t)[len("127.0.0.1:"):]
	servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", a.file)
	sentinels, cluster, limited := servers.StartSentinels(t), servers.StartCluster(t), servers.StartRedis(t)
	limited.Do(t, "ACL", "SETUSER", "writer", "on", ">writes-a-lot", "~*", "&*", "+@all", "-evalsha", "-incrby")
	limited.Do(t, "ACL", "SETUSER", "stranger", "on", ">comes-from-afar", "~rec1:*", "resetchannels", "+@all")
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"no password":    {[]string{"REDIS_URL=" + guarded.Addr}, "REDIS_AUTH: "},
		"wrong password": {[]string{"REDIS_URL=" + guarded.Addr, "REDIS_AUTH=wrong-password"}, "REDIS_AUTH: "},
		"the second Redis": {[]string{"REDIS_URL=" + plain.Addr, "REDIS_PERSECOND=true",
			"REDIS_PERSECOND_URL=" + guarded.Addr}, "REDIS_PERSECOND_AUTH: "},
		"TLS to a plain server": {[]string{"REDIS_URL=" + plain.Addr, "REDIS_TLS=true"}, "REDIS_TLS: "},
		"no cluster":            {[]string{"REDIS_URL=" + plain.Addr, "REDIS_TYPE=cluster"}, "REDIS_TYPE: "},
		"no sentinel": {[]string{"REDIS_URL=mymaster," + plain.Addr, "REDIS_TYPE=sentinel"},
			"REDIS_TYPE: "},
		"a server with TLS": {[]string{"REDIS_URL=127.0.0.1:" + port}, "REDIS_TLS: "},
		"another authority": {[]string{"REDIS_URL=rediss://localhost:" + port, "REDIS_TLS_CACERT=" +
			newAuthority(t).file},
			"REDIS_TLS_CACERT: "},
		"no such master": {[]string{"REDIS_URL=limit," + strings.Join(sentinels.Addrs(), ","), "REDIS_TYPE=sentinel"},
			`REDIS_URL: the sentinels watch no master of the name "limit", but limits; `},
		"one of a cluster": {[]string{"REDIS_URL=" + cluster.Addrs()[0]}, "REDIS_TYPE: the server is one of a " +
			"cluster of " +
			"several masters, and does not hold all keys; set it to cluster"},
		"no right to commands": {[]string{"REDIS_URL=" + limited.Addr, "REDIS_AUTH=writer:writes-a-lot"},
			"REDIS_AUTH: the user writer " +
				"lacks rights on the server; grant them: ACL SETUSER writer +evalsha +incrby"},
		"no right to keys": {[]string{"REDIS_URL=" + limited.Addr, "REDIS_AUTH=stranger:comes-from-afar"},
			"REDIS_AUTH: the user stranger " +
				"lacks rights on the server; grant them: ACL SETUSER stranger '&rec1:*' '~rl1:*'"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, twoPerYear, c.environ...)
			servers.Await(t, "the variable in /readyz", func() error {
				_, body := fetch(t, s.Addresses().HTTP, "/readyz")
				if !strings.Contains(body, c.want) {
					return fmt.Errorf("/readyz has %q, want %q in it", body, c.want)
				}
				return nil
			})
			s.awaitLog(t, `level=ERROR msg="the settings of redis are wrong"`)
			s.awaitLog(t, "mend="+strings.TrimSuffix(strconv.Quote(c.want), `"`))
			if strings.Contains(s.log.String(), "wrong-password") {
				t.Errorf("the log shows the password:\n%s", s.log)
			}
		})
	}
}

// TestARightThatIsGranted ends the mistake, and one that is taken away while the sidecar runs begins it.
func TestARightThatIsGranted(t *testing.T) {
	server := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+server.Addr)
	await := func(want string) {
		t.Helper()
		servers.Await(t, "/readyz", func() error {
			_, body := fetch(t, s.Addresses().HTTP, "/readyz")
			if !strings.Contains(body, want) {
				return fmt.Errorf("/readyz has %q, want %q in it", body, want)
			}
			return nil
		})
	}
	await("ok\n")
	server.Do(t, "ACL", "SETUSER", "default", "-zadd")
	await("REDIS_AUTH: the user default lacks rights on the server; grant them: ACL SETUSER default +zadd")
	server.Do(t, "ACL", "SETUSER", "default", "+zadd")
	await("ok\n")
}

// TestEveryCommandThatIsDocumentedIsProbed: the table of docs/redis.md has what a user needs.
func TestEveryCommandThatIsDocumentedIsProbed(t *testing.T) {
	page := string(must.Get(os.ReadFile("../docs/redis.md"))(t))
	probed := strings.Join(append(slices.Clone(counterRights), sharedRights...), "\n")
	// PUBLISH and GET are in the categories of the first three, and RPUSH would leave a key
	unprobed := []string{"UNSUBSCRIBE", "SUBSCRIBE", "MGET", "RPUSH"}
	for _, part := range []string{"counters and leases", "heartbeat and peers", "profiles and rules", "news and answers",
		"usage and events"} {
		_, row, found := strings.Cut(page, "| "+part+" |")
		if !found {
			t.Fatalf("docs/redis.md has no row %q", part)
		}
		row, _, _ = strings.Cut(row, "\n")
		for _, command := range regexp.MustCompile(`[A-Z_]{3,}`).FindAllString(row, -1) {
			if !slices.Contains(unprobed, command) && !regexp.MustCompile("(?m)(^|^SCRIPT "+
				")"+command+`\b`).MatchString(probed) {
				t.Errorf("the right to %s is not probed", command)
			}
		}
	}
}
