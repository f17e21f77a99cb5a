// Package editor shows that an editor finds mistakes in a rule file: the YAML language server, which editors run,
// checks files against docs/reference/rules.schema.json.
package editor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// message is one message of the language server protocol.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
}

// finding is one line that an editor underlines.
type finding struct {
	Range struct {
		Start struct {
			Line      int `json:"line"`
			Character int `json:"character"`
		} `json:"start"`
	} `json:"range"`
	Text string `json:"message"`
}

func (f finding) String() string {
	return fmt.Sprintf("%d:%d: %s", f.Range.Start.Line+1, f.Range.Start.Character+1, f.Text)
}

// server is a running language server, as an editor sees it.
type server struct {
	in     io.Writer
	out    *bufio.Reader
	opened int // texts so far
	found  map[string][]finding
}

// start runs the language server and greets it.
func start(t *testing.T) *server {
	t.Helper()
	program := filepath.Join(servers.Root(t), ".tools", "yaml-language-server", "node_modules", "yaml-language-server",
		"bin", "yaml-language-server")
	_, err := os.Stat(program)
	if err != nil {
		t.Fatalf("the YAML language server is missing: run make tools: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "node", program, "--stdio")
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	err = cmd.Start()
	if err != nil {
		t.Fatalf("start the YAML language server: %v", err)
	}
	// A server that hangs ends the test, not the run.
	watchdog := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		watchdog.Stop()
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &server{in: in, out: bufio.NewReader(out), found: map[string][]finding{}}
	s.greet(t)
	return s
}

// greet opens the session. The server asks for the settings of the editor, which are its defaults without the list of
// schemas that it would fetch.
func (s *server) greet(t *testing.T) {
	t.Helper()
	s.send(t, message{ID: json.RawMessage("1"), Method: "initialize", Params: params(t, map[string]any{
		"processId": os.Getpid(), "rootUri": nil,
		"capabilities": map[string]any{
			"workspace": map[string]any{"configuration": true,
				"didChangeConfiguration": map[string]any{"dynamicRegistration": true}},
			"textDocument": map[string]any{"publishDiagnostics": map[string]any{}},
		},
	})})
	s.await(t, func(m message) bool { return m.Method == "" && string(m.ID) == "1" })
	s.send(t, message{Method: "initialized", Params: params(t, map[string]any{})})
	s.await(t, func(m message) bool { return m.Method == "workspace/configuration" })
}

func params(t *testing.T, value any) json.RawMessage {
	t.Helper()
	text := must.Get(json.Marshal(value))(t)
	return text
}

func (s *server) send(t *testing.T, m message) {
	t.Helper()
	m.Version = "2.0"
	text := params(t, m)
	_, err := fmt.Fprintf(s.in, "Content-Length: %d\r\n\r\n%s", len(text), text)
	if err != nil {
		t.Fatalf("write to the language server: %v", err)
	}
}

// await reads messages, answers what the server asks, and returns the first message that fits.
func (s *server) await(t *testing.T, fits func(m message) bool) message {
	t.Helper()
	for {
		m, err := s.read()
		if err != nil {
			t.Fatalf("read from the language server: %v", err)
		}
		s.answer(t, m)
		if fits(m) {
			return m
		}
	}
}

func (s *server) read() (m message, err error) {
	header, err := textproto.NewReader(s.out).ReadMIMEHeader()
	if err != nil {
		return m, err
	}
	size, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil {
		return m, errors.New("a message without its length")
	}
	text := make([]byte, size)
	_, err = io.ReadFull(s.out, text)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

// answer answers what the server asks the editor: its settings, else nothing.
func (s *server) answer(t *testing.T, m message) {
	t.Helper()
	if m.Method == "" || m.ID == nil {
		return
	}
	var asked struct {
		Items []struct {
			Section string `json:"section"`
		} `json:"items"`
	}
	if m.Method != "workspace/configuration" {
		s.send(t, message{ID: m.ID, Result: json.RawMessage("null")})
		return
	}
	must.Do(t, json.Unmarshal(m.Params, &asked))
	settings := []any{}
	for _, item := range asked.Items {
		if item.Section == "yaml" {
			settings = append(settings, map[string]any{"validate": true, "schemaStore": map[string]any{"enable": false,
				"url": ""}})
			continue
		}
		settings = append(settings, map[string]any{})
	}
	s.send(t, message{ID: m.ID, Result: settings})
}

// open opens a text as the file of that name, which need not exist, and returns what the server calls it. A name is
// opened once.
func (s *server) open(t *testing.T, file, text string) (uri string) {
	t.Helper()
	uri = "file://" + filepath.ToSlash(file)
	s.send(t, message{Method: "textDocument/didOpen", Params: params(t, map[string]any{
		"textDocument": map[string]any{"uri": uri, "languageId": "yaml", "version": 1, "text": text},
	})})
	return uri
}

// findings waits for what the server finds in an open file.
func (s *server) findings(t *testing.T, uri string) []finding {
	t.Helper()
	for {
		if found, known := s.found[uri]; known {
			return found
		}
		m := s.await(t, func(m message) bool { return m.Method == "textDocument/publishDiagnostics" })
		var found struct {
			URI      string    `json:"uri"`
			Findings []finding `json:"diagnostics"`
		}
		must.Do(t, json.Unmarshal(m.Params, &found))
		s.found[found.URI] = found.Findings
	}
}

// check returns what the server finds in each of the texts. They are in no file, but beside the example rules, from
// where the modeline finds the schema.
func (s *server) check(t *testing.T, texts ...string) (all [][]finding) {
	t.Helper()
	var opened []string
	for _, text := range texts {
		s.opened++
		opened = append(opened,
			s.open(t, filepath.Join(servers.Root(t), "examples", "rules", fmt.Sprintf("text-%d.yaml", s.opened)), text))
	}
	for _, uri := range opened {
		all = append(all, s.findings(t, uri))
	}
	return all
}
