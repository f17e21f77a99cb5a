package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOneLoadAtATime has a load whose body does not end. Others of its domain are refused at once until it has ended;
// those of another domain are not.
func TestOneLoadAtATime(t *testing.T) {
	api := apiOf(t, migrated(t))
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	loadInto := func(domain string, body io.Reader) int {
		answer, err := http.Post(server.URL+"/v1/domains/"+domain+"/users:load", "text/csv", body)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	load := func(body io.Reader) int { return loadInto("shop", body) }
	body, to := io.Pipe()
	first := make(chan int, 1)
	go func() { first <- load(body) }()
	must.Get(io.WriteString(to, "name\nann\n"))(t)
	servers.Await(t, "the first load", func() error {
		err := api.loads.begin("shop")
		if err == nil {
			api.loads.end("shop")
			return errors.New("it has not begun")
		}
		return nil
	})
	if got := loadInto("books", strings.NewReader("name\nbob\n")); got != http.StatusOK {
		t.Errorf("a load of another domain answers %d, want 200", got)
	}
	if got := load(strings.NewReader("name\nbob\n")); got != http.StatusServiceUnavailable {
		t.Errorf("a second load answers %d, want 503", got)
	}
	to.Close()
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first load answers %d, want 200", got)
	}
	if got := load(strings.NewReader("name\nbob\n")); got != http.StatusOK {
		t.Errorf("a load after it answers %d, want 200", got)
	}
}
