package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
)

// targetOf reads where a store is.
func targetOf(r Redis) (*Target, error) { return NamedRedis{&r, "REDIS_"}.Target() }

func tcp(addresses ...string) Target {
	return Target{Kind: Single, Addresses: addresses, common: server{network: "tcp"}}
}

func unix(paths ...string) Target {
	return Target{Kind: Single, Addresses: paths, common: server{network: "unix"}}
}

// with is the target, changed.
func (t Target) with(changes ...func(*Target)) Target {
	for _, change := range changes {
		change(&t)
	}
	return t
}

func kind(k Kind) func(*Target)        { return func(t *Target) { t.Kind = k } }
func scheme(name string) func(*Target) { return func(t *Target) { t.common.scheme = name } }
func database(db string) func(*Target) { return func(t *Target) { t.common.db = db } }
func as(user, password string) func(*Target) {
	return func(t *Target) { t.common.login = Login{user, password} }
}

func TestRedisURLs(t *testing.T) {
	plain := tcp("redis:6379").with(scheme("redis"))
	for name, c := range map[string]struct {
		in   Redis
		want Target
	}{
		"none":                                   {Redis{}, Target{Kind: Single}},
		"host and port":                          {Redis{URL: "redis:6379"}, tcp("redis:6379")},
		"host and port, single":                  {Redis{URL: "redis:6379", Type: "Single"}, tcp("redis:6379")},
		"host and port, tcp":                     {Redis{URL: "redis:6379", SocketType: "tcp"}, tcp("redis:6379")},
		"host and port, though the type is unix": {Redis{URL: "redis:6379", SocketType: "unix"}, tcp("redis:6379")},
		"IPv6":                                   {Redis{URL: "[::1]:6379"}, tcp("[::1]:6379")},
		"redis://": {Redis{URL: "redis://redis:6380"},
			tcp("redis:6380").with(scheme("redis"))},
		"redis:// without a port": {Redis{URL: "redis://redis"}, plain},
		"redis:// with all": {Redis{URL: "redis://u:p%40ss@redis/03"},
			plain.with(as("u", "p@ss"), database("3"))},
		"redis:// with a password": {Redis{URL: "redis://:pw@redis"}, plain.with(as("", "pw"))},
		"rediss://": {Redis{URL: "rediss://redis:6380"},
			tcp("redis:6380").with(scheme("rediss"))},
		"REDIS_TLS": {Redis{URL: "redis:6379", TLS: true},
			tcp("redis:6379").with(scheme("rediss"))},
		"REDIS_TLS goes before redis://": {Redis{URL: "redis://redis", TLS: true},
			tcp("redis:6379").with(scheme("rediss"))},
		"path": {Redis{URL: "/run/redis.sock"}, unix("/run/redis.sock")},
		"path, though the type is tcp": {Redis{URL: "/run/redis.sock", SocketType: "tcp"},
			unix("/run/redis.sock")},
		"name, type unix": {Redis{URL: "redis.sock", SocketType: "unix"}, unix("redis.sock")},
		"unix://":         {Redis{URL: "unix:///run/redis.sock"}, unix("/run/redis.sock")},
		"unix:// with a password": {Redis{URL: "unix://u:pw@/run/redis.sock"},
			unix("/run/redis.sock").with(as("u", "pw"))},
		"comma in the password": {Redis{URL: "redis://:a,b@redis"}, plain.with(as("", "a,b"))},
	} {
		expectTarget(t, name, c.in, c.want)
	}
}

func TestRedisLists(t *testing.T) {
	sentinels := tcp("s1:26379", "s2:26380").with(func(t *Target) { t.Kind, t.Master = Sentinel, "mymaster" })
	cluster := tcp("a:1", "b:2").with(kind(Cluster))
	ring := tcp("a:1", "b:2").with(kind(Ring))
	sockets := unix("/run/a.sock", "/run/b.sock").with(kind(Ring))
	for name, c := range map[string]struct {
		in   Redis
		want Target
	}{
		"sentinel":             {Redis{Type: "SENTINEL", URL: "mymaster,s1:26379,s2:26380"}, sentinels},
		"sentinel with blanks": {Redis{Type: "sentinel", URL: "mymaster, s1:26379, s2:26380"}, sentinels},
		"sentinel with URLs": {Redis{Type: "Sentinel", URL: "mymaster,redis://s1,redis://s2:26380"},
			sentinels.with(scheme("redis"))},
		"sentinel, their password": {Redis{Type: "sentinel", URL: "mymaster,redis://:pw@s1,s2:26380"},
			sentinels.with(scheme("redis"), as("", "pw"))},
		"sentinel, the master's database": {Redis{Type: "sentinel", URL: "mymaster,redis://s1/2,s2:26380"},
			sentinels.with(scheme("redis"), database("2"))},
		"cluster":                {Redis{Type: "CLUSTER", URL: "a:1,b:2"}, cluster},
		"cluster of one address": {Redis{Type: "cluster", URL: "a:1"}, tcp("a:1").with(kind(Cluster))},
		"cluster, first with TLS": {Redis{Type: "cluster", URL: "rediss://a:1,b:2"},
			cluster.with(scheme("rediss"))},
		"cluster, last with a password": {Redis{Type: "cluster", URL: "a:1,redis://u:p%2Cw@b:2"},
			cluster.with(scheme("redis"), as("u", "p,w"))},
		"cluster, all agree": {Redis{Type: "cluster", URL: "redis://u:pw@a:1/0,redis://u:pw@b:2/0"},
			cluster.with(scheme("redis"), as("u", "pw"), database("0"))},
		"cluster, REDIS_TLS": {Redis{Type: "cluster", URL: "a:1,redis://b:2", TLS: true},
			cluster.with(scheme("rediss"))},
		"ring": {Redis{Type: "RING", URL: "a:1,b:2"}, ring},
		"ring with a database": {Redis{Type: "ring", URL: "redis://a:1/3,redis://b:2/3"},
			ring.with(scheme("redis"), database("3"))},
		"ring of sockets": {Redis{Type: "ring", URL: "/run/a.sock,unix:///run/b.sock"}, sockets},
	} {
		expectTarget(t, name, c.in, c.want)
	}
}

