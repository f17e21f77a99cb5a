package control_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// billing is a world whose parts are killed and started again, and what its sidecars admitted.
type billing struct {
	*world
	admitted map[string]int64 // by user
	refused  map[string]int64
	keys     map[string]string // what is sent as the key of a user, whose only one it is
}

// newBilling starts controls and recording sidecars with a Redis that keeps what it has answered.
func newBilling(t *testing.T, controls, sidecars int) *billing {
	t.Helper()
	w := newWorldOn(t, servers.StartPostgres(t), 0, 0)
	w.redis = servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	b := &billing{w, map[string]int64{}, map[string]int64{}, map[string]string{}}
	for range controls {
		w.controls = append(w.controls, servers.StartControl(t, b.env()...))
	}
	for range sidecars {
		w.sidecars = append(w.sidecars, b.newSidecar())
	}
	w.must("POST", versions, map[string]any{"text": rulesOf(100)})
	w.awaitVersion(1)
	return b
}

// env is the environment of its controls: with a secret, so that names are not in plain in the record.
func (b *billing) env() []string { return append(b.world.env(), "KEY_SECRET="+billingSecret) }

const billingSecret = "0123456789abcdef0123456789abcdef"

func (b *billing) newSidecar() *servers.Sidecar {
	b.t.Helper()
	return servers.StartSidecar(b.t, "RULES=redis:", "REDIS_URL="+b.redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s",
		"LEASES=false", "RECORD=true", "RECORD_ALLOWED_ONE_IN=1", "KEY_SECRET="+billingSecret)
}

// load sends requests of some users to all sidecars by turns.
func (b *billing) load(requests int) {
	b.t.Helper()
	for n := range requests {
		user := "user-" + strconv.Itoa(n%5)
		b.note(user, b.askBy(n%len(b.sidecars), user, b.keys[user]))
	}
}

// note counts what a sidecar answered to a user.
func (b *billing) note(user string, passed bool) {
	if passed {
		b.admitted[user]++
	} else {
		b.refused[user]++
	}
}

// newKeys makes API keys of three users. A mesh sends the id of the first and the second key itself to the rate limit
// service; the third is sent to ext_authz.
func (b *billing) newKeys() {
	b.t.Helper()
	for n := 1; n <= 3; n++ {
		user := "user-" + strconv.Itoa(n)
		quotas := map[string]any{"quota_day": 2_000_000, "quota_month": 3_000_000}
		if n == 3 {
			user, quotas["quota_hour"] = "authz", 100
		}
		b.must("PUT", "/v1/domains/api/users/"+user, quotas)
		made := b.must("POST", "/v1/domains/api/keys", map[string]any{"id": "key-of-" + user, "user": user})
		b.keys[user], _ = made.body["secret"].(string)
	}
	b.keys["user-1"] = "key-of-user-1"
	for i, sidecar := range b.sidecars {
		servers.Await(b.t, "the key and the quotas of its user on a sidecar", func() error {
			got, err := try("http://"+sidecar.Debug, "POST", "/v1/explain",
				map[string]any{"http": map[string]any{"domain": "api", "method": "GET", "path": "/",
					"peer": "192.0.2.1", "headers": map[string]string{"x-api-key": b.keys["authz"]}}})
			if err == nil &&
				(!strings.Contains(got.text, `"key-of-authz"`) || !strings.Contains(got.text, `"user authz"`)) {
				err = errors.New(got.text)
			}
			return err
		})
		for range 70 { // more than the quota of an hour, on both
			code := must.Get(b.check(i, b.keys["authz"]))(b.t)
			b.note("authz", code == codes.OK)
		}
	}
}

// keysSettled compares what API keys were used for, as the control shows it, with what was asked.
func (b *billing) keysSettled() error {
	for user := range b.keys {
		got, err := try(b.controls[0].URL, "GET", "/v1/domains/api/keys/key-of-"+user, nil)
		if err != nil {
			return err
		}
		if got.body["total_requests"] != float64(b.admitted[user]+b.refused[user]) ||
			got.body["refused_requests"] != float64(b.refused[user]) || got.body["last_used_at"] == nil {
			return fmt.Errorf("the key of %s is %s, want %d requests and %d of them refused", user, got.text,
				b.admitted[user]+b.refused[user], b.refused[user])
		}
	}
	return nil
}

// settled waits until everything that was asked is in PostgreSQL.
func (b *billing) settled() {
	b.t.Helper()
	servers.Await(b.t, "all usage in the database", func() error {
		for user, admitted := range b.admitted {
			got, err := try(b.controls[0].URL, "GET", "/v1/domains/api/usage?step=day&user="+user, nil)
			if err != nil {
				return err
			}
			if got.body["admitted"] != float64(admitted) || got.body["refused"] != float64(b.refused[user]) {
				return fmt.Errorf("of %s %v are admitted and %v refused, want %d and %d", user, got.body["admitted"],
					got.body["refused"], admitted, b.refused[user])
			}
		}
		return b.keysSettled()
	})
}

