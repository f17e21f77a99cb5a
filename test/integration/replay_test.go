package integration

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/servers"
	"github.com/spillway-mesh/spillway/whatif/replay"
)

// replayRules count over a day, so that what a test takes does not matter.
const replayRules = `domain: api
identity: { client_ip: { trusted_hops: 1 } }
rules:
  - { name: per-address, scope: ip, limit: { count: 14, per: 24h, algorithm: sliding_log } }
  - { name: search, scope: [ip, endpoint], match: { endpoints: ["/search", "/v*/search/**"], methods: [GET] },
      limit: { count: 2, per: 24h, algorithm: sliding_log } }
  - { name: retired, match: { endpoints: ["/v0/**"] }, action: block }
  - { name: assets, match: { endpoints: ["/assets/**"] }, action: allow }
`

// exampleFormat is the log's format in the example, and the others replace it.
const (
	exampleFormat = `              log_format:
                text_format_source:
                  inline_string: "%REQ(:METHOD)% %PATH% %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%RESPONSE_CODE_DETAILS% %GRPC_STATUS_NUMBER% %DYNAMIC_METADATA(envoy.filters.http.ext_authz)%\n"
`
	jsonFormat = `              log_format:
                json_format:
                  start_time: "%START_TIME%"
                  method: "%REQ(:METHOD)%"
                  path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
                  authority: "%REQ(:AUTHORITY)%"
                  x_forwarded_for: "%REQ(X-FORWARDED-FOR)%"
                  user_agent: "%REQ(USER-AGENT)%"
                  response_code: "%RESPONSE_CODE%"
                  downstream_remote_address: "%DOWNSTREAM_REMOTE_ADDRESS%"
`
)

// TestReplaySaysWhatTheSidecarDid sends requests through Envoy to a sidecar, and replays the log that Envoy wrote: the
// same requests are refused, in Envoy's own text format and in JSON.
func TestReplaySaysWhatTheSidecarDid(t *testing.T) {
	for name, format := range map[string]string{"text": "", "json": jsonFormat} {
		t.Run(name, func(t *testing.T) {
			w := startAuthz(t, authzSetup{memory: true, rules: map[string]string{"authz.yaml": replayRules},
				swaps: [][2]string{{exampleFormat, format}}})
			want := []string{}
			requests := 0
			for range 3 {
				for _, path := range []string{"/search", "/search;x", "/v2/search/a", "/v2//search/a", "/%73earch",
					"/v0/orders", "/assets/a.png", "/other"} {
					requests++
					number := fmt.Sprintf("n=%d", requests) // Envoy changes the path, and not the query
					method := http.MethodGet
					if requests%7 == 0 {
						method = http.MethodPost
					}
					got := w.send(t, method, path+"?"+number, "user-agent", `a "b" "c" d`, "x-forwarded-for",
						"198.51.100.9, 203.0.113.1")
					if got.status == http.StatusTooManyRequests || got.status == http.StatusForbidden {
						want = append(want, method+" "+number)
					}
				}
			}
			if len(want) < 5 || len(want) > requests-8 {
				t.Fatalf("%d of %d requests were refused: the test compares little", len(want), requests)
			}
			got := []string{}
			var report *replay.Report
			servers.Await(t, "the lines of Envoy's log", func() (err error) {
				w.envoy.FlushLogs(t)
				got = got[:0]
				report, err = replay.Run(replay.Config{
					Logs: []string{w.log}, Rules: []string{filepath.Join(w.rules, "authz.yaml")},
					OnRefusal: func(r replay.Refusal) error {
						_, number, _ := strings.Cut(r.Path, "?")
						got = append(got, r.Method+" "+number)
						return nil
					},
				})
				if err == nil && report.Log.Lines < int64(requests) {
					err = errShortLog
				}
				return err
			})
			if report.Log.Broken != 0 || report.Log.Requests != int64(requests) {
				t.Errorf("of %d requests the log has %d, and %d broken lines: %v", requests, report.Log.Requests,
					report.Log.Broken, report.Log.Samples)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the sidecar refused (-), and the replay (+):\n%s", diff)
			}
		})
	}
}

var errShortLog = errors.New("the log has fewer lines than there were requests")
