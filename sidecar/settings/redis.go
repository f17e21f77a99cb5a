package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is how the servers of a store stand together: a value of REDIS_TYPE, in lower case.
type Kind string

// The kinds.
const (
	Single   Kind = "single"
	Sentinel Kind = "sentinel"
	Cluster  Kind = "cluster"
	Ring     Kind = "ring"
)

// NamedRedis is a Redis with the beginning of its variables' names.
type NamedRedis struct {
	*Redis
	Prefix string // REDIS_ or REDIS_PERSECOND_
}

// Redises are the stores that are in use: the one of all limits, then the one of limits by the second.
func (c *Config) Redises() []NamedRedis {
	all := []NamedRedis{{&c.Redis, "REDIS_"}}
	if c.Store.PerSecond {
		all = append(all, NamedRedis{&c.PerSecond, "REDIS_PERSECOND_"})
	}
	return all
}

// kind is the type, which may be written in any case; empty means a single server.
func (r NamedRedis) kind() Kind {
	return Kind(strings.ToLower(cmp.Or(r.Type, string(Single))))
}

// AsksReplicas reports whether questions of people go to replicas.
func (r NamedRedis) AsksReplicas() bool { return one(r.ReplicaReads, "usage") }

// warn adds what has no effect with the type.
func (r NamedRedis) warn(add func(is bool, line string)) {
	unused := r.SentinelAuth != "" || r.SentinelAuthFile != ""
	add(unused && !one(r.Type, "sentinel"),
		r.Prefix+"SENTINEL_AUTH: there are no sentinels; "+r.Prefix+"TYPE is "+r.Type)
	add(r.AsksReplicas() && one(r.Type, "single", "ring"),
		r.Prefix+"REPLICA_READS: there are no replicas that Spillway knows of; "+r.Prefix+"TYPE is "+r.Type)
}

// validate adds the problems of the settings.
func (r NamedRedis) validate(p *problems) {
	if !slices.Contains([]Kind{Single, Sentinel, Cluster, Ring}, r.kind()) {
		return // the range of TYPE reports it
	}
	_, err := r.Target()
	p.add(err)
	server, sentinel := r.LoginSources()
	_, err = server.Read(Login{})
	p.add(err)
	_, err = sentinel.Read(Login{})
	p.add(err)
}

// urls are the parts of URL that may hold a login each. A comma in a password makes no list.
func (r NamedRedis) urls() []string {
	if r.kind() == Single && !isList(r.URL) {
		return []string{r.URL}
	}
	return strings.Split(r.URL, ",")
}

// Target reads the URL. Without one it is a single server without an address.
func (r NamedRedis) Target() (*Target, error) {
	if r.URL == "" {
		return &Target{Kind: Single}, nil
	}
	kind := r.kind()
	if kind == Single && isList(r.URL) {
		return nil, fmt.Errorf("%sURL: a list of servers needs %[1]sTYPE: sentinel (the master's name comes first), "+
			"cluster or ring", r.Prefix)
	}
	t, err := parseTarget(kind, r.URL, r.SocketType)
	if err != nil {
		return nil, fmt.Errorf("%sURL: %w", r.Prefix, err)
	}
	if r.TLS {
		t.common.scheme = "rediss"
	}
	return t, nil
}

// LoginSources are the variables for the servers' login, and for the sentinels'. They go before a login in the URL.
func (r NamedRedis) LoginSources() (server, sentinel LoginSource) {
	return LoginSource{r.Prefix + "AUTH", r.Auth, r.AuthFile},
		LoginSource{r.Prefix + "SENTINEL_AUTH", r.SentinelAuth, r.SentinelAuthFile}
}
