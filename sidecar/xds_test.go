package sidecar

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/httpapi/reread"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// perYear is a resource that admits so many requests of each user, with the domain for its name.
func perYear(domain string, count uint32) *configv3.RateLimitConfig {
	return &configv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*configv3.RateLimitDescriptor{{
		Key: "user", RateLimit: &configv3.RateLimitPolicy{Unit: configv3.RateLimitUnit_YEAR, RequestsPerUnit: count},
	}}}
}

// follower starts a sidecar whose rules come from a management server.
func follower(t *testing.T, server string, environ ...string) *running {
	t.Helper()
	return launch(t, nil, "", append([]string{
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + server, "CONFIG_GRPC_XDS_NODE_ID=" +
			servers.ManagementNode,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=20ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=100ms",
	}, environ...)...)
}

// limitOf returns the count of the only limit of a domain, or -1.
func (r *running) limitOf(domain string) int64 {
	set := r.counts.engine.Rules()
	if set == nil {
		return -1
	}
	for name, effect := range set.Effects() {
		if name == domain {
			return effect.Limit.Count
		}
	}
	return -1
}

// awaitLimit waits until a domain has a limit; -1: until it has none.
func (r *running) awaitLimit(t *testing.T, domain string, want int64) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("limit %d of %s", want, domain), func() error {
		if got := r.limitOf(domain); got != want {
			return fmt.Errorf("the limit of %s is %d, want %d", domain, got, want)
		}
		return nil
	})
}

// awaitText waits for a text on a page.
func awaitText(t *testing.T, address, path, text string) {
	t.Helper()
	servers.Await(t, text, func() error {
		_, body := fetch(t, address, path)
		if !strings.Contains(body, text) {
			return fmt.Errorf("GET %s = %s, want %q", path, body, text)
		}
		return nil
	})
}

// refusals are the reasons of the NACKs that a server got.
func refusals(m *servers.Management) (all []string) {
	for _, r := range m.Requests() {
		if r.GetErrorDetail() != nil {
			all = append(all, r.GetErrorDetail().GetMessage())
		}
	}
	return all
}

