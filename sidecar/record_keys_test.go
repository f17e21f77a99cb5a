package sidecar

import (
	"path/filepath"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// keyed adds up the requests of each API key, and those that were refused.
func (c *copied) keyed() map[string]int64 {
	sum := map[string]int64{}
	for _, r := range c.usage.Keys {
		sum[r.Name] += r.Requests
		sum[r.Name+" refused"] += r.Refused
	}
	return sum
}

// TestCachesAreCountedByDomain: of profiles of identities and of tokens.
func TestCachesAreCountedByDomain(t *testing.T) {
	redis, keySet := servers.StartRedis(t), filepath.Join(t.TempDir(), "keys.json")
	write(t, keySet, `{"keys": []}`)
	s := begin(t, "domain: shop\nidentity:\n  order: [jwt, ip]\n  jwt:\n    - {issuer: \"https://issuer.example\", "+
		"jwks: \"file:"+keySet+"\", audiences: [shop]}\nrules:\n  - {name: each, scope: ip, limit: 100/1h}\n",
		"REDIS_URL="+redis.Addr, "RECORD=true")
	s.operate(t, "/v1/block", fields{"ip": "198.51.100.7"})
	conn := dial(t, s.Addresses().GRPC)
	for range 3 {
		check(t, conn, "/", map[string]string{"authorization": "Bearer worthless"})
	}
	s.halt(t)
	sum := map[string]int64{}
	for _, r := range must.Get(readRecord(t, s))(t).usage.Caches {
		if r.Name != "denials" {
			sum[r.Domain+" "+r.Name+" hits"] += r.Hits
			sum[r.Domain+" "+r.Name+" misses"] += r.Misses
		}
	}
	wantSums(t, "caches", sum, map[string]int64{"shop profiles hits": 2, "shop profiles misses": 1,
		"shop tokens hits": 2, "shop tokens misses": 1})
}

// TestKeysOfTheRateLimitService are counted beside their users, by names that do not show them.
func TestKeysOfTheRateLimitService(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, "domain: shop\nattributes: {credential: api_key}\ndescriptors:\n"+
		"  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}\n", "REDIS_URL="+redis.Addr, "RECORD=true")
	client := ratelimitv3.NewRateLimitServiceClient(dial(t, s.Addresses().GRPC))
	for range 3 {
		must.Get(client.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "shop",
			Descriptors: []*commonv3.RateLimitDescriptor{
				{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}},
				{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "credential", Value: secretKey}}},
			}}))(t)
	}
	s.halt(t)
	got := must.Get(readRecord(t, s))(t)
	key := "key:" + journal.KeyOf(secretKey)
	wantSums(t, "requests of keys", got.keyed(), map[string]int64{key: 3, key + " refused": 1})
	if len(got.events) == 0 {
		t.Error("the refusal makes none of the events")
	}
	for _, e := range got.events {
		if e.APIKey != key {
			t.Errorf("an event names the key %q, want %q: a mesh may send the key itself", e.APIKey, key)
		}
	}
	wantSums(t, "requests", got.requests(""), map[string]int64{"user:ann allowed": 2, "user:ann refused": 1})
}
