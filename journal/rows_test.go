package journal_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/test/must"
)

func someRows() *journal.Rows {
	var latency journal.Sketch
	latency.Add(time.Millisecond, 3)
	latency.Add(70*time.Microsecond, 1)
	return &journal.Rows{
		Identities: []journal.Row{
			{Minute: 29_000_000, Domain: "shop", Name: "user:ann", Outcome: "allowed", Requests: 4, Cost: 9},
			{Minute: 29_000_001, Domain: `a"b\c`, Rule: "é\n☃\x7f", Name: journal.Others, Outcome: "refused",
				Requests: 1},
		},
		Tenants: []journal.Row{
			{Minute: 29_000_000, Domain: "shop", Name: "tenant:acme", Outcome: "allowed", Requests: 4, Cost: 9},
		},
		Calls: []journal.Row{
			{Minute: 28_999_980, Domain: "shop", Name: "user:ann", Endpoint: "/items", Outcome: "allowed", Requests: 4},
		},
		Endpoints: []journal.Row{
			{Minute: 29_000_000, Domain: "shop", Rule: "reads", Name: "/items", Outcome: "allowed", Requests: 4,
				Latency: latency},
		},
		Keys:   []journal.Row{{Minute: 29_000_000, Domain: "shop", Name: "key:x", Requests: 4, Refused: 1}},
		Caches: []journal.Row{{Minute: 29_000_000, Name: "profiles", Hits: 3, Misses: 1}},
		Events: []journal.Event{
			{
				At: 1, Domain: "shop", Outcome: "refused", Rule: "reads", Identity: "user:ann", Tenant: "tenant:acme",
				APIKey: "spw_ABCDEF", IP: "192.0.2.7", Method: "GET", Endpoint: "/items", Count: 5, Limit: 6, Cost: 7,
				Status: 429, RetryAfter: 0.25, Latency: 8, Weight: 1,
			},
			{At: 2, Weight: 100},
		},
	}
}

func TestRowsComeBack(t *testing.T) {
	for _, rows := range []*journal.Rows{someRows(), {}} {
		got := must.Get(journal.Unmarshal(rows.Marshal()))(t)
		if diff := cmp.Diff(rows, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	}
}

// TestTheFormOfRows is what other programs read.
func TestTheFormOfRows(t *testing.T) {
	r := someRows()
	r.Identities, r.Events = r.Identities[:1], r.Events[1:]
	const want = `{"identities":[{"minute":29000000,"domain":"shop","name":"user:ann","outcome":"allowed",` +
		`"requests":4,"cost":9}],` +
		`"tenants":[{"minute":29000000,"domain":"shop","name":"tenant:acme","outcome":"allowed",` +
		`"requests":4,"cost":9}],` +
		`"calls":[{"minute":28999980,"domain":"shop","name":"user:ann","endpoint":"/items","outcome":"allowed",` +
		`"requests":4}],` +
		`"endpoints":[{"minute":29000000,"domain":"shop","rule":"reads","name":"/items","outcome":"allowed",` +
		`"requests":4,` +
		`"latency":{"buckets":[{"i":45,"n":1},{"i":73,"n":3}]}}],` +
		`"keys":[{"minute":29000000,"domain":"shop","name":"key:x","requests":4,"refused":1}],` +
		`"caches":[{"minute":29000000,"name":"profiles","hits":3,"misses":1}],"events":[{"at":2,"weight":100}]}`
	if got := string(r.Marshal()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestTheNameOfAKey is the same for a key and for its digest, and does not show it.
func TestTheNameOfAKey(t *testing.T) {
	const key = "spw_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digest := sha256.Sum256([]byte(key))
	if got := journal.KeyOf(key); got != journal.KeyOfDigest(digest[:]) || got == journal.KeyOf("another") ||
		strings.Contains(got, key[:10]) || len(got) != 22 {
		t.Errorf("the name is %q", got)
	}
}

func TestRowsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `{"identities":[[1]]}`, `{"identities":[{"minute":"1"}]}`, `{"identities":[{"minute":1,"cost":-1}]}`,
		`{"caches":[{"minute":1,"hits":-1}]}`, `{"endpoints":[{"minute":1,"latency":{"buckets":[{"i":256,"n":1}]}}]}`,
		`{"endpoints":[{"minute":1,"latency":{"buckets":[{"i":1,"n":0}]}}]}`, `{"events":[{"at":"x"}]}`,
		`{"events":[{"weight":-1}]}`,
	} {
		_, err := journal.Unmarshal([]byte(text))
		if err == nil {
			t.Errorf("%q must be refused", text)
		}
	}
}

func TestEntriesComeBack(t *testing.T) {
	want := journal.Entry{Sidecar: "a-1", Sequence: 7, Region: "eu", Dropped: 3, Ended: true, Rows: []byte("[]")}
	words := want.Fields()
	fields := map[string]string{}
	for i := 0; i < len(words); i += 2 {
		fields[words[i]] = words[i+1]
	}
	got, err := journal.ParseEntry(fields)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, value := range map[string]string{journal.FieldSidecar: "", journal.FieldSequence: "0",
		journal.FieldDropped: "-1"} {
		was := fields[name]
		fields[name] = value
		if _, err := journal.ParseEntry(fields); err == nil {
			t.Errorf("%s=%q must be refused", name, value)
		}
		fields[name] = was
	}
}

// FuzzRows: what is read and written again is the same.
func FuzzRows(f *testing.F) {
	f.Add(someRows().Marshal())
	f.Add([]byte(`{"endpoints":[{"minute":1,"latency":{"buckets":[{"i":3,"n":1},{"i":1,"n":2},{"i":3,"n":4}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := journal.Unmarshal(text)
		if err != nil {
			return
		}
		again := must.Get(journal.Unmarshal(rows.Marshal()))(t)
		if diff := cmp.Diff(rows, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