// TestRulesOverXDS follows one sidecar through a first configuration, a change, a refused one, its correction and a
// removal.
func TestRulesOverXDS(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("shop", 2), perYear("other", 5))
	s := follower(t, m.Addr)
	s.awaitLimit(t, "shop", 2)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)

	m.Set(t, "2", perYear("shop", 4), perYear("other", 5))
	s.awaitLimit(t, "shop", 4)

	bad := perYear("shop", 9)
	bad.Descriptors[0].RateLimit.Unit = configv3.RateLimitUnit_UNKNOWN
	m.Set(t, "3", bad)
	servers.Await(t, "the refusal", func() error {
		if got := refusals(m); len(got) == 0 ||
			!strings.Contains(got[0], `xds:shop: invalid rate limit unit "UNKNOWN"`) {
			return fmt.Errorf("refusals: %q", got)
		}
		return nil
	})
	if s.limitOf("shop") != 4 || s.limitOf("other") != 5 {
		t.Errorf("a refused response changed the rules: shop %d, other %d", s.limitOf("shop"), s.limitOf("other"))
	}
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok (degraded: xds: the newest load was refused")
	awaitText(t, s.Addresses().Debug, "/metrics", "spillway_xds_refusals_total 1")
	expectPage(t, s.Addresses().Debug, "/metrics", 200, "ratelimit_service_config_load_error 1")
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_xds_info{version="2"} 1`)

	m.Set(t, "4", perYear("shop", 7), perYear("other", 5))
	s.awaitLimit(t, "shop", 7)
	m.Set(t, "5", perYear("shop", 7))
	s.awaitLimit(t, "other", -1)
	m.Set(t, "6")
	s.awaitLimit(t, "shop", -1)
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok\n")
}

// TestAManagementServerThatRestarts is away at first, then comes back with versions that are new, the same and older. A
// deleted limit must not stay because a version looks familiar.
func TestAManagementServerThatRestarts(t *testing.T) {
	addr := servers.FreeAddr(t)
	s := follower(t, addr)
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
	expectPage(t, s.Addresses().HTTP, "/readyz", 200,
		"xds: no good load yet, so every request is admitted; xds: no stream to "+addr)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOK)

	m := servers.StartManagement(t, addr)
	m.Set(t, "7", perYear("shop", 2))
	s.awaitLimit(t, "shop", 2)
	for _, next := range []struct {
		version string
		count   int64
	}{{"8", 3}, {"1", 4}, {"1", 5}, {"1", -1}} {
		m.Stop()
		awaitText(t, s.Addresses().Debug, "/metrics", "spillway_xds_connected 0")
		before := s.limitOf("shop")
		m = servers.StartManagement(t, addr)
		if next.count < 0 {
			m.Set(t, next.version)
		} else {
			m.Set(t, next.version, perYear("shop", uint32(next.count)))
		}
		if before < 0 {
			t.Fatal("the rules went away with the server")
		}
		s.awaitLimit(t, "shop", next.count)
		first := m.Requests()[0]
		if first.GetVersionInfo() != "" || first.GetResponseNonce() != "" ||
			first.GetNode().GetId() != servers.ManagementNode {
			t.Errorf("a stream begins with %v, want neither version nor nonce", first)
		}
	}
}

// TestXDSWithoutRedis starts before both.
func TestXDSWithoutRedis(t *testing.T) {
	addr := servers.FreeAddr(t)
	s := follower(t, addr, "REDIS_URL="+servers.FreeAddr(t))
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
	servers.StartManagement(t, addr).Set(t, "1", perYear("shop", 2))
	s.awaitLimit(t, "shop", 2)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
}

// TestXDSWithRedis has rules of a management server alone, and receives news of other sidecars and a control plane:
// changed rules, too.
func TestXDSWithRedis(t *testing.T) {
	redis := servers.StartRedis(t)
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("shop", 2))
	s := follower(t, m.Addr, "REDIS_URL="+redis.Addr)
	s.awaitLimit(t, "shop", 2)
	channel := s.redisNames().Shared("news")
	servers.Await(t, "a message that is heard", func() error {
		if got := redis.Do(t, "PUBLISH", channel, `{"topic":"`+topicRules+`"}`); got != int64(1) {
			return fmt.Errorf("%v sidecars receive it", got)
		}
		return nil
	})
	redis.Do(t, "CLIENT", "KILL", "TYPE", "pubsub") // what is missed meanwhile makes a gap
	servers.Await(t, "the sidecar hears again", func() error {
		if got := redis.Do(t, "PUBLISH", channel, `{"topic":"`+topicRules+`"}`); got != int64(1) {
			return fmt.Errorf("%v sidecars receive it", got)
		}
		return nil
	})
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
}

// TestXDSRulesThatAreRequired: not ready before the first accepted response.
func TestXDSRulesThatAreRequired(t *testing.T) {
	addr := servers.FreeAddr(t)
	s := follower(t, addr, "RULES_REQUIRED=true")
	expectPage(t, s.Addresses().HTTP, "/readyz", 503, "no good rules yet")
	m := servers.StartManagement(t, addr)
	m.Set(t, "1", perYear("shop", 2))
	servers.Await(t, "readiness", func() error { return readyz(t, s, "ok\n") })
	m.Stop()
	servers.Await(t, "the lost server", func() error { return readyz(t, s, "ok (degraded: xds: no stream to "+addr) })
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
}

// TestFilesBesideXDS: files add domains and cannot change those of the server, whichever comes first.
func TestFilesBesideXDS(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("edge", 3))
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, strings.Replace(twoPerYear, "domain: shop", "domain: own", 1))
	s := follower(t, m.Addr, "RULES="+file)
	s.awaitLimit(t, "edge", 3)
	s.awaitLimit(t, "own", 2)

	m.Set(t, "2", perYear("edge", 3), perYear("own", 9))
	s.awaitLimit(t, "own", 9)
	s.awaitLog(t, `domain \"own\" is not used: xds:own has a domain of that name`)
	var view admin.RulesView
	_, body := fetch(t, s.Addresses().Debug, "/v1/rules")
	err := json.Unmarshal([]byte(body), &view)
	if err != nil || view.XDS == nil || !view.XDS.Connected || view.XDS.Version != "2" || len(view.XDS.Hides) != 1 ||
		view.XDS.Hides[0] != file {
		t.Errorf("/v1/rules = %s, %v", body, err)
	}
	for _, d := range view.Domains {
		if d.Source != "xds:"+d.Name || d.Limits[0].At != "xds:"+d.Name {
			t.Errorf("domain %s comes from %q, its limit from %q, want xds:%[1]s", d.Name, d.Source, d.Limits[0].At)
		}
	}
	var all admin.SidecarList
	_, body = fetch(t, s.Addresses().Debug, "/v1/sidecars")
	err = json.Unmarshal([]byte(body), &all)
	if err != nil || all.Sidecars[0].XDS == nil ||
		*all.Sidecars[0].XDS != (admin.XDSState{Connected: true, Version: "2"}) {
		t.Errorf("/v1/sidecars = %s, %v", body, err)
	}

	write(t, file, strings.Replace(twoPerYear, "domain: shop", "domain: edge", 1)) // of the server too
	servers.Await(t, "the file that is hidden", func() error { return s.logs(`domain \"edge\" is not used`) })
	m.Set(t, "3", perYear("own", 9))
	s.awaitLimit(t, "edge", 2)
	write(t, file, "domain: [broken")
	servers.Await(t, "the refused file", func() error {
		return readyz(t, s, "ok (degraded: rules: the newest load was refused")
	})
	m.Set(t, "4", perYear("own", 4))
	s.awaitLimit(t, "own", 4)
	if s.limitOf("edge") != 2 {
		t.Error("a broken file took its last good rules away")
	}
}

