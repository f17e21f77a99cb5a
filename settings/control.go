package settings

import (
	"errors"
	"net"
	"reflect"

	"github.com/caarlos0/env/v11"
)

// Control is what `spillway control` reads besides the variables of Redis, CACHE_KEY_PREFIX and KEY_SECRET, which have to be those of the
// sidecars. Sidecars do not read it.
type Control struct {
	Database     string `env:"CONTROL_DATABASE_URL"`                       // where PostgreSQL is: postgres://user:password@host:port/name
	DatabaseFile string `env:"CONTROL_DATABASE_URL_FILE"`                  // CONTROL_DATABASE_URL from a file
	Listen       string `env:"CONTROL_LISTEN" envDefault:"127.0.0.1:8090"` // host and port of the API
	Tokens       string `env:"CONTROL_TOKEN_FILE"`                         // file with a line for each who may use the API: a role (viewer, operator or admin), a name, and the SHA-256 of a token; unset: this machine alone, in the role admin
	Cert         string `env:"CONTROL_TLS_CERT"`                           // file of a certificate; with it the API speaks TLS
	Key          string `env:"CONTROL_TLS_KEY"`                            // file of its key
}

// ControlFromEnvironment reads the settings of the control plane, and those that it shares with sidecars. The error is a *ConfigError with
// every problem.
func ControlFromEnvironment(environ []string) (Control, Config, error) {
	var problems problems
	shared, err := FromEnvironment(environ, "spillway")
	var wrong *ConfigError
	if errors.As(err, &wrong) {
		problems = wrong.Problems
	}
	set := assigned(environ)
	var c Control
	err = env.ParseWithOptions(&c, env.Options{Environment: set})
	problems = append(problems, explain(err, map[string]string{}, set)...)
	if c.DatabaseFile != "" && c.Database != "" {
		problems.add(errors.New("CONTROL_DATABASE_URL and CONTROL_DATABASE_URL_FILE are both set: use one of them"))
	} else if c.DatabaseFile != "" {
		c.Database, err = readSecret("CONTROL_DATABASE_URL_FILE", c.DatabaseFile)
		problems.add(err)
	}
	if c.Database == "" {
		problems.add(errors.New("CONTROL_DATABASE_URL is missing: say where PostgreSQL is, as postgres://user:password@host:port/name"))
	}
	if shared.Redis.URL == "" {
		problems.add(errors.New("REDIS_URL is missing: sidecars take from there what is published"))
	}
	_, _, err = net.SplitHostPort(c.Listen)
	problems.unless(err == nil, "CONTROL_LISTEN", c.Listen, "a host and a port, such as 127.0.0.1:8090")
	problems.unless((c.Cert == "") == (c.Key == ""), "CONTROL_TLS_CERT", c.Cert, "complete: it and CONTROL_TLS_KEY go together")
	if len(problems) > 0 {
		return c, shared, &ConfigError{problems}
	}
	return c, shared, nil
}

// ControlVariables are the names of the variables that the control plane alone reads.
func ControlVariables() []string {
	var all []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Control]()) {
		all = append(all, f.Tag.Get("env"))
	}
	return all
}
