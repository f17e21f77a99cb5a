package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/test/must"
)

// nasty are values that a client may send to break a log.
var nasty = map[string]string{
	"a second line":        "x\r\n{\"level\":\"info\",\"@message\":\"all is well\"}",
	"colours of terminals": "\x1b[2J\x1b[31mred\x1b[0m",
	"eight-bit commands":   "\u009b31m\u0085",
	"separators of lines":  "a\u2028b\u2029c",
	"right to left":        "\u202egnp.exe",
	"no UTF-8":             "\xff\xfe\x80abc",
	"NUL and DEL":          "a\x00b\x7fc",
	"quotes":               `" level=ERROR msg="`,
	"64 KiB":               strings.Repeat("long ", 13<<10),
	"64 KiB of controls":   strings.Repeat("\x01", 64<<10),
	"64 KiB of no UTF-8":   strings.Repeat("\xff", 64<<10),
}

// poor is a value whose text cannot be read.
type poor struct{}

func (poor) Error() string { panic("no words") }

// events are ways to put a value into a log.
var events = map[string]func(log *slog.Logger, value string){
	"message": func(log *slog.Logger, v string) { log.Info(v) },
	"value":   func(log *slog.Logger, v string) { log.Info("event", "value", v) },
	"key":     func(log *slog.Logger, v string) { log.Info("event", v, "value") },
	"error":   func(log *slog.Logger, v string) { log.Info("event", "error", errors.New(v)) },
	"panic":   func(log *slog.Logger, v string) { log.Info("event", "panic", struct{ text string }{v}, "stack", v) },
	"bytes":   func(log *slog.Logger, v string) { log.Info("event", "value", []byte(v)) },
	"group":   func(log *slog.Logger, v string) { log.Info("event", slog.Group("in", "a", v, "b", v)) },
	"with":    func(log *slog.Logger, v string) { log.With("value", v).WithGroup("g").Info("event", "more", v) },
	"all": func(log *slog.Logger, v string) {
		log.Info(v, "a", v, "b", v, "c", v, "d", v, "e", v, "error", v, "stack", v)
	},
	"hundreds": func(log *slog.Logger, v string) { log.Info("event", many(v)...) },
	"poor":     func(log *slog.Logger, v string) { log.Info(v, "error", poor{}) },
}

func many(v string) []any {
	var all []any
	for i := range 300 {
		all = append(all, fmt.Sprint("key", i), v)
	}
	return all
}

func TestOneLinePerEventWhateverItHolds(t *testing.T) {
	for kind, value := range nasty {
		for name, event := range events {
			for _, asJSON := range []bool{true, false} {
				var out bytes.Buffer
				event(NewLogger(LogConfig{Out: &out, JSON: asJSON}), value)
				line := out.String()
				if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
					t.Errorf("%s as a %s is %d lines, want 1: %.300q", kind, name, strings.Count(line, "\n"), line)
				}
				if len(line) > maxLine {
					t.Errorf("%s as a %s is a line of %d bytes, want at most %d", kind, name, len(line), maxLine)
				}
				if asJSON && !json.Valid(out.Bytes()) {
					t.Errorf("%s as a %s is no JSON: %.300q", kind, name, line)
				}
				for _, r := range strings.TrimSuffix(line, "\n") {
					if r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || strings.ContainsRune("\u2028\u2029\u202e", r) {
						t.Errorf("%s as a %s leaves %q in the line", kind, name, r)
						break
					}
				}
				if !utf8.ValidString(line) {
					t.Errorf("%s as a %s is no UTF-8", kind, name)
				}
			}
		}
	}
}

func TestWhatAClientSendsAddsNoKeysToALine(t *testing.T) {
	var out bytes.Buffer
	NewLogger(LogConfig{Out: &out, JSON: true}).Info("event", "value", nasty["a second line"])
	var line map[string]any
	must.Do(t, json.Unmarshal(out.Bytes(), &line))
	if line["@message"] != "event" || line["value"] != nasty["a second line"] || len(line) != 4 {
		t.Errorf("the line became %v", line)
	}
}

func TestValuesAreCut(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("é", 1000)
	NewLogger(LogConfig{Out: &out, JSON: true}).Info(long, "value", long, "error", long, "short", "é")
	var line map[string]string
	must.Do(t, json.Unmarshal(out.Bytes(), &line))
	for key, most := range map[string]int{"@message": maxMessage, "value": maxValue, "error": wider["error"]} {
		got := line[key]
		if len(got) > most || len(got) < most-4 || !strings.HasSuffix(got, "é…") {
			t.Errorf("%s has %d bytes and ends in %q, want at most %d and a mark", key, len(got),
				got[max(0, len(got)-8):], most)
		}
	}
	if line["short"] != "é" {
		t.Errorf("a short value became %q", line["short"])
	}
}

func secretsOf(texts ...string) *Secrets {
	s := new(Secrets)
	s.Add(texts...)
	return s
}

func TestSecretsNeverAppear(t *testing.T) {
	const secret, short = "hunter2-hunter2", "redis"
	for name, event := range events {
		for _, asJSON := range []bool{true, false} {
			var out bytes.Buffer
			event(NewLogger(LogConfig{Out: &out, JSON: asJSON, Secrets: secretsOf(secret, short, "")}),
				"dial redis://"+secret+"@host")
			if strings.Contains(out.String(), secret) {
				t.Errorf("as a %s the secret is told: %s", name, out.String())
			}
		}
	}
	var out bytes.Buffer
	NewLogger(LogConfig{Out: &out, Secrets: secretsOf(secret, short)}).Info("redis is away", "error",
		"login "+secret+" refused")
	if !strings.Contains(out.String(), `msg="redis is away" error="login *** refused"`) {
		t.Errorf("what is hidden is %s", out.String())
	}
}

func TestSecretsThatChangeStayHidden(t *testing.T) {
	s := secretsOf("the-fixed-secret")
	for i := range 3 * recentSecrets {
		s.AddRecent(fmt.Sprintf("password-number-%d", i))
	}
	text := "the-fixed-secret password-number-299 password-number-200 password-number-1"
	if got, want := s.conceal(text), "*** *** *** password-number-1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
