package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// status is the sidecar's answer about one descriptor over /json.
type status struct {
	Code           string `json:"code"`
	LimitRemaining int64  `json:"limitRemaining"`
}

// peek asks the sidecar itself, past Envoy, how much a descriptor has left. Entries come in pairs of key and value.
func (w *world) peek(t testing.TB, domain string, entries ...string) status {
	t.Helper()
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	var list []entry
	for i := 0; i+1 < len(entries); i += 2 {
		list = append(list, entry{entries[i], entries[i+1]})
	}
	body, err := json.Marshal(map[string]any{"domain": domain,
		"descriptors": []any{map[string]any{"entries": list, "hitsAddend": 0}}})
	if err != nil {
		t.Fatalf("write the question: %v", err)
	}
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+w.sidecar.HTTP+"/json", bytes.NewReader(body)))(t)
	got, err := do(http.DefaultClient, r)
	if err != nil {
		t.Fatalf("ask the sidecar over /json: %v", err)
	}
	var reply struct {
		Statuses []status `json:"statuses"`
	}
	err = json.Unmarshal([]byte(got.body), &reply)
	if err == nil && len(reply.Statuses) != 1 {
		err = fmt.Errorf("%d statuses for one descriptor", len(reply.Statuses))
	}
	if err != nil {
		t.Fatalf("read the sidecar's answer %q: %v", got.body, err)
	}
	return reply.Statuses[0]
}
