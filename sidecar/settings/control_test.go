package settings

import (
	"strings"
	"testing"
	"time"
)

// TestSettingsOfTheArchive reads ages in days and durations, and refuses what cannot be.
func TestSettingsOfTheArchive(t *testing.T) {
	c, err := ArchiveFromEnvironment([]string{"CONTROL_KEEP_EVENTS=36h", "CONTROL_KEEP_ARCHIVES=30d"})
	if err != nil || time.Duration(c.KeepEvents) != 36*time.Hour || time.Duration(c.KeepArchives) != 30*24*time.Hour {
		t.Errorf("%v, %v: %v", c.KeepEvents, c.KeepArchives, err)
	}
	c, err = ArchiveFromEnvironment(nil)
	if err != nil || time.Duration(c.KeepEvents) != 90*24*time.Hour ||
		time.Duration(c.KeepArchives) != 2557*24*time.Hour {
		t.Errorf("defaults: %v, %v: %v", c.KeepEvents, c.KeepArchives, err)
	}
	for set, want := range map[string]string{
		"CONTROL_BLOCK_CONNECTIONS=0":               "a number from 1 to 1000",
		"CONTROL_READ_CONNECTIONS=many":             "CONTROL_READ_CONNECTIONS",
		"CONTROL_KEEP_EVENTS=ninety":                "CONTROL_KEEP_EVENTS",
		"CONTROL_KEEP_EVENTS=-5d":                   "CONTROL_KEEP_EVENTS",
		"CONTROL_KEEP_EVENTS=1.5d":                  "CONTROL_KEEP_EVENTS",
		"CONTROL_KEEP_EVENTS=0d":                    "above 0",
		"CONTROL_KEEP_HOURS=61d":                    "at least 62d",
		"CONTROL_KEEP_DAYS=399d":                    "at least as long as CONTROL_KEEP_HOURS",
		"CONTROL_KEEP_AUDIT=0d":                     "at least 1d",
		"CONTROL_KEEP_ARCHIVES=90d":                 "longer than CONTROL_KEEP_EVENTS",
		"CONTROL_S3_ACCESS_KEY=key":                 "go together",
		"CONTROL_S3_SECRET_KEY_FILE=/there/is/none": "CONTROL_S3_SECRET_KEY_FILE",
	} {
		_, err := ArchiveFromEnvironment([]string{set})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestWhatAControlCannotStartWith is reported with the variable.
func TestWhatAControlCannotStartWith(t *testing.T) {
	const database, redis = "CONTROL_DATABASE_URL=postgres://h/d", "REDIS_URL=h:1"
	if _, _, err := ControlFromEnvironment([]string{database, redis}); err != nil {
		t.Fatal(err)
	}
	for want, environ := range map[string][]string{
		"CONTROL_DATABASE_URL is missing: set it to postgres://":    {redis},
		"REDIS_URL is missing: set it to the Redis of the sidecars": {database},
		`CONTROL_LISTEN: "8090" is not a host and a port, such as`: {database, redis,
			"CONTROL_LISTEN=8090"},
		`CONTROL_TLS_CERT: "c" is not complete: it and CONTROL_TLS_KEY go together`: {database, redis,
			"CONTROL_TLS_CERT=c"},
		"CONTROL_DATABASE_URL and CONTROL_DATABASE_URL_FILE are both set: use one of": {database, redis,
			"CONTROL_DATABASE_URL_FILE=f"},
	} {
		_, _, err := ControlFromEnvironment(environ)
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gives %v, want %q alone", environ, err, want)
		}
	}
}
