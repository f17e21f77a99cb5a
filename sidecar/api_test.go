package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// fewPerHour are rules that hardly refuse a user.
const fewPerHour = `
domain: shop
rules:
  - {name: each, scope: user, limit: 1000/1h}
`

// call sends a request to the API of a sidecar and returns the status and the answer.
func (r *running) call(t testing.TB, method, path string, body any, headers ...string) (int, map[string]any) {
	t.Helper()
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Addresses().Debug+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	var document map[string]any
	err = json.NewDecoder(answer.Body).Decode(&document)
	if err != nil {
		t.Fatalf("%s %s: %d, and the answer is not JSON: %v", method, path, answer.StatusCode, err)
	}
	return answer.StatusCode, document
}

// operate sends a change, which must be taken.
func (r *running) operate(t testing.TB, path string, body any) map[string]any {
	t.Helper()
	status, answer := r.call(t, "POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s %v = %d %v", path, body, status, answer)
	}
	return answer
}

type fields = map[string]any

func TestABlockStopsAClientOnEverySidecar(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_BUDGET=1s"}
	one, other := begin(t, fewPerHour, environ...), begin(t, fewPerHour, environ...)
	conns := []*running{one, other}
	for _, s := range conns {
		expectCodes(t, dial(t, s.Addresses().GRPC), "mallory", codeOK)
	}
	one.operate(t, "/v1/block", fields{"user": "mallory", "reason": "Contact support."})
	for i, s := range conns {
		conn := dial(t, s.Addresses().GRPC)
		servers.Await(t, fmt.Sprintf("the block on sidecar %d", i), func() error {
			code, err := ask(conn, "mallory")
			if err == nil && code != codeOver {
				err = fmt.Errorf("mallory gets %v", code)
			}
			return err
		})
		expectCodes(t, conn, "alice", codeOK)
	}
	other.operate(t, "/v1/unblock", fields{"user": "mallory"})
	for i, s := range conns {
		conn := dial(t, s.Addresses().GRPC)
		servers.Await(t, fmt.Sprintf("the end of the block on sidecar %d", i), func() error {
			code, err := ask(conn, "mallory")
			if err == nil && code != codeOK {
				err = fmt.Errorf("mallory gets %v", code)
			}
			return err
		})
	}
}
