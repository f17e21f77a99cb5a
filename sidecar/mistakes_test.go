package sidecar

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAWrongSettingOfRedisIsNamed: a mistake is an error in the log with its variable, and lasts in /readyz.
func TestAWrongSettingOfRedisIsNamed(t *testing.T) {
	plain, guarded := servers.StartRedis(t), servers.StartRedis(t, "--requirepass", "sesame")
	a := newAuthority(t)
	cert, key := a.issue(t, "localhost", 2)
	port := servers.FreeAddr(t)[len("127.0.0.1:"):]
	servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.file)
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
		"another authority": {[]string{"REDIS_URL=rediss://localhost:" + port, "REDIS_TLS_CACERT=" + newAuthority(t).file},
			"REDIS_TLS_CACERT: "},
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
			s.awaitLog(t, `mend="`+c.want)
			if strings.Contains(s.log.String(), "wrong-password") {
				t.Errorf("the log shows the password:\n%s", s.log)
			}
		})
	}
}
