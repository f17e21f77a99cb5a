package settings

import "strconv"

// Record is what the sidecar writes down of its decisions, for the control plane: usage of each minute, and single events. It needs Redis.
type Record struct {
	Use          bool   `env:"RECORD"`                                  // appends usage and events to two streams of Redis
	AllowedOneIn int    `env:"RECORD_ALLOWED_ONE_IN" envDefault:"100"`  // one in so many requests that pass becomes an event; 0: none. Refusals always do, and usage counts every request
	Length       int    `env:"RECORD_STREAM_LENGTH" envDefault:"20000"` // entries that each stream keeps, about; older ones are lost if the control plane did not copy them. An entry has at most 50 KB
	Region       string `env:"RECORD_REGION"`                           // where the sidecar runs, as events show it
	Plain        bool   `env:"RECORD_PLAIN_IDENTITIES"`                 // writes identities and addresses as they are although there is a KEY_SECRET
}

// Bounds of the record.
const (
	maxOneIn    = 1_000_000
	leastStream = 100
	maxStream   = 10_000_000
	maxRegion   = 64
)

func (r *Record) validate(p *problems, redis bool) {
	if !r.Use {
		p.unused("set RECORD=true as well, or remove it: nothing is recorded", []setting{
			{"RECORD_REGION", r.Region}, {"RECORD_PLAIN_IDENTITIES", set(r.Plain)},
		})
	}
	p.unless(!r.Use || redis, "RECORD", strconv.FormatBool(r.Use), "possible without REDIS_URL: the record is kept in Redis")
	p.unless(r.AllowedOneIn >= 0 && r.AllowedOneIn <= maxOneIn, "RECORD_ALLOWED_ONE_IN", r.AllowedOneIn, "a number from 0 to 1000000")
	p.unless(r.Length >= leastStream && r.Length <= maxStream, "RECORD_STREAM_LENGTH", r.Length, "a number from 100 to 10000000")
	p.unless(len(r.Region) <= maxRegion, "RECORD_REGION", r.Region, "a text of at most 64 bytes")
}
