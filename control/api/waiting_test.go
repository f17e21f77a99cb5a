package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// answered sends a request until its status is want. While the machine has too much to do the control may refuse it
// for now, with 503.
func answered(t *testing.T, server *httptest.Server, method, path, body string, want int) {
	t.Helper()
	servers.Await(t, method+" "+path, func() error {
		got, text := asked(t, server, method, path, body)
		if got == http.StatusServiceUnavailable {
			return fmt.Errorf("%d %.200s", got, text)
		}
		if got != want {
			t.Errorf("%s %s: %d %.200s, want %d", method, path, got, text, want)
		}
		return nil
	})
}

// wait lets many callers wait for something, and returns how to wait for all of them.
func wait(count int, what func(n int)) (done func()) {
	var all sync.WaitGroup
	for n := range count {
		all.Go(func() { what(n) })
	}
	return all.Wait
}

// waiting is the number of sessions that wait for a lock.
func waiting(ctx context.Context, d *database.DB) (n int, err error) {
	err = d.Tasks.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).Scan(&n)
	return n, err
}

// TestASlowLoadHoldsUpNothing loads users into a new domain, one line and then silence, while callers change users of
// that domain: changes, blocks and reads, there and elsewhere, are answered before the load ends.
func TestASlowLoadHoldsUpNothing(t *testing.T) {
	d := migrated(t)
	server := serving(t, d)
	body, to := io.Pipe()
	loaded := make(chan int, 1)
	go func() {
		answer, err := http.Post(server.URL+"/v1/domains/brandnew/users:load", "text/csv", body)
		if err != nil {
			t.Error(err)
			loaded <- 0
			return
		}
		answer.Body.Close()
		loaded <- answer.StatusCode
	}()
	must.Get(io.WriteString(to, "name,quota_day\n"+strings.Repeat("#", 5000)+",1\nann,5\n"))(t)
	servers.Await(t, "the copy of the first lines", func() error {
		var n int
		err := d.Tasks.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		  WHERE state = 'active' AND query ILIKE 'copy %loading%'`).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("no copy runs")
		}
		return err
	})
	done := wait(24, func(n int) {
		path := fmt.Sprintf("/v1/domains/brandnew/users/u%d", n)
		answered(t, server, "PUT", path, `{"quota_day": 7}`, http.StatusCreated)
	})
	answered(t, server, "PUT", "/v1/domains/shop/blocks/tenant/acme", `{}`, http.StatusCreated)
	answered(t, server, "PUT", "/v1/domains/brandnew/blocks/user/mallory", `{}`, http.StatusCreated)
	answered(t, server, "GET", "/v1/domains/shop/users", "", http.StatusOK)
	done()
	to.Close()
	if got := <-loaded; got != http.StatusUnprocessableEntity { // a name of 5000 characters
		t.Errorf("the load answers %d, want 422", got)
	}
}

// TestAHeldLockHoldsUpItsOwnAlone holds the row of a user and that of a domain that is being made, as a long change
// would. Changes of these are refused in words of the API after a second; blocks and reads elsewhere do not wait for
// the connections that they hold.
func TestAHeldLockHoldsUpItsOwnAlone(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO users (domain, name, updated_by) VALUES ('shop', 'ann', 'test'), ('shop', 'bob', 'test')`)
	server := serving(t, d)
	conn := must.Get(d.Connect(t.Context()))(t)
	defer conn.Close(context.Background())
	must.Get(conn.Exec(t.Context(), `BEGIN; SELECT FROM users WHERE name = 'ann' FOR UPDATE;
	  INSERT INTO domains (name, created_by) VALUES ('new', 'test')`))(t)
	refused := func(method, path string) {
		got, text := asked(t, server, method, path, `{}`)
		words := strings.Contains(text, "another change") && !strings.Contains(text, "timeout")
		if got != http.StatusServiceUnavailable || !words {
			t.Errorf("%s %s: %d %s, want 503 in words of the API", method, path, got, text)
		}
	}
	done := wait(72, func(n int) {
		switch n % 3 {
		case 0:
			refused("PUT", "/v1/domains/shop/users/ann")
		case 1:
			refused("PUT", "/v1/domains/shop/blocks/user/ann")
		default:
			refused("PUT", "/v1/domains/new/users/ann")
		}
	})
	servers.Await(t, "callers that wait", func() error {
		n, err := waiting(t.Context(), d)
		if err == nil && n < 4 {
			err = fmt.Errorf("%d wait", n)
		}
		return err
	})
	answered(t, server, "PUT", "/v1/domains/shop/blocks/user/mallory", `{}`, http.StatusCreated)
	answered(t, server, "GET", "/v1/domains/shop/users", "", http.StatusOK)
	answered(t, server, "GET", "/readyz", "", http.StatusOK)
	done()
}

// TestABlockInterruptsAMerge blocks a user whom a load is merging. The merge waits for another user's row, begins again
// after the block, and leaves the user blocked.
func TestABlockInterruptsAMerge(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO users (domain, name, updated_by) VALUES ('shop', 'ann', 'test'), ('shop', 'zoe', 'test')`)
	server := serving(t, d)
	conn := must.Get(d.Connect(t.Context()))(t)
	defer conn.Close(context.Background())
	must.Get(conn.Exec(t.Context(), `BEGIN; SELECT FROM users WHERE name = 'zoe' FOR UPDATE`))(t)
	loaded := make(chan int, 1)
	go func() {
		answer, err := http.Post(server.URL+"/v1/domains/shop/users:load", "text/csv",
			strings.NewReader("name,quota_day\nann,5\nzoe,5\n"))
		if err != nil {
			t.Error(err)
			loaded <- 0
			return
		}
		answer.Body.Close()
		loaded <- answer.StatusCode
	}()
	servers.Await(t, "a merge that waits", func() error {
		n, err := waiting(t.Context(), d)
		if err == nil && n == 0 {
			err = errors.New("none waits")
		}
		return err
	})
	about := database.Subject{Domain: "shop", Kind: database.KindUser, Name: "ann"}
	_, err := d.SetBlock(t.Context(), database.Actor{Name: "test"}, about, database.BlockRequest{}, nil)
	if err != nil {
		t.Errorf("the block of a user whom a load merges: %v", err)
	}
	must.Get(conn.Exec(t.Context(), `ROLLBACK`))(t)
	if got := <-loaded; got != http.StatusOK {
		t.Errorf("the load answers %d, want 200", got)
	}
	ann, err := d.User(t.Context(), "shop", "ann")
	if err != nil || !ann.Blocked || ann.QuotaDay == nil || *ann.QuotaDay != 5 {
		t.Errorf("ann is %+v (%v), want blocked with a quota of 5 a day", ann, err)
	}
}

// TestAPublicationHoldsUpNoBlock blocks a user of a domain whose rules are being published.
func TestAPublicationHoldsUpNoBlock(t *testing.T) {
	d := migrated(t)
	server := serving(t, d)
	inside, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- pgx.BeginFunc(context.Background(), d.Tasks, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `SELECT FROM domains WHERE name = 'shop' FOR NO KEY UPDATE`)
			close(inside)
			<-leave
			return err
		})
	}()
	<-inside
	answered(t, server, "PUT", "/v1/domains/shop/blocks/user/mallory", `{}`, http.StatusCreated)
	answered(t, server, "PUT", "/v1/domains/shop/blocks/ip/192.0.2.7", `{}`, http.StatusCreated)
	close(leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
