package journal

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/spillway-mesh/spillway/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets time pass, in a bubble of synctest.
func pass(d time.Duration) { <-time.After(d) }

// redis is a pair of streams that a test can break.
type redis struct {
	mu      sync.Mutex // guards all below
	entries map[string][]Entry
	away    bool // nothing is written
	silent  bool // it is written, and the reply is lost
	errors  int
	noticed []int64
}

func (r *redis) set(away, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.silent = away, silent
}

func (r *redis) append(stream string, e *Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.away {
		one := *e
		one.Rows = append([]byte(nil), e.Rows...)
		r.entries[stream] = append(r.entries[stream], one)
	}
	if r.away || r.silent {
		r.errors++
		return errors.New("no reply")
	}
	return nil
}

// record starts a recorder that writes there.
func (r *redis) record(oneIn uint32) *Journal {
	r.entries = map[string][]Entry{}
	return New(Config{
		AllowedIn: oneIn, Append: r.append, Name: func(kind, value string) string { return kind + ":" + value },
		OnDrop: func(rows int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.noticed = append(r.noticed, rows)
		},
	})
}

// sums is what a control plane has copied.
type sums struct {
	whole, named, cost, endpoints, events, dropped int64
	keys, keysRefused                              int64
	tenants, ofTenants, tenantCost, calls          int64
	tenant, call                                   map[string]int64
	hits, misses                                   int64
	identities                                     map[string]int64
	ended                                          bool
}

// copy reads the streams as a control plane does.
func (r *redis) copy(t *testing.T) sums {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := sums{identities: map[string]int64{}, tenant: map[string]int64{}, call: map[string]int64{}}
	for stream, entries := range r.entries {
		last := int64(0)
		for _, e := range entries {
			if e.Sequence <= last {
				continue
			}
			if e.Sequence != last+1 || s.ended && stream == UsageStream {
				t.Fatalf("%s: entry %d follows %d", stream, e.Sequence, last)
			}
			last = e.Sequence
			s.dropped += e.Dropped
			s.take(t, stream, &e)
		}
	}
	return s
}

func (s *sums) take(t *testing.T, stream string, e *Entry) {
	if len(e.Rows) > entryBytes+maxTexts*6 {
		t.Errorf("an entry has %d bytes", len(e.Rows))
	}
	u, err := Unmarshal(e.Rows)
	if err != nil {
		t.Fatal(err)
	}
	s.events += int64(len(u.Events))
	s.ended = s.ended || e.Ended && stream == UsageStream
	for _, row := range u.Identities {
		if row.Rule == "" {
			s.whole += row.Requests
			s.cost += row.Cost
			s.identities[row.Name] += row.Requests
		} else {
			s.named += row.Requests
		}
	}
	for _, row := range u.Tenants {
		if row.Rule == "" {
			s.tenants, s.tenantCost = s.tenants+row.Requests, s.tenantCost+row.Cost
			s.tenant[row.Name] += row.Requests
		} else {
			s.ofTenants += row.Requests
		}
	}
	for _, row := range u.Caches {
		if row.Domain == "shop" && row.Name == "denials" {
			s.hits, s.misses = s.hits+row.Hits, s.misses+row.Misses
		}
	}
	for _, row := range u.Calls {
		s.calls += row.Requests
		s.call[row.Name+" "+row.Endpoint] += row.Requests
	}
	for _, row := range u.Endpoints {
		s.endpoints += row.Requests
	}
	for _, row := range u.Keys {
		s.keys += row.Requests
		s.keysRefused += row.Refused
	}
}

// decide notes one decision about a user.
func decide(r *Journal, user string, refused bool) {
	d := Decided{
		At: time.Now(), Domain: "shop", Outcome: engine.Allowed, Requests: 1, Cost: 3, Kind: User, Identity: user,
		Tenant: "of " + user, Known: 1, Unknown: 2,
		Rules: []Charged{{"a", 1}, {"b", 2}}, Key: "key of " + user, Refused: refused, Rule: "a", Endpoint: "/" + user,
		Latency: time.Millisecond,
	}
	if refused {
		d.Outcome = engine.Refused
	}
	if weight := r.collector.weight(refused); weight > 0 {
		d.Event = &Detail{Weight: weight}
	}
	r.Note(&d)
}