// TestPublishedRulesBesideXDS: published rules add domains, and do not change those of the server.
func TestPublishedRulesBesideXDS(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("edge", 3))
	server := servers.StartRedis(t)
	s := follower(t, m.Addr, "REDIS_URL="+server.Addr, "RULES=redis:")
	s.awaitLimit(t, "edge", 3)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	for _, domain := range []string{"own", "edge"} {
		text := strings.Replace(twoPerYear, "domain: shop", "domain: "+domain, 1)
		document := must.Get(json.Marshal(rules.Document{Domain: domain, Version: 1, Publication: 1,
			Hash: rules.HashText(text), Text: text}))(t)
		must.Do(t, client.HSet(t.Context(), s.redisNames().Shared(rules.PublishedKey), domain, document).Err())
	}
	s.Reload()
	s.awaitLimit(t, "own", 2)
	if got := s.limitOf("edge"); got != 3 {
		t.Errorf("the limit of the server's domain is %d, want 3", got)
	}
}

// TestXDSOverTLS: certificates on both sides, read again for each connection.
func TestXDSOverTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "envoy-gateway", 2)
	options := func() grpc.ServerOption {
		pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
		pool := must.Get(reread.Authorities(a.file))(t)
		return grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}))
	}
	m := servers.StartManagement(t, "", options())
	m.Set(t, "1", perYear("shop", 2))
	own, ownKey := a.issue(t, "envoy-ratelimit", 3)
	environ := []string{"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + own,
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + ownKey, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + a.file}
	s := follower(t, m.Addr, append(environ, "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway")...)
	s.awaitLimit(t, "shop", 2)

	// 127.0.0.1 is not in the certificate, and no other name is expected.
	stranger := follower(t, m.Addr, environ...)
	stranger.awaitLog(t, "no stream to the management server")
	if stranger.limitOf("shop") != -1 {
		t.Error("a certificate for another name is taken")
	}

	cfg := fromEnv(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+m.Addr,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/does/not/exist")
	_, err := New(cfg)
	if err == nil || !strings.Contains(err.Error(), "CONFIG_GRPC_XDS_SERVER_TLS_CACERT: open /does/not/exist") {
		t.Errorf("a missing authority gives %v", err)
	}
}

// TestAHugeResponse is not read, and the rules stay.
func TestAHugeResponse(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("shop", 2))
	s := follower(t, m.Addr, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=10000")
	s.awaitLimit(t, "shop", 2)
	huge := perYear("shop", 3)
	for i := range 1000 {
		huge.Descriptors = append(huge.Descriptors, &configv3.RateLimitDescriptor{Key: fmt.Sprintf("key-%d", i)})
	}
	m.Set(t, "2", huge)
	servers.Await(t, "the refused message", func() error { return s.logs("received message larger than max") })
	if s.limitOf("shop") != 2 {
		t.Errorf("the limit is %d, want 2", s.limitOf("shop"))
	}
	m.Set(t, "3", perYear("shop", 4))
	s.awaitLimit(t, "shop", 4)
}

// TestAServerThatSpeaksSomethingElse hangs up or sends noise; the sidecar serves.
func TestAServerThatSpeaksSomethingElse(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				fmt.Fprint(conn, strings.Repeat("no HTTP/2 ", 1000))
				conn.Close()
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	s := follower(t, l.Addr().String())
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "xds: no stream to")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
}

// broken is rules for a domain that are refused.
func broken(domain string) *configv3.RateLimitConfig {
	rules := perYear(domain, 9)
	rules.Descriptors[0].RateLimit.Unit = configv3.RateLimitUnit_UNKNOWN
	return rules
}

func TestGoingBackToTheRulesInUseEndsTheRefusal(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("shop", 2))
	s := follower(t, m.Addr)
	s.awaitLimit(t, "shop", 2)
	m.Set(t, "2", broken("shop"))
	servers.Await(t, "the refusal", func() error {
		return readyz(t, s, "ok (degraded: xds: the newest load was refused")
	})
	s.awaitLog(t, "version=2")
	m.Set(t, "3", perYear("shop", 2))
	servers.Await(t, "the end of the refusal", func() error { return readyz(t, s, "ok\n") })
}

func TestARefusalDuringARemovalIsTold(t *testing.T) {
	m := servers.StartManagement(t, "")
	m.Set(t, "1", perYear("shop", 2), perYear("other", 5))
	s := follower(t, m.Addr)
	s.awaitLimit(t, "other", 5)
	m.Set(t, "2", perYear("shop", 2))
	awaitText(t, s.Addresses().Debug, "/metrics", `spillway_xds_info{version="2"} 1`)
	m.Set(t, "3", broken("shop"))
	s.awaitLimit(t, "other", -1)
	servers.Await(t, "the refusal", func() error {
		return readyz(t, s, "ok (degraded: xds: the newest load was refused")
	})
}
