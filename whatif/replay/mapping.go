package replay

import (
	"fmt"
	"slices"
	"strings"
)

// Mapping is what the fields of a log's lines mean. The zero value knows the usual fields of Envoy, Istio, nginx and
// Apache.
type Mapping struct {
	// the field that holds time, method, path, request, host, x_forwarded_for, peer, code, user, tenant, tier or cost;
	// a hyphen: no field does
	Fields      map[string]string
	Headers     []Pair   // request headers, by the fields that hold them
	Entries     []Pair   // context extensions, likewise
	Descriptors [][]Part // what Envoy's rate limit filter sends; none: Envoy asks over ext_authz
}

// Pair is a name and the field that holds its value.
type Pair struct{ Name, Field string }

// Part is one entry of a descriptor: its value is a field's or, without a field, the text itself. A descriptor with a
// field that a line does not have is not sent, as Envoy does not.
type Part struct{ Key, Field, Text string }

// slot is a place for one value of a line.
type slot int

const (
	slotTime slot = iota
	slotMethod
	slotPath
	slotRequest
	slotHost
	slotForwarded
	slotPeer
	slotCode
	slotUser
	slotTenant
	slotTier
	slotCost
	slotExtra // and further
)

// usual are the names that Mapping.Fields knows, and the fields that are looked for where it names none, the first that
// a line has. Envoy's filters see a path before routes rewrite it. A cost is never guessed.
var usual = []struct {
	name   string
	slot   slot
	fields []string
}{
	{"time", slotTime, []string{"start_time", "timestamp", "@timestamp", "time", "ts", "msec", "time_iso8601",
		"time_local"}},
	{"method", slotMethod, []string{"method", ":method", "request_method"}},
	{"path", slotPath, []string{"x_envoy_original_path", "x-envoy-original-path", "x-envoy-origin-path",
		"original_path", "path", ":path", "request_path", "request_uri", "uri"}},
	{"request", slotRequest, []string{"request", "request_line"}},
	{"host", slotHost, []string{"authority", ":authority", "host", "http_host", "server_name"}},
	{"x_forwarded_for", slotForwarded, []string{"x_forwarded_for", "x-forwarded-for", "http_x_forwarded_for"}},
	{"peer", slotPeer, []string{"downstream_direct_remote_address", "downstream_remote_address", "remote_address",
		"remote_addr", "remote_ip", "client_ip", "peer"}},
	{"code", slotCode, []string{"response_code", "status", "code"}},
	{"user", slotUser, []string{"user", "user_id", "sub", "remote_user"}},
	{"tenant", slotTenant, []string{"tenant", "tenant_id", "org_id"}},
	{"tier", slotTier, []string{"tier", "plan"}},
	{"cost", slotCost, nil},
}

// place is where a field goes: the fields of a slot are ranked, and the first one wins.
type place struct {
	slot slot
	rank int
}

// layout is a Mapping, ready for lines, and what lines had so far.
type layout struct {
	places      map[string][]place
	slots       int
	asked       []Pair // fields that the mapping names, and what for
	seen        []bool // by asked: a line had it
	headers     []named
	entries     []named
	descriptors [][]part
	learned
}

type named struct {
	name string
	slot slot
}

type part struct {
	key, text string
	slot      slot // -1: the text
}

func (m *Mapping) layout() (*layout, error) {
	l := &layout{places: map[string][]place{}, slots: int(slotExtra), learned: newLearned()}
	for _, u := range usual {
		fields := u.fields
		switch own := m.Fields[u.name]; own {
		case "":
		case "-":
			fields = nil
		default:
			fields = []string{own}
			l.asked = append(l.asked, Pair{u.name, own})
		}
		for rank, field := range fields {
			l.places[field] = append(l.places[field], place{u.slot, rank})
		}
		l.looked[u.slot] = fields
	}
	err := m.known()
	if err != nil {
		return nil, err
	}
	for _, h := range m.Headers {
		l.headers = append(l.headers, named{strings.ToLower(h.Name), l.extra("header "+h.Name, h.Field)})
	}
	for _, e := range m.Entries {
		l.entries = append(l.entries, named{e.Name, l.extra("entry "+e.Name, e.Field)})
	}
	l.addDescriptors(m.Descriptors)
	l.seen = make([]bool, len(l.asked))
	return l, nil
}

func (m *Mapping) known() error {
	var names []string
	for _, u := range usual {
		names = append(names, u.name)
	}
	for name := range m.Fields {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%q is not what a field can be: it is one of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func (l *layout) addDescriptors(all [][]Part) {
	for _, parts := range all {
		var compiled []part
		for _, p := range parts {
			one := part{key: p.Key, text: p.Text, slot: -1}
			if p.Field != "" {
				one.slot = l.extra("descriptor entry "+p.Key, p.Field)
			}
			compiled = append(compiled, one)
		}
		l.descriptors = append(l.descriptors, compiled)
	}
}

// extra makes a slot for a field.
func (l *layout) extra(what, field string) slot {
	s := slot(l.slots)
	l.slots++
	l.asked = append(l.asked, Pair{what, field})
	l.places[field] = append(l.places[field], place{slot: s})
	return s
}

// missing are the fields that were asked for and that no line had.
func (l *layout) missing() (fields []string) {
	for i, asked := range l.asked {
		if !l.seen[i] {
			fields = append(fields, fmt.Sprintf("%s (%s)", asked.Field, asked.Name))
		}
	}
	return fields
}
