package main

import (
	"math"
	"math/rand/v2"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-mesh/spillway/test/must"
)

func decode(t *testing.T, bytes []byte) *rls.RateLimitRequest {
	t.Helper()
	var request rls.RateLimitRequest
	must.Do(t, proto.Unmarshal(bytes, &request))
	return &request
}

func TestRequestsHaveTheDescriptorsOfTheirCase(t *testing.T) {
	w := work{Domain: "d", Keys: []string{"a", "b"}, Values: 1000}
	all := must.Get(encode(w, false, rand.New(rand.NewPCG(1, 2))))(t)
	first, second := map[string]bool{}, map[string]bool{}
	for _, bytes := range all {
		request := decode(t, bytes)
		if request.Domain != "d" || len(request.Descriptors) != 2 || request.Descriptors[0].Entries[0].Key != "a" ||
			request.Descriptors[1].Entries[0].Key != "b" {
			t.Fatalf("a request is %v", request)
		}
		first[request.Descriptors[0].Entries[0].Value] = true
		second[request.Descriptors[1].Entries[0].Value] = true
	}
	if len(first) != 1000 {
		t.Errorf("%d of 1000 requests have a first value of their own", len(first))
	}
	// 1000 draws of 1000 leave out a share of 1/e on average.
	if len(second) < 500 || len(second) > 750 {
		t.Errorf("the second descriptors have %d values, want about 632", len(second))
	}
}

func TestRequestsAboutNewCountersAreNumbered(t *testing.T) {
	all, err := encode(work{Domain: "d", Keys: []string{"a", "b", "c"}, Values: 1, New: true}, false,
		rand.New(rand.NewPCG(1, 2)))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	seen := map[string]bool{}
	for seed := range uint64(3) {
		for connection := range 4 {
			next := numbered(all[0], seed+1, connection)
			for range 100 {
				descriptors := decode(t, next()).Descriptors
				value := descriptors[0].Entries[0].Value
				if len(descriptors) != 3 || len(value) != len(blank) || seen[value] ||
					descriptors[1].Entries[0].Value != value || descriptors[2].Entries[0].Value != value {
					t.Fatalf("a request of round %d is %v", seed+1, descriptors)
				}
				seen[value] = true
			}
		}
	}
}

func TestSharedDescriptorsHaveOneValue(t *testing.T) {
	all := must.Get(encode(work{Domain: "d", Keys: []string{"a", "b", "c"}, Values: 100, Shared: true}, false,
		rand.New(rand.NewPCG(1, 2))))(t)
	values := map[string]map[string]bool{"a": {}, "b": {}, "c": {}}
	for _, bytes := range all {
		for _, d := range decode(t, bytes).Descriptors {
			values[d.Entries[0].Key][d.Entries[0].Value] = true
		}
	}
	if len(values["a"]) != 100 || len(values["b"]) != 1 || len(values["c"]) != 1 {
		t.Errorf("the descriptors have %d, %d and %d values, want 100, 1 and 1", len(values["a"]), len(values["b"]),
			len(values["c"]))
	}
}

func TestUniformDrawReachesEveryRequestAlike(t *testing.T) {
	const n, draw = 100, 100_000
	next := draws(work{Values: n}, rand.New(rand.NewPCG(1, 2)))
	var seen [n]int
	for range draw {
		seen[next()]++
	}
	for i, count := range seen {
		if math.Abs(float64(count)-draw/n) > 200 {
			t.Errorf("request %d was drawn %d times, want about %d", i, count, draw/n)
		}
	}
}

func TestZipfDrawFollowsItsLaw(t *testing.T) {
	const n, draw, exponent = 1000, 200_000, 1.1
	next := draws(work{Values: n, Zipf: exponent}, rand.New(rand.NewPCG(1, 2)))
	var seen [n]int
	for range draw {
		seen[next()]++
	}
	sum := 0.0
	for rank := 1; rank <= n; rank++ {
		sum += math.Pow(float64(rank), -exponent)
	}
	for _, rank := range []int{1, 2, 3, 10, 100} {
		want := draw * math.Pow(float64(rank), -exponent) / sum
		if got := float64(seen[rank-1]); math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("rank %d was drawn %v times, want about %.0f", rank, got, want)
		}
	}
}

func TestOneKeyIsDrawnAlone(t *testing.T) {
	next := draws(work{Values: 1}, rand.New(rand.NewPCG(1, 2)))
	for range 10 {
		if got := next(); got != 0 {
			t.Fatalf("drew %d", got)
		}
	}
}

func TestCodeOfAnAnswer(t *testing.T) {
	status := []*rls.RateLimitResponse_DescriptorStatus{{Code: rls.RateLimitResponse_OVER_LIMIT}}
	for want, answer := range map[uint64]*rls.RateLimitResponse{
		admitted: {OverallCode: rls.RateLimitResponse_OK, Statuses: status},
		refused:  {OverallCode: rls.RateLimitResponse_OVER_LIMIT, Statuses: status},
		0:        {Statuses: status},
	} {
		bytes := must.Get(proto.Marshal(answer))(t)
		// The fields may come in another order.
		turned := append(append([]byte{}, bytes[2:]...), bytes[:2]...)
		if want == 0 {
			turned = bytes
		}
		for _, data := range [][]byte{bytes, turned} {
			if code := codeOf(data); code != want {
				t.Errorf("%v is read as %d, want %d", answer, code, want)
			}
		}
	}
	if got := codeOf([]byte{0x08}); got != 0 {
		t.Errorf("a torn answer is read as %d", got)
	}
}
