package journal

import "time"

// The texts of an event, in the order in which they are kept.
const (
	textDomain = iota
	textRule
	textIdentity
	textTenant
	textAPIKey
	textIP
	textMethod
	textEndpoint
	texts
)

// mark is an event without its texts, which are in the list, one after the other.
type mark struct {
	at                  int64 // in microseconds
	count, limit, cost  int64
	retryAfter, latency time.Duration
	text                uint32 // where its texts begin
	weight              uint32
	ends                [texts]uint16 // of the texts, from there
	status              uint16
	outcome             uint8
	kind                Kind
	keyID               bool // the text of the API key is known to be its id
}

const markBytes = 80

// events is a list of events. It holds no pointers, and never takes more memory than it was made with.
type events struct {
	marks   []mark
	text    []byte
	dropped int64 // events without room
}

func newEvents() *events {
	e := new(events)
	e.marks, e.text = roomOf[mark](e, eventRows)[:0], roomOf[byte](e, eventText)[:0]
	return e
}

func (e *events) bytes() int64 { return int64(cap(e.marks)*markBytes + cap(e.text)) }

func (e *events) empty() { e.marks, e.text, e.dropped = e.marks[:0], e.text[:0], 0 }

// add adds a decision, or counts it as dropped. It reports whether a half of the room is taken, too.
func (e *events) add(d *Decided) (added, half bool) {
	o := d.Event
	all := [texts]string{
		textDomain: cut(d.Domain, maxName), textRule: cut(d.Rule, maxName), textIdentity: Short(d.Identity),
		textTenant: Short(d.Tenant), textAPIKey: Short(d.Key), textIP: cut(o.IP, maxShort),
		textMethod: cut(o.Method, maxShort), textEndpoint: cut(d.Endpoint, maxEndpoint),
	}
	m := mark{
		at: d.At.UnixMicro(), count: o.Count, limit: o.Limit, cost: d.Cost, weight: uint32(o.Weight),
		retryAfter: o.RetryAfter, latency: d.Latency, status: uint16(o.Status), outcome: uint8(d.Outcome),
		kind: d.Kind, keyID: o.KeyID, text: uint32(len(e.text)),
	}
	need := 0
	for i := range all {
		need += len(all[i])
		m.ends[i] = uint16(need)
	}
	if len(e.marks) == cap(e.marks) || len(e.text)+need > cap(e.text) {
		e.dropped++
		return false, true
	}
	for i := range all {
		e.text = append(e.text, all[i]...)
	}
	e.marks = append(e.marks, m)
	return true, len(e.marks) >= cap(e.marks)/2 || len(e.text) >= cap(e.text)/2
}

// of returns a text of an event, which is valid until the list is emptied.
func (e *events) of(m *mark, which int) []byte {
	from := uint16(0)
	if which > 0 {
		from = m.ends[which-1]
	}
	return e.text[m.text:][from:m.ends[which]]
}
