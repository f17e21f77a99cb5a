package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// put sends a new level to the debug port.
func put(t *testing.T, address, level string) (int, string) {
	t.Helper()
	client := browser()
	r := must.Get(http.NewRequest(http.MethodPut, "http://"+address+"/loglevel", strings.NewReader(level)))(t)
	answer := must.Get(client.Do(r))(t)
	defer answer.Body.Close()
	body := must.Get(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(body)
}

func TestTheLevelChangesWhileItRuns(t *testing.T) {
	s := begin(t, twoPerYear)
	debug := s.Addresses().Debug
	expectPage(t, debug, "/loglevel", 200, "info\n")
	shows := func(name string) bool {
		s.reports.log.Debug(name)
		return s.logs(name) == nil
	}
	if shows("before") {
		t.Error("level info shows what is for debug")
	}
	for _, step := range []struct {
		put   string
		code  int
		after string
		shows bool
	}{
		{"DEBUG", 200, "debug", true}, {"loud", 400, "debug", true}, {"error", 200, "error", false},
		{"trace", 200, "trace", true},
	} {
		code, _ := put(t, debug, step.put)
		if code != step.code {
			t.Errorf("PUT %s = %d, want %d", step.put, code, step.code)
		}
		expectPage(t, debug, "/loglevel", 200, step.after+"\n")
		if got := shows("after " + step.put); got != step.shows {
			t.Errorf("after %s, lines for debug show: %v, want %v", step.put, got, step.shows)
		}
		s.awaitLog(t, `msg="the level of the log was changed" to=`+step.after)
	}
}

func TestDecisionsAreLoggedOnDemand(t *testing.T) {
	for which, want := range map[string][2]int{"off": {0, 0}, "refused": {0, 1}, "all": {3, 1}} {
		t.Run(which, func(t *testing.T) {
			s := begin(t, twoPerYear, "LOG_DECISIONS="+which)
			expectCodes(t, dial(t, s.Addresses().GRPC), "alice-in-person", codeOK, codeOK, codeOver)
			sendJSON(t, s, "shop", "user", "bob-in-person", "")
			s.halt(t)
			text := s.log.String()
			allowed := strings.Count(text, " outcome=allowed status=200 took_us=")
			refused := strings.Count(text, "msg=decision door=rls domain=shop rule=user scope=descriptor "+
				"outcome=refused status=429 took_us=")
			if allowed != want[0] || refused != want[1] {
				t.Errorf("%d admissions and %d refusals are logged, want %d and %d", allowed, refused, want[0], want[1])
			}
			if which == "all" && !strings.Contains(text, "msg=decision door=json domain=shop") {
				t.Error("no line has the decision over HTTP")
			}
			if strings.Contains(text, "in-person") {
				t.Error("the log names a client")
			}
		})
	}
}

func TestADecisionOverHTTPBelongsToItsCallersTrace(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+servers.FreeAddr(t)) // not the machine's collector
	s := begin(t, twoPerYear, "LOG_DECISIONS=all", "TRACING_ENABLED=true")
	const body = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+s.Addresses().HTTP+"/json", strings.NewReader(body)))(t)
	r.Header.Set("b3", "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1")
	client := browser()
	answer := must.Get(client.Do(r))(t)
	answer.Body.Close()
	servers.Await(t, "the decision in the log", func() error { return s.logs("msg=decision door=json") })
	err := s.logs("trace_id=0af7651916cd43dd8448eb211c80319c")
	if err != nil {
		t.Error(err)
	}
}

// lines fails unless each line of a log is one JSON object with a message, of 4 KiB at most.
func (r *running) lines(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var object map[string]any
		err := json.Unmarshal([]byte(line), &object)
		if err != nil || object["@message"] == nil || object["level"] == nil || len(line) > 4096 {
			t.Errorf("a line of %d bytes is no event (%v): %.200q", len(line), err, line)
		}
		all = append(all, object)
	}
	return all
}

