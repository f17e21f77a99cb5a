package control

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// FuzzUserLines reads lines as CSV and as JSON: it ends, names what is wrong by its line, and hands on nothing that the database refuses.
func FuzzUserLines(f *testing.F) {
	for _, text := range []string{
		"name,tier,quota_hour\nann,gold,5\n\"b, c\",,\n", "name\n\"open", "tier\n", "name,name\n", "name,burst\na,1\n",
		`{"name": "ann", "quota_day": 5}` + "\n\n" + `{"name": ""}` + "\n{", `{"name": "a", "tier": null}`, "{\"name\": \"a\\u0000\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, next := range []func() (int64, userLine, error){csvLines(bytes.NewReader(text)), jsonLines(bytes.NewReader(text))} {
			lines, most := &userLines{next: next}, int64(bytes.Count(text, []byte("\n")))+1
			for lines.Next() {
				row, err := lines.Values()
				name, _ := row[1].(string)
				if err != nil || name == "" || strings.ContainsRune(name, 0) || lines.line < 1 || lines.line > most {
					t.Fatalf("%q: the row %v of line %d (%v)", text, row, lines.line, err)
				}
			}
			if lines.read+lines.count > most {
				t.Errorf("%q: %d lines are right and %d wrong, of %d", text, lines.read, lines.count, most)
			}
			if (lines.count > 0) != (lines.problem() != nil) {
				t.Errorf("%q: %d lines are wrong, and the problem is %v", text, lines.count, lines.problem())
			}
		}
	})
}

// TestABodyThatEndsEarlyIsAnError keeps a load from taking the first half of a file.
func TestABodyThatEndsEarlyIsAnError(t *testing.T) {
	for _, next := range []func() (int64, userLine, error){
		csvLines(io.MultiReader(strings.NewReader("name\nann\n"), broken{})),
		jsonLines(io.MultiReader(strings.NewReader("{\"name\": \"ann\"}\n"), broken{})),
	} {
		lines := &userLines{next: next}
		for lines.Next() {
			t.Logf("read %s", lines.user.Name)
		}
		if lines.Err() != io.ErrUnexpectedEOF {
			t.Errorf("it ends with %v", lines.Err())
		}
	}
}

// broken is a connection that is lost.
type broken struct{}

// Read fails.
func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestOneLoadAtATime has a load whose body does not end. Others are refused at once, so that connections are left for all other requests, until it has ended.
func TestOneLoadAtATime(t *testing.T) {
	api := &API{Database: migrated(t), Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	load := func(body io.Reader) int {
		answer, err := http.Post(server.URL+"/v1/domains/shop/users:load", "text/csv", body)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	body, to := io.Pipe()
	first := make(chan int, 1)
	go func() { first <- load(body) }()
	_, err := io.WriteString(to, "name\nann\n")
	if err != nil {
		t.Fatal(err)
	}
	servers.Await(t, "the first load", func() error {
		if !api.loading.Load() {
			return errors.New("it has not begun")
		}
		return nil
	})
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