// TestNothingIsLostWhileRedisComesAndGoes: entries are lost, come twice, and come late; what is counted is what was
// decided.
func TestNothingIsLostWhileRedisComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(0)
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range 1000 {
					decide(r, "u"+strconv.Itoa(i%50), i%10 == 0)
					if i%20 == 0 {
						pass(time.Duration(worker+1) * 17 * time.Millisecond)
					}
				}
			})
		}
		for i := range 12 {
			pass(500 * time.Millisecond)
			server.set(i%3 == 1, i%3 == 2)
		}
		server.set(false, false)
		all.Wait()
		if lost := r.Close(); lost != 0 {
			t.Errorf("%d rows were lost", lost)
		}
		s := server.copy(t)
		if s.whole != 8000 || s.named != 16000 || s.cost != 24000 || s.endpoints != 8000 || s.events != 800 ||
			s.keys != 8000 || s.keysRefused != 800 || s.tenants != 8000 || s.ofTenants != 16000 ||
			s.tenantCost != 24000 || s.calls != 8000 || s.hits != 8000 ||
			s.misses != 16000 || s.dropped != 0 || !s.ended {
			t.Errorf("the copy has %+v", s)
		}
		if server.errors == 0 {
			t.Error("Redis was never away")
		}
	})
}

// TestAMillionIdentitiesHaveABound: what is beyond is counted as that of others, and noticed; no request is missing.
func TestAMillionIdentitiesHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(1)
		server.set(true, false)
		const n = manyIdentities
		for i := range n {
			decide(r, "identity-"+strconv.Itoa(i), false)
		}
		pass(90 * time.Second)
		server.mu.Lock()
		noticed := len(server.noticed)
		server.mu.Unlock()
		if noticed != 1 {
			t.Errorf("it noticed %d times that there is no room, want once: nothing was dropped after that", noticed)
		}
		server.set(false, false)
		if lost := r.Close(); lost != 0 {
			t.Errorf("%d rows were lost", lost)
		}
		s, stats := server.copy(t), r.Stats()
		if s.whole != n || s.named != 2*n || s.cost != 3*n || s.endpoints != n {
			t.Errorf("the copy has %d requests, %d of rules, cost %d, %d of endpoints", s.whole, s.named, s.cost,
				s.endpoints)
		}
		if s.tenants != n || s.ofTenants != 2*n || s.tenantCost != 3*n || s.calls != n {
			t.Errorf("the copy has %d requests of tenants, %d of their rules, cost %d, %d calls", s.tenants,
				s.ofTenants, s.tenantCost, s.calls)
		}
		if s.tenant[Others] == 0 || s.tenant["tenant:of identity-0"] != 1 || s.call["(others) (others)"] == 0 ||
			s.call["user:identity-0 /identity-0"] != 1 || len(s.call) < 5000 {
			t.Errorf("%d tenants, %d requests of others, %d calls, %d of others", len(s.tenant), s.tenant[Others],
				len(s.call), s.call["(others) (others)"])
		}
		if s.identities[Others] == 0 || s.identities["user:identity-0"] != 1 || len(s.identities) < 10_000 {
			t.Errorf("%d identities, %d requests of others", len(s.identities), s.identities[Others])
		}
		if s.keys+stats.DroppedKeys != n || s.keys < 5000 {
			t.Errorf("requests of %d keys are counted, and %d dropped, of %d", s.keys, stats.DroppedKeys, n)
		}
		if dropped := stats.dropped(); dropped != s.dropped || dropped != server.noticed[0] {
			t.Errorf("%d rows were dropped, %d were in entries, %v in the log", dropped, s.dropped, server.noticed)
		}
		if s.events+stats.DroppedEvents != n || stats.EventRows != s.events {
			t.Errorf("%d events are stored, and %d dropped, of %d", s.events, stats.DroppedEvents, n)
		}
	})
}

// TestOneUserWithManyKeys: the keys of one user have all the room that there is.
func TestOneUserWithManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(0)
		server.set(true, false)
		const n = 6000
		for i := range n {
			r.Note(&Decided{At: time.Now(), Domain: "shop", Requests: 1, Kind: User, Identity: "ann",
				Key: fmt.Sprint("key", i), Refused: i%2 == 0})
		}
		server.set(false, false)
		r.Close()
		if s := server.copy(t); s.keys != n || s.keysRefused != n/2 || s.dropped != 0 {
			t.Errorf("%d requests of keys and %d of them refused, %d dropped, want %d and %d", s.keys, s.keysRefused,
				s.dropped, n, n/2)
		}
	})
}

// TestManyMinutesAndDomainsHaveABound: not even the rows of others have room, and no request is missing.
func TestManyMinutesAndDomainsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(0)
		server.set(true, false)
		const n = 200_000
		for i := range n {
			r.Note(&Decided{At: time.Now().Add(time.Duration(i) * time.Minute), Domain: fmt.Sprint("domain", i),
				Requests: 1, Cost: 2, Kind: User, Identity: "u", Tenant: "t", Rules: []Charged{{"a", 1}}, Rule: "a",
				Endpoint: "/"})
		}
		server.set(false, false)
		r.Close()
		s := server.copy(t)
		if s.whole != n || s.cost != 2*n || s.named != n || s.endpoints != n || s.tenants != n ||
			s.tenantCost != 2*n || s.ofTenants != n || s.calls != n {
			t.Errorf("the copy has %+v", s)
		}
	})
}