func expectTarget(t *testing.T, name string, in Redis, want Target) {
	t.Helper()
	got, err := targetOf(in)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if diff := cmp.Diff(want, *got, cmp.AllowUnexported(Target{}, server{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestBadRedisURLs(t *testing.T) {
	const (
		list  = "a list of servers needs REDIS_TYPE: sentinel (the master's name comes first), cluster or ring"
		names = "not the master's name and its sentinels: use mymaster,host:26379,host:26379"
	)
	for _, c := range []struct{ kind, url, want string }{
		{"single", "redis", "not an address"},
		{"single", "redis:port", "not an address"},
		{"single", " redis:6379", "not an address"},
		{"single", "redis://redis:99999", "not a host and a port"},
		{"single", "redis://redis:0", "not a host and a port"},
		{"single", "redis://127.0.0.1:6379:6379", "not a host and a port"},
		{"single", "a:1,b:2", list},
		{"single", "mymaster,s1:26379,s2:26379", list},
		{"single", "redis://a:1,b:2", list},
		{"single", "redis://u:hunter2@a:1,redis://u:hunter2@b:2", list},
		{"single", "a:1, rediss://u:hunter2@b:2", list},
		{"single", "/run/a.sock,/run/b.sock", list},
		{"single", "http://redis", `"http" is not a scheme`},
		{"single", "unix://", "unix:// needs a path"},
		{"single", "redis://h/0?x=1", "parameters after ? are not supported"},
		{"single", "redis://u:hunter2%zz@h", "not a URL"},
		{"single", "redis://u:hunter2@h/-1", `"-1" is not a database`},
		{"sentinel", "mymaster", names},
		{"sentinel", "s1:26379,s2:26379", names},
		{"sentinel", "redis://u:hunter2@s1,redis://s2", names},
		{"sentinel", ",s1:26379", names},
		{"sentinel", "mymaster,s1", "server 1 of 1: not an address"},
		{"sentinel", "mymaster,s1:26379,",
			"server 2 of 2: it is empty: there is a comma too many, or a name is missing"},
		{"sentinel", "mymaster,/run/s1.sock",
			"a sentinel answers with addresses of other servers, so its own cannot be sockets: use host:port"},
		{"cluster", "/run/a.sock,/run/b.sock",
			"a cluster answers with addresses of other servers, so its own cannot be sockets: use host:port"},
		{"cluster", "redis://a:1/2,b:2", "a cluster has database 0 only: remove the number"},
		{"cluster", "a:1,,b:2", "server 2 of 3: it is empty"},
		{"cluster", "a:1,b", "server 2 of 2: not an address"},
		{"cluster", "redis://a:1,rediss://b:2",
			"server 2 of 2: redis:// and rediss:// do not go together: TLS is for all servers of a list or for none"},
		{"cluster", "redis://u:hunter2@a:1,redis://u:other@b:2",
			"server 2 of 2: user or password is another than before: they are the same for all servers of a list"},
		{"cluster", "redis://u:hunter2@a:1,b:2,redis://v:hunter2@c:3",
			"server 3 of 3: user or password is another than before"},
		{"cluster", "redis://:hunter2,x@a:1,b:2", "server 1 of 3: not a URL"},
		{"ring", "redis://a:1/0,redis://b:2/3",
			"server 2 of 2: the database is another than before: it is the same for all servers of a list"},
		{"ring", "a:1,/run/b.sock", "server 2 of 2: sockets and host:port do not go together in one list"},
		{"ring", "a:1,b:2,redis://a:1", "server 3 of 3: it was named before: a shard stands once in a ring"},
	} {
		_, err := targetOf(Redis{Type: c.kind, URL: c.url})
		if err == nil || !strings.HasPrefix(err.Error(), "REDIS_URL: "+c.want) {
			t.Errorf("%s %s gives %v, want REDIS_URL: %s", c.kind, c.url, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error about %s shows the password: %v", c.url, err)
		}
	}
}

func TestTargetsShowNoSecret(t *testing.T) {
	for _, c := range []struct{ kind, url, want string }{
		{"single", "rediss://user:hunter2@redis:6380/2", "rediss://redis:6380/2"},
		{"single", "unix://user:hunter2@/run/redis.sock", "unix:///run/redis.sock"},
		{"sentinel", "mymaster,redis://:hunter2@s1:26379,s2:26379", "sentinel mymaster at redis://s1:26379,s2:26379/0"},
		{"cluster", "rediss://:hunter2@a:1,b:2", "cluster at rediss://a:1,b:2/0"},
		{"ring", "a:1,b:2", "ring at redis://a:1,b:2/0"},
	} {
		to := must.Get(targetOf(Redis{Type: c.kind, URL: c.url}))(t)
		if got := to.String(); got != c.want {
			t.Errorf("in the log %s is %q, want %q", c.url, got, c.want)
		}
	}
}
