package settings

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
)

// Control is what `spillway control serve` reads besides the variables of Redis, CACHE_KEY_PREFIX and KEY_SECRET, which
// have to be those of the sidecars. Sidecars do not read it.
type Control struct {
	// where PostgreSQL is: postgres://user:password@host:port/name
	Database     string `env:"CONTROL_DATABASE_URL"`
	DatabaseFile string `env:"CONTROL_DATABASE_URL_FILE"`                  // CONTROL_DATABASE_URL from a file
	Listen       string `env:"CONTROL_LISTEN" envDefault:"127.0.0.1:8090"` // host and port of the API
	// file with a line for each who may use the API: a role (viewer, operator or admin), a name, the SHA-256 of a token
	// and, where it is not for all, its domains with commas between them; read again when it changes; unset: this
	// machine alone, in the role admin
	Tokens string `env:"CONTROL_TOKEN_FILE"`
	// file of a certificate; with it the API speaks TLS; read again when it changes, as its key
	Cert string `env:"CONTROL_TLS_CERT"`
	Key  string `env:"CONTROL_TLS_KEY"` // file of its key

	// connections to PostgreSQL, at most, for all changes but blocks
	Changes int `env:"CONTROL_CHANGE_CONNECTIONS" envDefault:"8" in:"1..1000"`
	// connections, at most, for what callers read
	Reads int `env:"CONTROL_READ_CONNECTIONS" envDefault:"8" in:"1..1000"`
	// connections, at most, for blocks; two are always open
	Blocks int `env:"CONTROL_BLOCK_CONNECTIONS" envDefault:"8" in:"1..1000"`

	// how long usage by hour and latencies of identities stay, in whole months
	KeepHours Age `env:"CONTROL_KEEP_HOURS" envDefault:"400d"`
	// how long usage by day stays, in whole years
	KeepDays  Age `env:"CONTROL_KEEP_DAYS" envDefault:"2557d"`
	KeepAudit Age `env:"CONTROL_KEEP_AUDIT" envDefault:"2557d"` // how long lines of the audit stay

	// where old events go, as Parquet files: a folder, or s3://bucket/prefix; unset: they stay in the database
	Archive string `env:"CONTROL_ARCHIVE"`
	// age of a partition of events, counted from its end, from which it is archived
	KeepEvents Age `env:"CONTROL_KEEP_EVENTS" envDefault:"90d"`
	// age of a day in the archive from which its files are deleted
	KeepArchives Age `env:"CONTROL_KEEP_ARCHIVES" envDefault:"2557d"`
	// URL of the S3-compatible service; unset: that of AWS
	S3Endpoint string `env:"CONTROL_S3_ENDPOINT"`
	S3Region   string `env:"CONTROL_S3_REGION" envDefault:"us-east-1"` // region of the bucket
	// access key of the service; unset: as the tools of AWS find it
	S3AccessKey     string `env:"CONTROL_S3_ACCESS_KEY"`
	S3SecretKey     string `env:"CONTROL_S3_SECRET_KEY"`      // its secret
	S3SecretKeyFile string `env:"CONTROL_S3_SECRET_KEY_FILE"` // CONTROL_S3_SECRET_KEY from a file
}

// ControlFromEnvironment reads the settings of the control plane, and those that it shares with sidecars. The error is
// a *ConfigError with every problem.
func ControlFromEnvironment(environ []string) (Control, Config, error) {
	var problems problems
	shared, err := FromEnvironment(environ, "spillway")
	var wrong *ConfigError
	if errors.As(err, &wrong) {
		problems = wrong.Problems
	}
	c, own := readControl(environ)
	problems = append(problems, own...)
	if c.Database == "" {
		problems.add(errors.New("CONTROL_DATABASE_URL is missing: set it to " +
			"postgres://user:password@host:port/name"))
	}
	if shared.Redis.URL == "" {
		problems.add(errors.New("REDIS_URL is missing: set it to the Redis of the sidecars"))
	}
	_, _, err = net.SplitHostPort(c.Listen)
	problems.unless(err == nil, "CONTROL_LISTEN", c.Listen, "a host and a port, such as 127.0.0.1:8090")
	problems.unless((c.Cert == "") == (c.Key == ""), "CONTROL_TLS_CERT", c.Cert,
		"complete: it and CONTROL_TLS_KEY go together")
	if len(problems) > 0 {
		return c, shared, &ConfigError{conceal(problems, assigned(environ))}
	}
	return c, shared, nil
}

// ArchiveFromEnvironment reads the settings of the archive, for commands that need neither Redis nor, some of them, the
// database.
func ArchiveFromEnvironment(environ []string) (Control, error) {
	c, problems := readControl(environ)
	if len(problems) > 0 {
		return c, &ConfigError{conceal(problems, assigned(environ))}
	}
	return c, nil
}

// What the control needs of what it keeps: hours of this month and of the one before, into which late entries go, and
// the lines of the audit by which a walk knows what was deleted in a week.
const (
	leastHours = Age(62 * 24 * time.Hour)
	leastAudit = Age(8 * 24 * time.Hour)
)

// readControl reads the variables, and checks those of the archive.
func readControl(environ []string) (c Control, problems problems) {
	set := assigned(environ)
	names := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Control]()) {
		names[f.Name] = f.Tag.Get("env")
	}
	err := env.ParseWithOptions(&c, env.Options{Environment: set})
	reported := map[string]bool{}
	unreadable := explain(err, names, set, reported)
	for _, s := range []struct {
		name, file string
		into       *string
	}{{"CONTROL_DATABASE_URL", c.DatabaseFile, &c.Database}, {"CONTROL_S3_SECRET_KEY", c.S3SecretKeyFile,
		&c.S3SecretKey}} {
		if s.file == "" {
			continue
		}
		if *s.into != "" {
			problems.add(fmt.Errorf("%s and %[1]s_FILE are both set: use one of them", s.name))
			continue
		}
		*s.into, err = readSecret(s.name+"_FILE", s.file)
		problems.add(err)
	}
	problems.outside(reflect.ValueOf(&c).Elem(), "")
	problems.unless(c.KeepHours >= leastHours, "CONTROL_KEEP_HOURS", set["CONTROL_KEEP_HOURS"],
		"at least 62d: quotas of a month are counted by them")
	problems.unless(c.KeepDays >= c.KeepHours, "CONTROL_KEEP_DAYS", set["CONTROL_KEEP_DAYS"],
		"at least as long as CONTROL_KEEP_HOURS")
	problems.unless(c.KeepAudit >= leastAudit, "CONTROL_KEEP_AUDIT", set["CONTROL_KEEP_AUDIT"], "at least 1d")
	problems.unless(c.KeepEvents > 0, "CONTROL_KEEP_EVENTS", set["CONTROL_KEEP_EVENTS"], "above 0, such as 90d")
	problems.unless(c.KeepArchives > c.KeepEvents, "CONTROL_KEEP_ARCHIVES", set["CONTROL_KEEP_ARCHIVES"],
		"longer than CONTROL_KEEP_EVENTS")
	problems.unless((c.S3AccessKey == "") == (c.S3SecretKey == ""), "CONTROL_S3_ACCESS_KEY", c.S3AccessKey,
		"complete: it and CONTROL_S3_SECRET_KEY go together")
	return c, append(unreadable, except(reported, problems)...)
}

// ControlVariables are the names of the variables that the control plane alone reads.
func ControlVariables() []string {
	var all []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Control]()) {
		all = append(all, f.Tag.Get("env"))
	}
	return all
}
