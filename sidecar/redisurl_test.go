package sidecar

import (
	"strings"
	"testing"
)

func TestRedisURLs(t *testing.T) {
	tcp := func(address string) target { return target{network: "tcp", address: address} }
	unix := func(path string) target { return target{network: "unix", address: path} }
	cases := []struct {
		name string
		in   Redis
		want target
	}{
		{"none", Redis{}, target{}},
		{"host and port", Redis{URL: "redis:6379"}, tcp("redis:6379")},
		{"host and port, tcp", Redis{URL: "redis:6379", SocketType: "tcp"}, tcp("redis:6379")},
		{"host and port, though the type says unix", Redis{URL: "redis:6379", SocketType: "unix"}, tcp("redis:6379")},
		{"IPv6", Redis{URL: "[::1]:6379"}, tcp("[::1]:6379")},
		{"redis://", Redis{URL: "redis://redis:6380"}, tcp("redis:6380")},
		{"redis:// without a port", Redis{URL: "redis://redis"}, tcp("redis:6379")},
		{"redis:// with all", Redis{URL: "redis://u:p%40ss@redis:6380/3"}, target{network: "tcp", address: "redis:6380", username: "u", password: "p@ss", db: 3}},
		{"redis:// with a password", Redis{URL: "redis://:pw@redis"}, target{network: "tcp", address: "redis:6379", password: "pw"}},
		{"rediss://", Redis{URL: "rediss://redis:6380"}, target{network: "tcp", address: "redis:6380", tls: true}},
		{"REDIS_TLS", Redis{URL: "redis:6379", TLS: true}, target{network: "tcp", address: "redis:6379", tls: true}},
		{"path", Redis{URL: "/run/redis.sock"}, unix("/run/redis.sock")},
		{"path, though the type says tcp", Redis{URL: "/run/redis.sock", SocketType: "tcp"}, unix("/run/redis.sock")},
		{"name, type unix", Redis{URL: "redis.sock", SocketType: "unix"}, unix("redis.sock")},
		{"unix://", Redis{URL: "unix:///run/redis.sock"}, unix("/run/redis.sock")},
		{"unix:// with a password", Redis{URL: "unix://u:pw@/run/redis.sock"}, target{network: "unix", address: "/run/redis.sock", username: "u", password: "pw"}},
		{"comma in the password", Redis{URL: "redis://:a,b@redis"}, target{network: "tcp", address: "redis:6379", password: "a,b"}},
		{"password", Redis{URL: "redis:6379", Auth: "pw"}, target{network: "tcp", address: "redis:6379", password: "pw"}},
		{"user and password", Redis{URL: "redis:6379", Auth: "u:p:w"}, target{network: "tcp", address: "redis:6379", username: "u", password: "p:w"}},
		{"REDIS_AUTH goes before the URL's", Redis{URL: "redis://a:b@redis", Auth: "u:pw"}, target{network: "tcp", address: "redis:6379", username: "u", password: "pw"}},
	}
	for _, c := range cases {
		got, err := c.in.target()
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

func TestBadRedisURLs(t *testing.T) {
	for url, want := range map[string]string{
		"redis":                      "not an address",
		"redis:port":                 "not an address",
		"a:1,b:2":                    "a list of servers is not supported yet",
		"mymaster,s1:26379,s2:26379": "a list of servers is not supported yet",
		"http://redis":               `"http" is not a scheme`,
		"unix://":                    "unix:// needs a path",
		"redis://h/0?x=1":            "parameters after ? are not supported",
		"redis://u:hunter2%zz@h":     "not a URL",
		"redis://u:hunter2@h/-1":     `"-1" is not a database`,
		"redis://a:1,b:2":            "a list of servers is not supported yet",
	} {
		_, err := (&Redis{URL: url}).target()
		if err == nil || !strings.HasPrefix(err.Error(), "REDIS_URL: "+want) {
			t.Errorf("%s gives %v, want REDIS_URL: %s", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error about %s shows the password: %v", url, err)
		}
	}
}

func TestTargetsShowNoSecret(t *testing.T) {
	at, err := (&Redis{URL: "rediss://user:hunter2@redis:6380/2"}).target()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := at.String(), "rediss://redis:6380/2"; got != want {
		t.Errorf("in the log the target is %q, want %q", got, want)
	}
}
