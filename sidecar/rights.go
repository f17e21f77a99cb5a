package sidecar

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// Commands that a sidecar runs, each in a form that keeps nothing, also where KEY is missing: a text ends within a
// second, and other values are not made. RPUSH always makes one, so its denial is noticed when it happens. Rights are
// checked before all else.
var (
	counterRights = []string{
		"SET KEY x PX 1000", "GET KEY", "INCRBY KEY x", "DECRBY KEY x", "PEXPIRETIME KEY", "PEXPIREAT KEY x",
		"LRANGE KEY 0 0", "LINDEX KEY 0", "LLEN KEY", "LSET KEY 0 x", "LPOP KEY", "LTRIM KEY 0 0", "TIME", "DEL KEY",
		"UNLINK KEY", "EVALSHA x 1 KEY", "SCRIPT LOAD return(0)",
	}
	sharedRights = []string{
		"EVAL return(0) 1 KEY", "SET KEY x PX 1000", "ZADD KEY x x", "ZREM KEY x", "ZCARD KEY", "ZRANGE KEY 0 0",
		"ZREVRANGEBYSCORE KEY 0 0", "ZREMRANGEBYSCORE KEY 0 0", "ZREMRANGEBYRANK KEY 0 0", "HSET KEY x x x", "HDEL KEY x",
		"HGETALL KEY", "PEXPIRE KEY x", "XADD KEY NOMKSTREAM * x x", "PUBLISH KEY x",
	}
)

// denial is the last call that a server did not allow.
type denial struct {
	err error
	at  time.Time
}

const deniedFor = 3 * time.Second // how long a denial is a mistake that the probes do not show

// storeFailed notes a call to the shared store that brought no decision. Where the settings may be the reason, the
// servers are asked at once.
func (s *Sidecar) storeFailed(reason string, err error) {
	s.reports.observer.StoreFailed(reason, err)
	if reason != redis.ReasonNoPerm && reason != redis.ReasonCluster {
		return
	}
	s.counts.abouts.denied.Store(&denial{err, time.Now()})
	select {
	case s.counts.abouts.wake <- struct{}{}:
	default: // it is awake
	}
}

// lately is the denial of the last seconds, or nil.
func (a *abouts) lately() error {
	last := a.denied.Load()
	if last == nil || time.Since(last.at) > deniedFor {
		return nil
	}
	return last.err
}

// suspect reports whether a server has to be asked what its user may do: it is new, something was wrong, or a call was
// denied.
func (a *abouts) suspect(server string) bool {
	_, known := a.all()[server]
	wrong := a.wrong.Load()
	return !known || a.lately() != nil || wrong != nil && len(*wrong) > 0
}

// rightsMistake returns what the user of a server lacks, or nothing. Only the first store keeps more than counters.
func (s *Sidecar) rightsMistake(ctx context.Context, server *redis.Server, prefix string, first bool) string {
	head, seal := keys.Head(s.cfg.Store.KeyPrefix, "~", false)
	missing := missingRights(ctx, server, head+seal+":probe", counterRights)
	if first {
		missing = append(missing, missingRights(ctx, server, s.redisNames().Shared("probe"), sharedRights)...)
	}
	return grant(prefix, server.User(), missing)
}

// grant is what to do about missing rights, or nothing.
func grant(prefix, user string, missing []string) string {
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	return fmt.Sprintf("%sAUTH: the user %s lacks rights on the server; grant them: ACL SETUSER %[2]s %s", prefix, user,
		strings.Join(slices.Compact(missing), " "))
}

// missingRights are the rights that a user needs for the commands and lacks, as an ACL writes them.
func missingRights(ctx context.Context, server *redis.Server, key string, commands []string) (all []string) {
	for _, command := range commands {
		var words []any
		for _, word := range strings.Fields(command) {
			words = append(words, strings.ReplaceAll(word, "KEY", key))
		}
		within, cancel := context.WithTimeout(ctx, aboutWithin)
		_, err := server.Run(within, words...)
		cancel()
		if redis.IsReply(err, "NOPERM") {
			all = append(all, rightOf(err, command, key))
		}
	}
	return all
}

// rightOf is the right that a server wants for a command, as an ACL writes it.
func rightOf(err error, command, key string) string {
	kind, _, _ := strings.Cut(key, "{")
	name, rest, _ := strings.Cut(strings.ToLower(command), " ")
	switch {
	case strings.Contains(err.Error(), "channel"):
		return "'&" + kind + "*'"
	case strings.Contains(err.Error(), "key"):
		return "'~" + kind + "*'"
	case name == "script":
		sub, _, _ := strings.Cut(rest, " ")
		return "+script|" + sub
	}
	return "+" + name
}

// isOneOfSeveral reports whether a server sends keys on to other servers.
func (s *Sidecar) isOneOfSeveral(ctx context.Context, server *redis.Server) bool {
	ctx, cancel := context.WithTimeout(ctx, aboutWithin)
	defer cancel()
	for n := range 16 { // keys in different places
		head, seal := keys.Head(s.cfg.Store.KeyPrefix, "~"+strconv.Itoa(n), false)
		if _, err := server.Run(ctx, "EXISTS", head+seal+":probe"); redis.IsReply(err, "MOVED") {
			return true
		}
	}
	return false
}

// deeperMistake asks a server that answers what its user may do, and whether it holds all keys.
func (s *Sidecar) deeperMistake(ctx context.Context, i int, server *redis.Server, kind settings.Kind,
	mode string) string {
	prefix := s.cfg.Redises()[i].Prefix
	if kind == settings.Single && (mode == "cluster" || mode == "") && s.isOneOfSeveral(ctx, server) {
		return prefix + "TYPE: the server is one of a cluster of several masters, and does not hold all keys; set " +
			"it to cluster"
	}
	return s.rightsMistake(ctx, server, prefix, i == 0)
}
