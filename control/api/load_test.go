package api

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOneLoadAtATime has a load whose body does not end. Others of its domain are refused at once until it has ended;
// those of another domain are not.
func TestOneLoadAtATime(t *testing.T) {
	api := &API{Database: migrated(t), Log: slog.New(slog.DiscardHandler)}
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
	_, err := io.WriteString(to, "name\nann\n")
	if err != nil {
		t.Fatal(err)
	}
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

// endless is a body without an end: the head, and then one text again and again. It counts what was read.
type endless struct {
	head, again string
	read        int64
}

// Read reads.
func (e *endless) Read(into []byte) (int, error) {
	n := copy(into, e.head)
	e.head = e.head[n:]
	for n < len(into) {
		n += copy(into[n:], e.again)
	}
	e.read += int64(n)
	return n, nil
}

// TestABodyOfLinesHasABound sends more than a load may have.
func TestABodyOfLinesHasABound(t *testing.T) {
	endless := &endless{again: strings.Repeat("a", 1<<12)}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/domains/shop/users:load", endless)
	_, cancel := within(httptest.NewRecorder(), request, &route{lines: true})
	defer cancel()
	n, err := io.Copy(io.Discard, io.LimitReader(request.Body, loadMost+1<<20))
	var large *http.MaxBytesError
	if n > loadMost || !errors.As(err, &large) {
		t.Errorf("%d bytes of a load were read, and the error is %v", n, err)
	}
}
