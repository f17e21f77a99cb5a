package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOneComparisonAtATime asks for a comparison while another one runs. One whose caller has gone ends, and is not run
// later.
func TestOneComparisonAtATime(t *testing.T) {
	d := migrated(t)
	for n := range 2 {
		text := fmt.Sprintf("domain: shop\nrules:\n  - { name: a, scope: user, limit: %d/1m }\n", n+1)
		_, _, err := d.AddVersion(t.Context(), database.Actor{Name: "ann"}, "shop", text, "", false, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	api := &API{Database: d, Log: slog.New(slog.DiscardHandler)}
	ended := make(chan struct{}, 2)
	handler := api.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	t.Cleanup(server.Close)
	const path = "/v1/domains/shop/diff?from=1&to=2"
	api.comparing <- struct{}{} // one runs
	ctx, leave := context.WithCancel(t.Context())
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil))(t)
	gone := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(request)
		gone <- err
	}()
	servers.Await(t, "a request that waits", func() error {
		var n int
		err := d.Tasks.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
		  AND state = 'idle' AND query LIKE '%v.text FROM rule_versions%'`).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("it has not read the versions")
		}
		return err
	})
	select {
	case <-ended:
		t.Error("a comparison runs beside another one")
	default:
	}
	leave()
	if err := <-gone; err == nil {
		t.Error("the caller has an answer")
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a request whose caller has gone still runs")
	}
	<-api.comparing
	if status, text := asked(t, server, "GET", path, ""); status != http.StatusOK {
		t.Errorf("the comparison after it: %d %s", status, text)
	}
}
