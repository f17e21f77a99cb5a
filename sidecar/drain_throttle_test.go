package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestThrottledWaitsAreDecidedAtTheEnd: an error would admit them, because that is what it means to Envoy.
func TestThrottledWaitsAreDecidedAtTheEnd(t *testing.T) {
	const rule = "domain: shop\nrules:\n- name: lane\n  scope: user\n  limit: { count: 1, per: %s }\n" +
		"  action: throttle\n  max_delay: 60s\n"
	s := begin(t, fmt.Sprintf(rule, "40s"))
	conn := dial(t, s.Addresses().GRPC)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked := func(user string) (*ratelimitv3.RateLimitResponse, error) {
		return ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
			Domain: "shop",
			Descriptors: []*commonv3.RateLimitDescriptor{
				{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
		})
	}
	for _, user := range []string{"grpc", "http"} {
		if answer, err := asked(user); err != nil || answer.GetOverallCode() != codeOK {
			t.Fatalf("the first request of %s: %v, %v", user, answer, err)
		}
	}
	var held sync.WaitGroup
	held.Go(func() {
		answer, err := asked("grpc")
		if err != nil || answer.GetOverallCode() != codeOver || len(answer.GetStatuses()) != 1 ||
			answer.GetStatuses()[0].GetCode() != codeOver {
			t.Errorf("a held call gets %v, %v, want OVER_LIMIT", answer, err)
		}
	})
	held.Go(func() {
		body := `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"http"}]}]}`
		client := browser()
		answer, err := client.Post("http://"+s.Addresses().HTTP+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Errorf("a held call over HTTP: %v", err)
			return
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a held call over HTTP gets %d, want 429", answer.StatusCode)
		}
	})
	servers.Await(t, "two held answers", func() error {
		if got := s.counts.engine.Stats().Waiting; got != 2 {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
	s.stop()
	held.Wait()
	<-s.done
	if s.logs("cutting them off") == nil || s.logs("was cut off") == nil {
		t.Errorf("calls were cut:\n%s", s.log)
	}
}
