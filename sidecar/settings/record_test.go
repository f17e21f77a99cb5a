package settings

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSettingsOfTheRecord(t *testing.T) {
	const off = "set RECORD=true as well, or remove it: nothing is recorded"
	for environ, want := range map[string][]string{
		"REDIS_URL=a:1 RECORD=true RECORD_REGION=eu RECORD_PLAIN_IDENTITIES=true RECORD_ALLOWED_ONE_IN=0 " +
			"RECORD_STREAM_LENGTH=100": nil,
		"RECORD=true": {`RECORD: "true" is not possible without REDIS_URL: the record is kept in ` +
			`Redis`},
		"RECORD_REGION=eu":               {"RECORD_REGION: " + off},
		"RECORD_PLAIN_IDENTITIES=true":   {"RECORD_PLAIN_IDENTITIES: " + off},
		"RECORD_ALLOWED_ONE_IN=-1":       {`RECORD_ALLOWED_ONE_IN: "-1" is not a number from 0 to 1000000`},
		"RECORD_STREAM_LENGTH=99":        {`RECORD_STREAM_LENGTH: "99" is not a number from 100 to 10000000`},
		"RECORD_STREAM_LENGTH=100000000": {`RECORD_STREAM_LENGTH: "100000000" is not a number from 100 to 10000000`},
		"REDIS_URL=a:1 RECORD=true RECORD_REGION=" + strings.Repeat("x",
			65): {`RECORD_REGION: "` + strings.Repeat("x", 65) + `" is not a text of at most 64 bytes`},
	} {
		_, err := FromEnvironment(strings.Fields(environ), "sidecar")
		var wrong *ConfigError
		errors.As(err, &wrong)
		var got []string
		if wrong != nil {
			got = wrong.Problems
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", environ, got, want)
		}
	}
}
