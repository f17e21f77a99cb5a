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

	"github.com/spillway-mesh/spillway/admin"
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

// TestALineHasABound sends lines without an end in both formats: bare, quoted with line breaks in them, and as the
// names of the columns.
func TestALineHasABound(t *testing.T) {
	for what, body := range map[string]*endless{
		"CSV, a field":                  {head: "name\nann\n", again: "a"},
		"CSV, a field in quotes":        {head: "name\nann\n\"", again: "a\n"},
		"CSV, quotes in quotes":         {head: "name\nann\n\"", again: "\"\"\n"},
		"CSV, the names of the columns": {again: "a,"},
		"JSON":                          {head: `{"name": "`, again: "a"},
	} {
		next := csvLines(body)
		if what == "JSON" {
			next = jsonLines(body)
		}
		lines := &userLines{next: next}
		for body.read < 1<<20 && lines.Next() {
			t.Logf("%s: read %q", what, lines.user.Name)
		}
		if lines.Err() == nil || !strings.Contains(lines.Err().Error(), "65536 bytes") || body.read > 4*lineMost {
			t.Errorf("%s: %d bytes were read, and the error is %v", what, body.read, lines.Err())
		}
	}
}

// TestALineOfTheMostBytes takes lines up to the bound, and names the line that is longer by one byte.
func TestALineOfTheMostBytes(t *testing.T) {
	quoted := func(n int) string { return "name,tier\n\"ann\n\"," + strings.Repeat("x", n-len("\"ann\n\",\n")) + "\n" }
	for n, want := range map[int]string{lineMost: "", lineMost + 1: "line 2 has more than 65536 bytes"} {
		next := csvLines(strings.NewReader(quoted(n)))
		_, _, err := next()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a line of %d bytes: %v, want %q", n, err, want)
		}
	}
}

// TestALoadTakesNamesThatPathsTake refuses a user that no other route could change, block or erase.
func TestALoadTakesNamesThatPathsTake(t *testing.T) {
	for name, taken := range map[string]bool{strings.Repeat("é", 512): true, strings.Repeat("é", 512) + "a": false} {
		lines := &userLines{next: csvLines(strings.NewReader("name\n" + name + "\n"))}
		if lines.Next() != taken || (lines.problem() == nil) != taken {
			t.Errorf("a name of %d bytes is taken: %v (%v), want %v", len(name), !taken, lines.problem(), taken)
		}
	}
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
	lines := &userLines{next: csvLines(io.MultiReader(strings.NewReader("name\n"), tooLarge{}))}
	for lines.Next() {
		t.Log("a line")
	}
	var problem *admin.Problem
	if !errors.As(bodyProblem(lines.Err()), &problem) || problem.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large is answered by %v", problem)
	}
}

// tooLarge is the rest of a body that has more than it may have.
type tooLarge struct{}

// Read fails.
func (tooLarge) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: loadMost} }