// tenantIsBilled sends requests of a user of a tenant, and waits until usage of the tenant has them.
func (b *billing) tenantIsBilled() {
	b.t.Helper()
	const most = 5
	admitted := 0
	for n := range most {
		passed := b.askWith(n%len(b.sidecars), "user", "user-4", "tenant", "acme")
		b.note("user-4", passed)
		if passed {
			admitted++
		}
	}
	servers.Await(b.t, "usage of the tenant", func() error {
		out, err := exec.Command(servers.SpillwayBin(b.t), "usage", "list", "--domain", "api", "--tenant", "acme",
			"--control", b.controls[0].URL, "-o", "json").CombinedOutput()
		if err == nil && (admitted == 0 || !strings.Contains(string(out), fmt.Sprintf(`"admitted": %d,`, admitted))) {
			err = fmt.Errorf("the command prints %s, want %d admitted", out, admitted)
		}
		return err
	})
}

// eventsShowKeys waits until the events of each key show its id, however it came: itself, by its id, or to ext_authz.
func (b *billing) eventsShowKeys() {
	b.t.Helper()
	servers.Await(b.t, "the ids of API keys in events", func() error {
		for user := range b.keys {
			got, err := try(b.controls[0].URL, "GET", "/v1/domains/api/events?key=key-of-"+user, nil)
			if err == nil && !strings.Contains(got.text, `"api_key": "key-of-`+user+`"`) {
				err = fmt.Errorf("the events of the key of %s are %s", user, got.text)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	const others = `SELECT count(*) FROM events WHERE api_key <> '' AND api_key NOT LIKE 'key-of-%'`
	if n := b.query(others); n != 0 {
		b.t.Errorf("%d events show something else of an API key than its id", n)
	}
}

// TestBilledIsWhatWasAdmitted kills each part while sidecars admit requests: what PostgreSQL has equals what they
// admitted, to the request, by user and by API key.
func TestBilledIsWhatWasAdmitted(t *testing.T) {
	begun := time.Now().UTC().Month()
	b := newBilling(t, 1, 2)
	b.newKeys()
	rounds := map[bool]int{false: 0, true: 5}[full]
	b.load(200)
	b.controls[0].End(t) // SIGKILL
	b.load(100)
	b.controls[0] = servers.StartControl(t, b.env()...)
	b.sidecars[1].Send(t, syscall.SIGTERM) // with usage that is not written yet
	b.sidecars[1].Exit(t)
	b.sidecars = b.sidecars[:1]
	b.load(100)
	b.tenantIsBilled()
	b.settled()
	b.eventsShowKeys()
	for range rounds {
		b.round()
	}
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days"} {
		total := int64(0)
		for user, n := range b.admitted {
			total += n + b.refused[user]
		}
		if got := b.query(`SELECT sum(requests)::bigint FROM ` + table + ` WHERE rule = ''`); got != total {
			t.Errorf("%s has %d requests, want %d", table, got, total)
		}
	}
	if missing := b.query(`SELECT sum(missing)::bigint FROM record_sources`); missing != 0 {
		t.Errorf("%d entries are missing", missing)
	}
	if refused := b.refused["authz"]; refused == 0 {
		t.Error("no request with a key was refused")
	}
	if plain := b.query(`SELECT count(*) FROM usage_minutes WHERE identity LIKE '%user-%'`); plain != 0 {
		t.Errorf("%d identities are in plain, although there is a secret", plain)
	}
	usage := b.must("GET", "/v1/domains/api/users/user-1/usage", nil)
	month, _ := usage.body["month"].(map[string]any)
	if month["left"] != float64(3_000_000-b.admitted["user-1"]) && time.Now().UTC().Month() == begun {
		t.Errorf("the month is %s, want %d admitted", usage.text, b.admitted["user-1"])
	}
	if user := b.must("GET", "/v1/domains/api/users/user-1", nil); user.body["last_request_at"] == nil ||
		user.body["exceeded_count"] != float64(b.refused["user-1"]) {
		t.Errorf("the user is %s, want a last request and %d refusals", user.text, b.refused["user-1"])
	}
}

// round kills each part.
func (b *billing) round() {
	b.t.Helper()
	b.controls[0].End(b.t)
	b.load(100)
	b.controls[0] = servers.StartControl(b.t, b.env()...)
	b.load(100)
	b.postgres.Kill(b.t)
	b.load(100)
	b.postgres.Start(b.t)
	b.load(100)
	b.settled()
	b.sidecars[0].End(b.t) // after a moment in which it was asked nothing
	b.sidecars[0] = b.newSidecar()
	b.load(100)
	b.redisRestarts()
	b.settled()
}

// redisRestarts kills Redis while sidecars have usage to write, and starts it again with what it had.
func (b *billing) redisRestarts() {
	b.t.Helper()
	b.redis.Kill(b.t)
	b.redis.Start(b.t)
	servers.Await(b.t, "decisions after the restart of Redis", func() error {
		for i := range b.sidecars {
			m, err := servers.Scrape(b.sidecars[i].Debug)
			if err != nil || m.Sum("spillway_degraded") > 0 {
				return fmt.Errorf("sidecar %d is degraded: %w", i, err)
			}
		}
		return nil
	})
}
