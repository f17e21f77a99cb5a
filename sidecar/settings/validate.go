package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// validate returns the problems of values that could be read, group by group.
func (c *Config) validate() []string {
	var p problems
	c.checkRanges(&p)
	c.validateListen(&p)
	c.validateTLS(&p)
	c.validateStore(&p)
	c.validateXDS(&p)
	c.validateRest(&p)
	return p
}

// problems are lines that name variable, value and what is allowed.
type problems []string

// unless adds a problem with a variable whose value may be shown.
func (p *problems) unless(ok bool, name string, value any, want string) {
	if !ok {
		*p = append(*p, fmt.Sprintf("%s: \"%v\" is not %s", name, value, want))
	}
}

// add adds an error that names its variable itself; nil adds nothing.
func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

// maxSocketPath is the longest path that the kernel and Envoy take for a Unix socket, in bytes.
const maxSocketPath = 107

func (c *Config) validateListen(p *problems) {
	l := &c.Listen
	p.unless(len(l.UDS) <= maxSocketPath, "GRPC_UDS", l.UDS, "a path of at most 107 bytes")
	http, grpc, debug := l.Addresses()
	fixed := map[string]string{}
	for _, at := range []struct{ name, addr string }{
		{"PORT", http}, {"GRPC_PORT", grpc}, {"DEBUG_PORT", debug},
	} {
		if strings.HasSuffix(at.addr, ":0") {
			continue
		}
		other := fixed[at.addr]
		p.unless(other == "", at.name, at.addr, "free: "+other+" has it already")
		fixed[at.addr] = at.name
	}
}

func (c *Config) validateTLS(p *problems) {
	t := &c.TLS
	if t.CAAlias != "" && t.ClientCA != t.CAAlias {
		p.add(errors.New("GRPC_CLIENT_TLS_CACERT and GRPC_SERVER_TLS_CA_CERT name different files: remove one of them"))
	}
	if !t.Use {
		p.unused("set GRPC_SERVER_USE_TLS=true as well, or remove it: the gRPC port has no TLS", []setting{
			{"GRPC_SERVER_TLS_CERT", t.Cert}, {"GRPC_SERVER_TLS_KEY", t.Key}, {"GRPC_SERVER_TLS_CA_CERT", t.CAAlias},
			{"GRPC_CLIENT_TLS_CACERT", unless(t.CAAlias != "", t.ClientCA)}, {"GRPC_CLIENT_TLS_SAN", t.SAN},
		})
		return
	}
	p.unless(t.Cert != "", "GRPC_SERVER_TLS_CERT", "", "a file, which GRPC_SERVER_USE_TLS needs")
	p.unless(t.Key != "", "GRPC_SERVER_TLS_KEY", "", "a file, which GRPC_SERVER_USE_TLS needs")
	p.unless(t.SAN == "" || t.ClientCA != "", "GRPC_CLIENT_TLS_SAN", t.SAN,
		"checked without GRPC_CLIENT_TLS_CACERT: set that too")
	p.unless(t.SAN == "" || len(t.Names()) > 0, "GRPC_CLIENT_TLS_SAN", t.SAN, "a list of names, with commas in between")
}

// setting is a variable with its value. An empty value means that it is not set.
type setting struct{ name, value string }

// unused adds a problem for each setting that has a value and no effect. mend is what to do about it.
func (p *problems) unused(mend string, settings []setting) {
	for _, s := range settings {
		if s.value != "" {
			p.add(errors.New(s.name + ": " + mend))
		}
	}
}

// unless returns the text where a condition does not hold, else an empty text.
func unless(is bool, text string) string {
	if is {
		return ""
	}
	return text
}

// set returns the value of a switch: true, or an empty text where it is off.
func set(is bool) string { return unless(!is, "true") }

// validateRedisTLS adds a problem for each setting of TLS that no connection uses: with it an operator would believe
// that Redis is reached over TLS.
func (c *Config) validateRedisTLS(p *problems) {
	t, secured := &c.RedisTLS, false
	for _, r := range c.Redises() {
		at, err := r.Target()
		if err != nil {
			return // NamedRedis.validate reports it
		}
		secured = secured || r.URL != "" && at.Secured()
		if r.URL == "" {
			p.unused("set "+r.Prefix+"URL as well, or remove it: there is no Redis",
				[]setting{{r.Prefix + "TLS", set(r.TLS)}})
		}
	}
	p.unless((t.Cert == "") == (t.Key == ""), "REDIS_TLS_CLIENT_CERT", t.Cert,
		"complete: it and REDIS_TLS_CLIENT_KEY go together")
	if secured {
		return
	}
	p.unused("write rediss:// in REDIS_URL or set REDIS_TLS=true as well, or remove it: no Redis is reached over TLS",
		[]setting{
			{"REDIS_TLS_CLIENT_CERT", t.Cert}, {"REDIS_TLS_CLIENT_KEY", t.Key}, {"REDIS_TLS_CACERT", t.CA},
			{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", set(t.SkipVerify)},
		})
}

// LongestMessage is the upper bound of MAX_MESSAGE_BYTES. Envoy's usual requests are below the lower one.
const LongestMessage = 4 << 20

func (c *Config) validateStore(p *problems) {
	s := &c.Store
	for _, r := range c.Redises() {
		r.validate(p)
	}
	p.unless(!s.PerSecond || c.Redis.URL != "", "REDIS_URL", "",
		"a Redis, which REDIS_PERSECOND needs for the other limits")
	p.unless(!s.PerSecond || c.PerSecond.URL != "", "REDIS_PERSECOND_URL", "", "a Redis, which REDIS_PERSECOND needs")
	c.validateRedisTLS(p)
	p.unless(one(s.Backend, "redis", "memcache"), "BACKEND_TYPE", s.Backend, "redis")
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")

func (c *Config) validateRest(p *problems) {
	_, err := Level(c.Log.Level)
	p.unless(err == nil, "LOG_LEVEL", c.Log.Level, "one of error, warn, info, debug, trace")
	a := &c.Answer
	for _, h := range [][2]string{
		{"LIMIT_LIMIT_HEADER", a.LimitHeader}, {"LIMIT_REMAINING_HEADER", a.RemainingHeader},
		{"LIMIT_RESET_HEADER", a.ResetHeader},
	} {
		p.unless(headerName.MatchString(h[1]), h[0], h[1], "the name of a header")
	}
	c.Metrics.validate(p)
	c.Rules.validate(p, c.Redis.URL != "")
	c.Admin.validate(p)
	c.Record.validate(p, c.Redis.URL != "")
}

// one reports whether value is one of those, in any case.
func one(value string, of ...string) bool {
	for _, o := range of {
		if strings.EqualFold(value, o) {
			return true
		}
	}
	return false
}