// hostile are values that would break a log that believes them.
var hostile = []string{
	"\r\n{\"level\":\"error\",\"@message\":\"forged\"}\r\n", "\x1b[2J\u009b31m", "a\u2028b\u2029c", "\u202e",
	"\x00\x7f",
	strings.Repeat("\n", 64<<10), strings.Repeat("x", 64<<10),
}

func TestClientsWriteNoLinesIntoTheLog(t *testing.T) {
	store := new(scripted)
	s := beginWith(t, store, twoPerYear, "LOG_FORMAT=json", "LOG_LEVEL=trace", "LOG_DECISIONS=all")
	for _, value := range hostile {
		store.do(func() { panic(errors.New("while counting " + value)) })
		body := must.Get(json.Marshal(value))(t)
		post(t, s.Addresses().HTTP, fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":"user",`+
			`"value":%s}]}]}`, body))
		post(t, s.Addresses().HTTP, fmt.Sprintf(`{"domain":%s,"descriptors":[{"entries":[{"key":%[1]s,"value":%[1]s}`+
			`]}]}`, body))
		s.reports.observer.StoreFailed("error", errors.New(value))
		s.reports.log.Info("event", "value", value)
	}
	s.halt(t)
	events := map[string]int{}
	for _, line := range s.lines(t) {
		events[line["@message"].(string)]++
	}
	if events["forged"] > 0 || events["decision"] != 2*len(hostile) || events["panic, recovered"] != 1 ||
		events["event"] != len(hostile) {
		t.Errorf("the log holds %v, want %d decisions, one panic and nothing forged", events, 2*len(hostile))
	}
}

func TestPanicsAndErrorsTellNoSecrets(t *testing.T) {
	secrets := []string{"canary-url-password", "canary-auth-password", "canary-key-secret", "canary-header-value",
		"canary-sentinel"}
	for _, format := range []string{"json", "text"} {
		store := new(scripted)
		s := beginWith(t, store, twoPerYear, "LOG_FORMAT="+format,
			"REDIS_URL=redis://user:"+secrets[0]+"@127.0.0.1:1", "REDIS_AUTH=user:"+secrets[1],
			"KEY_SECRET="+secrets[2],
			"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20"+secrets[3], "REDIS_SENTINEL_AUTH="+secrets[4])
		all := strings.Join(secrets, " ")
		store.do(func() { panic(errors.New("login with " + all)) })
		sendJSON(t, s, "shop", "user", "alice", "")
		s.reports.observer.StoreFailed("error", fmt.Errorf("dial redis://user:%s@host", all))
		servers.Await(t, "the panic in the log", func() error { return s.logs("panic, recovered") })
		if err := s.logs("login with *** *** *** *** ***"); err != nil {
			t.Error(err)
		}
		for _, secret := range secrets {
			if s.logs(secret) == nil {
				t.Errorf("the log in %s tells %s:\n%s", format, secret, s.log)
			}
		}
	}
}

func TestPasswordsInFilesStayOutOfTheLog(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{}
	var environ []string
	for _, name := range []string{"REDIS_AUTH_FILE", "REDIS_SENTINEL_AUTH_FILE", "REDIS_PERSECOND_AUTH_FILE",
		"REDIS_PERSECOND_SENTINEL_AUTH_FILE"} {
		files[name] = filepath.Join(folder, name)
		write(t, files[name], "user:canary-of-"+name+"\n")
		environ = append(environ, name+"="+files[name])
	}
	s := begin(t, twoPerYear, append(environ, "REDIS_TYPE=sentinel", "REDIS_URL=m,127.0.0.1:1", "REDIS_PERSECOND=true",
		"REDIS_PERSECOND_URL=127.0.0.1:1")...)
	for name := range files {
		s.reports.loadLog.Error("of "+name, "error", errors.New("login with canary-of-"+name))
		if s.logs("canary-of-"+name) == nil {
			t.Errorf("the log shows the password of %s:\n%s", name, s.log)
		}
	}
	if got := strings.Count(s.log.String(), "login with ***"); got != len(files) {
		t.Errorf("%d lines hide a password, want %d:\n%s", got, len(files), s.log)
	}
}