// TestTheMemoryIsBounded adds up what the record takes. Only its buffers are on the heap.
func TestTheMemoryIsBounded(t *testing.T) {
	if got := int(unsafe.Sizeof(row{})); got != rowBytes {
		t.Errorf("a row has %d bytes", got)
	}
	if got := int(unsafe.Sizeof(mark{})); got != markBytes {
		t.Errorf("an event has %d bytes", got)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var server redis
	r := server.record(1)
	defer r.Close()
	server.set(true, false)
	for i := range 100_000 {
		decide(r, "identity-"+strconv.Itoa(i), i%2 == 0)
	}
	const most, onHeap = 16 << 20, 2 << 20
	if bytes := r.Stats().Bytes; bytes > most || bytes < most/2 {
		t.Errorf("the record takes up to %d bytes, the bound is %d", bytes, most)
	}
	if took := heap() - before; took > onHeap {
		t.Errorf("the record takes %d bytes of the heap, which grows to several times that; the bound is %d", took,
			onHeap)
	}
	runtime.KeepAlive(r)
	server.set(false, false)
}

func TestLongTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(1)
		long := strings.Repeat("x", 1<<20)
		for _, identity := range []string{long, "short"} {
			r.Note(&Decided{At: time.Now(), Domain: long, Kind: User, Identity: identity, Requests: 1,
				Rules: []Charged{{long, 1}}, Rule: long, Endpoint: long, Key: long, Tenant: long,
				Event: &Detail{Weight: 1, Method: long, IP: long}})
		}
		r.Close()
		s := server.copy(t)
		if s.whole != 2 || s.identities["user:"+Short(long)] != 1 || s.identities["user:short"] != 1 ||
			s.events != 2 || s.endpoints != 2 || s.keys != 2 || s.tenants != 2 || s.calls != 2 || s.dropped != 0 {
			t.Errorf("the copy has %+v", s)
		}
	})
}

// TestOnlyWhatHappensIsWritten: a sidecar that decides nothing writes nothing.
func TestOnlyWhatHappensIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redis{entries: map[string][]Entry{}}
		var hits atomic.Int64
		r := New(Config{
			Append: server.append, Name: func(kind, value string) string { return kind + value },
			Caches: func() []Cache {
				all := []Cache{{"shop", "c", hits.Load(), 2 * hits.Load()}}
				if hits.Load() > 4 { // a domain that comes later, and stands first
					all = append([]Cache{{"mail", "c", 1, 0}}, all...)
				}
				return all
			},
		})
		pass(5 * time.Second)
		if len(server.entries) != 0 {
			t.Errorf("entries: %v", server.entries)
		}
		hits.Store(4)
		pass(1500 * time.Millisecond)
		hits.Store(7)
		r.Close()
		var got Rows
		for _, e := range server.entries[UsageStream] {
			u, err := Unmarshal(e.Rows)
			if err != nil {
				t.Fatal(err)
			}
			got.Caches = append(got.Caches, u.Caches...)
		}
		want := []string{"shop 4 8", "mail 1 0", "shop 3 6"}
		var rows []string
		for _, r := range got.Caches {
			rows = append(rows, fmt.Sprintln(r.Domain, r.Hits, r.Misses))
		}
		if strings.Join(rows, "") != strings.Join(want, "\n")+"\n" || len(server.entries[EventsStream]) != 0 {
			t.Errorf("caches: %v; events: %v", got.Caches, server.entries[EventsStream])
		}
	})
}

// TestAJournalThatCannotWriteEnds, and returns how much is lost.
func TestAJournalThatCannotWriteEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(1)
		server.set(true, false)
		decide(r, "ann", true)
		pass(10 * time.Second)
		decide(r, "bob", false)
		began := time.Now()
		if lost := r.Close(); lost != 18 {
			t.Errorf("%d rows were lost, want 2 of identities and of tenants, 1 of calls, of endpoints, of keys and of caches, "+
				"and 1 event, of two users", lost)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v to give up", took)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	var server redis
	r := server.record(100)
	defer r.Close()
	users := make([]string, 1000)
	for i := range users {
		users[i] = "user-" + strconv.Itoa(i)
	}
	d := &Decided{At: time.Now(), Domain: "shop", Requests: 1, Cost: 1, Kind: User, Key: "key",
		Rules: []Charged{{"reads", 1}}, Rule: "reads", Endpoint: "/items", Latency: time.Millisecond}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		d.Identity = users[i%len(users)]
		r.Note(d)
		i++
	}
}
