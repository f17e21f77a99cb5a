package settings

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/rules"
)

// ConfigError lists every problem of the environment.
type ConfigError struct{ Problems []string }

// Error lists the problems, one per line.
func (e *ConfigError) Error() string { return strings.Join(e.Problems, "\n") }

// FromEnvironment reads a Config from environ, which has the form of os.Environ(). program is the name that the program
// was started under: as `ratelimit` it listens where the reference server does. The error is a *ConfigError with every
// problem.
func FromEnvironment(environ []string, program string) (Config, error) {
	set := assigned(environ)
	var cfg Config
	problems, reported := parse(&cfg, set)
	cfg.applyDefaults(filepath.Base(program))
	problems = append(problems, except(reported, cfg.validate())...)
	problems = append(problems, cfg.readSecret()...)
	cfg.Warnings = conceal(slices.Concat(cfg.warnings(set), cfg.pools(), cfg.alone(set)), set)
	if len(problems) > 0 {
		return cfg, &ConfigError{conceal(problems, set)}
	}
	return cfg, nil
}

// except returns the problems with other variables than those that were reported: what cannot be read is wrong once.
func except(reported map[string]bool, all []string) []string {
	return slices.DeleteFunc(all, func(line string) bool {
		name, _, _ := strings.Cut(line, ":")
		return reported[name]
	})
}

// assigned returns the variables whose value is not empty.
func assigned(environ []string) map[string]string {
	set := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" {
			set[name] = value
		}
	}
	return set
}

// Variables are the names of all variables that FromEnvironment reads, sorted.
func Variables() []string {
	var all []string
	for _, group := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		all = slices.AppendSeq(all, maps.Values(variables(group)))
	}
	slices.Sort(all)
	return all
}

// variables maps each field of a group of settings to the name of its variable. A field that is not a group has none.
func variables(group reflect.StructField) map[string]string {
	names := map[string]string{}
	if group.Type.Kind() != reflect.Struct {
		return names
	}
	for _, f := range reflect.VisibleFields(group.Type) {
		if name := f.Tag.Get("env"); name != "" && name != "-" {
			names[f.Name] = group.Tag.Get("envPrefix") + name
		}
	}
	return names
}

// parse fills cfg and returns a problem for each value that it cannot read, and the names of their variables.
func parse(cfg *Config, set map[string]string) (problems []string, reported map[string]bool) {
	reported = map[string]bool{}
	whole := reflect.ValueOf(cfg).Elem()
	for i := range whole.NumField() {
		group := whole.Type().Field(i)
		if group.Type.Kind() != reflect.Struct {
			continue
		}
		options := env.Options{Environment: set, Prefix: group.Tag.Get("envPrefix")}
		err := env.ParseWithOptions(whole.Field(i).Addr().Interface(), options)
		problems = append(problems, explain(err, variables(group), set, reported)...)
	}
	return problems, reported
}

// explain returns a line with variable, value and what is allowed for each error of the parser, and notes the variable.
func explain(err error, names, set map[string]string, reported map[string]bool) []string {
	if err == nil {
		return nil
	}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []string{err.Error()}
	}
	var problems []string
	for _, one := range all.Errors {
		var wrong env.ParseError
		if !errors.As(one, &wrong) {
			problems = append(problems, one.Error())
			continue
		}
		name := names[wrong.Name]
		reported[name] = true
		problems = append(problems, fmt.Sprintf("%s: %q is not %s", name, set[name], allowed(wrong.Type)))
	}
	return problems
}

// allowed returns what a variable of that type takes.
func allowed(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 10ms, 5s or 24h"
	case reflect.TypeFor[Age]():
		return "a duration such as 90d or 24h"
	case reflect.TypeFor[SocketMode]():
		return "a mode in octal such as 0660 or 0666"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Uint16:
		return "a port: 0 to 65535"
	case reflect.Float64:
		return "a number such as 0.8"
	case reflect.Map:
		return "a list such as name:value,name:value"
	}
	return "a whole number"
}

// applyDefaults sets the defaults that depend on the name of the program or on another variable.
func (c *Config) applyDefaults(program string) {
	host := "127.0.0.1"
	if program == "ratelimit" {
		host = "0.0.0.0"
	}
	for _, h := range []*string{&c.Listen.Host, &c.Listen.GRPCHost, &c.Listen.DebugHost} {
		if *h == "" {
			*h = host
		}
	}
	if c.TLS.ClientCA == "" {
		c.TLS.ClientCA = c.TLS.CAAlias
	}
}

