package sidecar

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// mistakeEvery is how often the log repeats a mistake in the settings of Redis while it lasts.
const mistakeEvery = time.Minute

// mistake is a setting of Redis that is wrong for a server.
type mistake struct {
	text   string    // names the variable, and what to do; empty: the cause is unknown
	logged time.Time // last
}

// mistakeOf returns which variable is wrong where a server fails so, or nothing: then it is an outage. prefix begins
// the names of the variables.
func mistakeOf(ctx context.Context, server *redis.Server, prefix string, secured bool, err error) string {
	var none *redis.NoMaster
	switch why := redis.Reason(err); {
	case errors.As(err, &none):
		return fmt.Sprintf("%sURL: %v; write a name that they watch first", prefix, none)
	case why == redis.ReasonNoAuth && redis.OfSentinel(err):
		return prefix + "SENTINEL_AUTH: the sentinels want another password, or a password; set it, or " + prefix +
			"SENTINEL_AUTH_FILE"
	case why == redis.ReasonNoAuth:
		return prefix + "AUTH: the server wants another user or password; set it, " + prefix + "AUTH_FILE or the login " +
			"in " + prefix + "URL"
	case redis.IsReply(err, "ERR This instance has cluster support disabled"):
		return prefix + "TYPE: the server is not part of a cluster; set it to single"
	case redis.IsReply(err, "ERR unknown command 'sentinel'"):
		return prefix + "TYPE: the server is not a sentinel; set it to single, or name the sentinels in " + prefix + "URL"
	}
	return tlsMistakeOf(ctx, server, prefix, secured, err)
}

// tlsMistakeOf is mistakeOf for what is about TLS.
func tlsMistakeOf(ctx context.Context, server *redis.Server, prefix string, secured bool, err error) string {
	switch {
	case secured && isUntrusted(err):
		return "REDIS_TLS_CACERT: the certificate of the server is not valid here; name the file of its authority, and " +
			"the server as the certificate does"
	case secured && redis.OfHandshake(err):
		return prefix + "TLS: the server does not answer to TLS; write redis:// in " + prefix + "URL and unset it"
	case !secured && redis.Reason(err) == redis.ReasonClosed && server.SpeaksTLS(ctx):
		return prefix + "TLS: the server wants TLS; set it to true, or write rediss:// in " + prefix + "URL"
	}
	return ""
}

// isUntrusted reports whether the certificate of a server is not valid here.
func isUntrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	return errors.As(err, &authority) || errors.As(err, &name)
}

// mistaken is what a server that answers shows about a wrong type, or nothing.
func mistaken(prefix string, about aboutServer, sentinel bool) string {
	if about.mode == "sentinel" && !sentinel {
		return prefix + "TYPE: the server is a sentinel; set it to sentinel, and put the name of the master first in " +
			prefix + "URL"
	}
	return ""
}

// noteMistake keeps what is wrong with the settings for a server, and logs it, also again while it lasts.
func (s *Sidecar) noteMistake(name, text string, err error) mistake {
	before := mistake{}
	if last := s.counts.abouts.wrong.Load(); last != nil {
		before = (*last)[name]
	}
	now := mistake{text, before.logged}
	if text != before.text || time.Since(now.logged) >= mistakeEvery {
		now.logged = time.Now()
		s.reports.loadLog.Error("the settings of redis are wrong", "server", name, "mend", text, "error", err)
	}
	return now
}

// mistakes names the settings of Redis that are wrong, for people.
func (a *abouts) mistakes() (all []string) {
	if wrong := a.wrong.Load(); wrong != nil {
		for _, one := range *wrong {
			all = append(all, one.text)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
