package settings

import "strconv"

// Record is what the sidecar writes down of its decisions, for the control plane: usage of each minute, and single
// events. It needs Redis.
type Record struct {
	// appends usage and events to two streams of Redis
	Use bool `env:"RECORD"`
	// one in so many requests that pass becomes an event; 0: none. Refusals always do, and usage counts every request
	AllowedOneIn int `env:"RECORD_ALLOWED_ONE_IN" envDefault:"100" in:"0..1000000"`
	// entries that each stream keeps, about; older ones are lost if the control plane did not copy them. An entry has
	// at most 50 KB
	Length int `env:"RECORD_STREAM_LENGTH" envDefault:"20000" in:"100..10000000"`
	// where the sidecar runs, as events show it
	Region string `env:"RECORD_REGION"`
	// writes identities and addresses as they are although there is a KEY_SECRET
	Plain bool `env:"RECORD_PLAIN_IDENTITIES"`
}

// maxRegion is how many bytes RECORD_REGION may have.
const maxRegion = 64

func (r *Record) validate(p *problems, redis bool) {
	if !r.Use {
		p.unused("set RECORD=true as well, or remove it: nothing is recorded", []setting{
			{"RECORD_REGION", r.Region}, {"RECORD_PLAIN_IDENTITIES", set(r.Plain)},
		})
	}
	p.unless(!r.Use || redis, "RECORD", strconv.FormatBool(r.Use),
		"possible without REDIS_URL: the record is kept in Redis")
	p.unless(len(r.Region) <= maxRegion, "RECORD_REGION", r.Region, "a text of at most 64 bytes")
}
