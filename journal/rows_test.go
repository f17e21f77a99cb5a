package journal_test

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/journal"
)

func someUsage() *journal.Usage {
	var latency journal.Sketch
	latency.Add(time.Millisecond, 3)
	latency.Add(70*time.Microsecond, 1)
	return &journal.Usage{
		Identities: []journal.IdentityRow{
			{Minute: 29_000_000, Domain: "shop", Rule: "", Identity: "user:ann", Outcome: "allowed", Requests: 4, Cost: 9},
			{Minute: 29_000_001, Domain: `a"b\c`, Rule: "é\n☃\x7f", Identity: journal.Others, Outcome: "refused", Requests: 1},
		},
		Endpoints: []journal.EndpointRow{{Minute: 29_000_000, Domain: "shop", Rule: "reads", Endpoint: "/items", Outcome: "allowed", Requests: 4, Cost: 9, Latency: latency}},
		Keys:      []journal.KeyRow{{Minute: 29_000_000, Domain: "shop", Key: "key:x", Requests: 4, Refused: 1}},
		Caches:    []journal.CacheRow{{Minute: 29_000_000, Cache: "records", Hits: 3, Misses: 1}},
	}
}

func TestUsageComesBack(t *testing.T) {
	for _, u := range []*journal.Usage{someUsage(), {Identities: []journal.IdentityRow{}, Endpoints: []journal.EndpointRow{}, Keys: []journal.KeyRow{}, Caches: []journal.CacheRow{}}} {
		text := journal.MarshalUsage(u)
		if !json.Valid(text) {
			t.Fatalf("this must be JSON: %s", text)
		}
		got, err := journal.UnmarshalUsage(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(u, got); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
	}
}

// TestTheFormOfUsage is what other programs read.
func TestTheFormOfUsage(t *testing.T) {
	u := someUsage()
	u.Identities = u.Identities[:1]
	const want = `{"identities":[[29000000,"shop","","user:ann","allowed",4,9]],` +
		`"endpoints":[[29000000,"shop","reads","/items","allowed",4,9,[[45,1],[73,3]]]],"keys":[[29000000,"shop","key:x",4,1]],"caches":[[29000000,"records",3,1]]}`
	if got := string(journal.MarshalUsage(u)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestTheNameOfAKey is the same for a key and for its digest, and does not show it.
func TestTheNameOfAKey(t *testing.T) {
	const key = "spw_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digest := sha256.Sum256([]byte(key))
	if got := journal.KeyOf(key); got != journal.KeyOfDigest(digest[:]) || got == journal.KeyOf("another") || strings.Contains(got, key[:10]) || len(got) != 22 {
		t.Errorf("the name is %q", got)
	}
}

func TestEventsComeBack(t *testing.T) {
	events := []journal.Event{
		{
			At: 1, Domain: "shop", Outcome: "refused", Rule: "reads", Identity: "user:ann", APIKey: "spw_ABCDEF", IP: "192.0.2.7", Method: "GET", Endpoint: "/items",
			Count: 5, Limit: 6, Cost: 7, Status: 429, RetryAfter: 0.25, Latency: 8, Weight: 1,
		},
		{At: 2, Weight: 100},
	}
	text := journal.MarshalEvents(events)
	got, err := journal.UnmarshalEvents(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if want := `,{"at":2,"weight":100}]`; !strings.HasSuffix(string(text), want) {
		t.Errorf("%s must end with %s", text, want)
	}
}

// TestTextsThatPostgreSQLRefuses are mended where they are written.
func TestTextsThatPostgreSQLRefuses(t *testing.T) {
	text := journal.MarshalEvents([]journal.Event{{Endpoint: "a\x00b\xffc", Weight: 1}})
	got, err := journal.UnmarshalEvents(text)
	if err != nil || got[0].Endpoint != "a\ufffdb\ufffdc" {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
}

func TestRowsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `{"identities":[[1,"a","b","c","d",1]]}`, `{"identities":[["1","a","b","c","d",1,1]]}`, `{"caches":[[1,"a",1]]}`, `{"keys":[[1,"a","b",1]]}`,
		`{"keys":[[1,"a","b",1,1,1]]}`,
		`{"endpoints":[[1,"a","b","c","d",1,1,[[256,1]]]]}`, `{"endpoints":[[1,"a","b","c","d",1,1,[[1,0]]]]}`,
	} {
		if _, err := journal.UnmarshalUsage([]byte(text)); err == nil {
			t.Errorf("usage %q must be refused", text)
		}
	}
	for _, text := range []string{``, `{}`, `[1]`, `[{"at":"x"}]`, `[{"weight":-1}]`} {
		if _, err := journal.UnmarshalEvents([]byte(text)); err == nil {
			t.Errorf("events %q must be refused", text)
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
	for name, value := range map[string]string{journal.FieldSidecar: "", journal.FieldSequence: "0", journal.FieldDropped: "-1"} {
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
	f.Add(journal.MarshalUsage(someUsage()), "a\x00\xff")
	f.Add([]byte(`{"endpoints":[[1,"a","b","c","d",1,1,[[3,1],[1,2],[3,4]]]]}`), `"`)
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		if u, err := journal.UnmarshalUsage(data); err == nil {
			again, err := journal.UnmarshalUsage(journal.MarshalUsage(u))
			if diff := cmp.Diff(u, again); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		events, err := journal.UnmarshalEvents(journal.MarshalEvents([]journal.Event{{Rule: text, Weight: 1}}))
		if want := strings.ToValidUTF8(text, "\ufffd"); err != nil || len(events[0].Rule) < len(want) {
			t.Errorf("%q became %q: %v", text, events[0].Rule, err)
		}
	})
}
