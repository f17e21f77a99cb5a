package sidecar

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestTheLogNamesTheServersOfRedis(t *testing.T) {
	server := servers.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	s := begin(t, twoPerYear, "REDIS_URL="+server.Addr)
	s.awaitLog(t, `msg="redis is there" server=`+server.Addr+" version=")
	s.awaitLog(t, `msg="redis evicts counters when its memory is full: set maxmemory-policy to noeviction" server=`+
		server.Addr+" policy=allkeys-lru")
	if n := strings.Count(s.log.String(), "redis is there"); n != 1 {
		t.Errorf("the log names the server %d times", n)
	}
}

func TestAUserWithoutTheRightToInfoIsNoTrouble(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "default", "-info")
	s := begin(t, twoPerYear, "REDIS_URL="+server.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok\n")
}

func TestWhichServersAreTooOld(t *testing.T) {
	var a abouts
	a.known.Store(&map[string]aboutServer{
		"new": {version: "7.0.15"}, "newer": {version: "10.1.0"}, "old": {version: "6.2.14"}, "unknown": {},
		"valkey": {version: "7.2.4", valkey: "9.1.0"}, "very old": {version: "2.8.9"},
	})
	want := []string{"redis: old is version 6.2.14, and must be at least 7.0",
		"redis: very old is version 2.8.9, and must be at least 7.0"}
	if got := a.tooOld(); !slices.Equal(got, want) {
		t.Errorf("%q are too old, want %q", got, want)
	}
}
