package journal

import (
	"errors"
	"fmt"
	"strconv"
)

// The streams. Their keys are those of keys.Names.Shared.
const (
	UsageStream  = "usage"
	EventsStream = "events"
)

// The fields of an entry of a stream.
const (
	FieldSidecar  = "sidecar"
	FieldSequence = "sequence"
	FieldRegion   = "region"
	FieldDropped  = "dropped"
	FieldEnded    = "ended"
	FieldRows     = "rows"
)

// Entry is one batch of one sidecar in a stream.
type Entry struct {
	Sidecar  string // differs for each start of a process
	Sequence int64  // from 1, without holes, for each sidecar and stream
	Region   string
	Dropped  int64  // rows that were dropped since the entry before
	Ended    bool   // the sidecar stopped in order: nothing comes after
	Rows     []byte // of MarshalUsage or MarshalEvents
}

// Fields returns the entry's fields, each name followed by its value, as XADD takes them.
func (e *Entry) Fields() []string {
	fields := []string{
		FieldSidecar, e.Sidecar, FieldSequence, strconv.FormatInt(e.Sequence, 10), FieldRegion, e.Region,
		FieldDropped, strconv.FormatInt(e.Dropped, 10),
	}
	if e.Ended {
		fields = append(fields, FieldEnded, "1")
	}
	return append(fields, FieldRows, string(e.Rows))
}

// ParseEntry returns the entry that has the fields that a stream has stored.
func ParseEntry(fields map[string]string) (Entry, error) {
	e := Entry{Sidecar: fields[FieldSidecar], Region: fields[FieldRegion], Ended: fields[FieldEnded] == "1",
		Rows: []byte(fields[FieldRows])}
	if e.Sidecar == "" {
		return e, errors.New("an entry of the record must name its sidecar")
	}
	var err error
	if e.Sequence, err = strconv.ParseInt(fields[FieldSequence], 10, 64); err != nil || e.Sequence < 1 {
		return e, fmt.Errorf("an entry of the record must have a sequence from 1, not %q", fields[FieldSequence])
	}
	if text := fields[FieldDropped]; text != "" {
		if e.Dropped, err = strconv.ParseInt(text, 10, 64); err != nil || e.Dropped < 0 {
			return e, fmt.Errorf("the count of dropped rows of an entry must be a number from 0, not %q", text)
		}
	}
	return e, nil
}
