package servers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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

// Event is what the browser sends without a call.
type Event struct {
	Method  string
	Params  json.RawMessage
	session string // of its tab
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
		missing("Chromium", "apt-get install chromium, or make tools")
	}
	commands, to := pipe(t)
	from, answers := pipe(t)
	cmd := exec.Command(bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking",
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
			c.seen = append(c.seen, Event{m.Method, m.Params, m.SessionID})
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

// await waits for an event of a tab.
func (c *Chromium) await(t testing.TB, session, method string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		came := c.came
		c.mu.Unlock()
		if slices.ContainsFunc(c.Events(method), func(e Event) bool { return e.session == session }) {
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
	err := c.try(t, session, method, params, result)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// try is call, and returns the browser's error.
func (c *Chromium) try(t testing.TB, session, method string, params, result any) error {
	t.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		return err
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
		return err
	}
	select {
	case m = <-answer:
	case <-time.After(patience):
		t.Fatalf("the browser does not answer %s", method)
	}
	if m.Error != nil {
		return errors.New(m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// Tab is one page of the browser.
type Tab struct {
	browser *Chromium
	session string
}

// Open opens a URL in a tab that reports its requests, errors and exceptions, and waits until it is loaded.
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
	c.await(t, tab.session, "Page.loadEventFired")
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
	err := p.evaluate(t, expression, to)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
}

func (p *Tab) evaluate(t testing.TB, expression string, to any) error {
	t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails json.RawMessage
	}
	err := p.browser.try(t, p.session, "Runtime.evaluate", map[string]any{"expression": expression,
		"returnByValue": true, "awaitPromise": true}, &got)
	if err != nil {
		return err
	}
	if got.ExceptionDetails != nil {
		return fmt.Errorf("it throws %s", got.ExceptionDetails)
	}
	return json.Unmarshal(got.Result.Value, to)
}

// Await waits until an expression is true in the tab, which may load another page meanwhile.
func (p *Tab) Await(t testing.TB, expression string) {
	t.Helper()
	Await(t, expression, func() error {
		var is bool
		err := p.evaluate(t, "Boolean("+expression+")", &is)
		if err == nil && !is {
			err = errors.New("it is false")
		}
		return err
	})
}

// keyCodes are what the keys that are pressed in tests have for numbers in Windows, which the browser's protocol asks
// for.
var keyCodes = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}

// Press presses a key and releases it: Tab, Enter or Escape.
func (p *Tab) Press(t testing.TB, key string) {
	t.Helper()
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": keyCodes[key]}
	if key == "Enter" {
		down["text"] = "\r"
	}
	p.Call(t, "Input.dispatchKeyEvent", down, nil)
	p.Call(t, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key,
		"windowsVirtualKeyCode": keyCodes[key]}, nil)
}

// Type types a text into what has the focus.
func (p *Tab) Type(t testing.TB, text string) {
	t.Helper()
	p.Call(t, "Input.insertText", map[string]any{"text": text}, nil)
}

// Screen emulates a screen of so many pixels, with a colour scheme: light or dark.
func (p *Tab) Screen(t testing.TB, width, height int, scheme string) {
	t.Helper()
	p.Call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": width < 600}, nil)
	p.Call(t, "Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Shot is a picture of the tab, as PNG.
func (p *Tab) Shot(t testing.TB) []byte {
	t.Helper()
	var shot struct{ Data []byte }
	p.Call(t, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	return shot.Data
}
