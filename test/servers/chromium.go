package servers

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// patience is how long a browser may take for one answer: only one that hangs takes as long.
const patience = 2 * time.Minute

// Chromium is a browser without a window, driven over its protocol: messages of JSON on a pair of pipes.
type Chromium struct {
	to   io.Writer
	mu   sync.Mutex // guards all below
	next int
	wait map[int]chan message
	seen []Event
	came chan struct{} // closed and replaced when an event comes
}

// Event is what the browser tells unasked.
type Event struct {
	Method string
	Params json.RawMessage
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// StartChromium starts a browser, which ends with the test.
func StartChromium(t testing.TB) *Chromium {
	t.Helper()
	bin, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("chromium is missing: run make tools: %v", err)
	}
	commands, to := pipe(t)
	from, answers := pipe(t)
	cmd := exec.Command(bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{commands, answers} // the browser reads from 3 and writes to 4
	Start(t, cmd)
	commands.Close()
	answers.Close()
	c := &Chromium{to: to, wait: map[int]chan message{}, came: make(chan struct{})}
	go c.listen(from)
	return c
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// listen takes in what the browser writes, until it ends.
func (c *Chromium) listen(from io.Reader) {
	messages := bufio.NewReader(from)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		if answer := c.wait[m.ID]; m.ID > 0 && answer != nil {
			answer <- m
			delete(c.wait, m.ID)
		} else {
			c.seen = append(c.seen, Event{m.Method, m.Params})
			close(c.came)
			c.came = make(chan struct{})
		}
		c.mu.Unlock()
	}
}

// Events are those of a method so far.
func (c *Chromium) Events(method string) (all []Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.seen {
		if e.Method == method {
			all = append(all, e)
		}
	}
	return all
}

// Await waits for an event.
func (c *Chromium) Await(t testing.TB, method string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		came := c.came
		c.mu.Unlock()
		if len(c.Events(method)) > 0 {
			return
		}
		select {
		case <-came:
		case <-deadline:
			t.Fatalf("the browser does not tell %s", method)
		}
	}
}

// call sends a command to the browser, or to a tab, and reads its result.
func (c *Chromium) call(t testing.TB, session, method string, params, result any) {
	t.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan message, 1)
	c.mu.Lock()
	c.next++
	m := message{ID: c.next, Method: method, Params: text, SessionID: session}
	c.wait[m.ID] = answer
	c.mu.Unlock()
	text, err = json.Marshal(m)
	if err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	select {
	case m = <-answer:
	case <-time.After(patience):
		t.Fatalf("the browser does not answer %s", method)
	}
	if m.Error != nil {
		t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return
	}
	err = json.Unmarshal(m.Result, result)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// Tab is one page of the browser.
type Tab struct {
	browser *Chromium
	session string
}

// Open opens a URL in a tab that tells of its requests, errors and exceptions, and waits until it is loaded.
func (c *Chromium) Open(t testing.TB, url string) *Tab {
	t.Helper()
	var target struct{ TargetID string }
	c.call(t, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	tab := &Tab{browser: c}
	var attached struct{ SessionID string }
	c.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	tab.session = attached.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		tab.Call(t, domain+".enable", map[string]any{}, nil)
	}
	tab.Call(t, "Page.navigate", map[string]any{"url": url}, nil)
	c.Await(t, "Page.loadEventFired")
	return tab
}

// Call sends a command to the tab.
func (p *Tab) Call(t testing.TB, method string, params, result any) {
	t.Helper()
	p.browser.call(t, p.session, method, params, result)
}

// Evaluate runs an expression in the tab and reads its value.
func (p *Tab) Evaluate(t testing.TB, expression string, to any) {
	t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails json.RawMessage
	}
	p.Call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	err := json.Unmarshal(got.Result.Value, to)
	if err != nil {
		t.Fatalf("%s is %s: %v", expression, got.Result.Value, err)
	}
}