// readSecret takes KEY_SECRET from its file.
func (c *Config) readSecret() []string {
	if c.Store.SecretFile == "" {
		return nil
	}
	if c.Store.KeySecret != "" {
		return []string{"KEY_SECRET and KEY_SECRET_FILE are both set: use one of them"}
	}
	secret, err := readSecret("KEY_SECRET_FILE", c.Store.SecretFile)
	if err != nil {
		return []string{err.Error()}
	}
	c.Store.KeySecret = secret
	return nil
}

// warnings returns a line for each variable that is set without effect, or without all of it: first those of the
// reference server and those that are misspelt, sorted.
func (c *Config) warnings(set map[string]string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if why := unread(name); why != "" {
			lines = append(lines, "ignored: "+name+": "+why)
		}
	}
	return append(append(lines, c.partly(set)...), c.Metrics.renamed()...)
}

// unread returns why a variable is ignored with every value, or nothing.
func unread(name string) string {
	near := meant(name)
	switch {
	case strings.HasPrefix(name, "DOG_STATSD_MOGRIFIER_"):
		return unsupported["USE_DOG_STATSD_MOGRIFIERS"]
	case near != "":
		return "it is unknown; did you mean " + near + "?"
	}
	return unsupported[name]
}

// meant returns the variable that an unknown one is most likely meant to be, or nothing: one that differs by a slip of
// the finger, or two in a long name. Programs share their environment with others, so more than that means nothing.
func meant(name string) (near string) {
	known := append(append(Variables(), ControlVariables()...), slices.Sorted(maps.Keys(unsupported))...)
	upper, best := strings.ToUpper(name), min(len(name)/4, 2)+1
	if slices.Contains(known, name) {
		return ""
	}
	for _, one := range known {
		if slips := rules.Distance(upper, one); slips < best {
			near, best = one, slips
		}
	}
	return near
}

// pools returns a line for each pool of connections that is set: what is used, and why.
func (c *Config) pools() (lines []string) {
	for _, r := range c.Redises() {
		switch {
		case r.PoolSize == 0:
		case r.PoolSize < redis.LeastPool:
			lines = append(lines, fmt.Sprintf("%sPOOL_SIZE=%d: %d is used, because with fewer it takes longer to "+
				"find a lost server again", r.Prefix, r.PoolSize, redis.LeastPool))
		default:
			lines = append(lines, fmt.Sprintf("%sPOOL_SIZE=%d: so many connections for decisions may be open to each "+
				"server; %d are in use at once, because decisions that wait go together in one call", r.Prefix,
				r.PoolSize, redis.MostInFlight))
		}
	}
	return lines
}

// alone returns a line with the variables about Redis that are set without REDIS_URL.
func (c *Config) alone(set map[string]string) []string {
	var without []string
	for _, name := range Variables() {
		off := set[name] == "" || strings.EqualFold(set[name], "false")
		if !off && strings.HasPrefix(name, "REDIS_") && !strings.HasPrefix(name, "REDIS_PERSECOND") {
			without = append(without, name)
		}
	}
	if c.Redis.URL != "" || len(without) == 0 {
		return nil
	}
	return []string{"no REDIS_URL: each sidecar counts alone, in memory; without effect: " +
		strings.Join(without, ", ")}
}

// partly returns a line for each variable that has an effect only with some values, or only beside others.
func (c *Config) partly(set map[string]string) []string {
	var lines []string
	add := func(is bool, line string) {
		if is {
			lines = append(lines, "ignored: "+line)
		}
	}
	c.Metrics.warn(set, add)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		reported := unread(name) != ""
		off := set[name] == "" || strings.EqualFold(set[name], "false")
		add(set["REDIS_PERSECOND"] == "" && strings.HasPrefix(name, "REDIS_PERSECOND_") && !reported && !off,
			name+": set REDIS_PERSECOND=true as well")
	}
	for _, r := range c.Redises() {
		r.warn(add)
	}
	add(strings.EqualFold(c.Store.Backend, "memcache"),
		"BACKEND_TYPE=memcache: not supported; counts are kept in Redis (REDIS_URL), else in memory")
	c.Tracing.warn(add)
	c.warnOTLP(add)
	c.warnXDS(set, add)
	return lines
}
