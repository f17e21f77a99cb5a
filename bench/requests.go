package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// encode returns the requests of a case as bytes, so that the load generator only chooses among them. Request i has
// value i in its first descriptor; each further descriptor has a value of its own, drawn uniformly, or with Shared
// value 0. To fill, it has value i too, so that all values are met. The values of a request about new counters are
// blank.
func encode(w work, fill bool, r *rand.Rand) ([][]byte, error) {
	all := make([][]byte, w.Values)
	for i := range all {
		request := &rls.RateLimitRequest{Domain: w.Domain}
		for k, key := range w.Keys {
			value := i
			switch {
			case k > 0 && w.Shared:
				value = 0
			case k > 0 && !fill:
				value = r.IntN(w.Values)
			}
			text := fmt.Sprintf("v%06d", value)
			if w.New {
				text = blank
			}
			entry := &common.RateLimitDescriptor_Entry{Key: key, Value: text}
			request.Descriptors = append(request.Descriptors,
				&common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}})
		}
		var err error
		all[i], err = proto.Marshal(request)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// blank is each value of a request about new counters, until it gets a number.
const blank = "v000000000000000"

// numbered returns a function that gives the values of a request a new number each time. Rounds and connections have
// numbers of their own.
func numbered(request []byte, seed uint64, connection int) func() []byte {
	const connections, calls = 64, 100_000_000
	request, n := slices.Clone(request), (seed*connections+uint64(connection))*calls
	var places []int
	for at := 0; ; {
		i := bytes.Index(request[at:], []byte(blank))
		if i < 0 {
			break
		}
		places = append(places, at+i)
		at += i + len(blank)
	}
	return func() []byte {
		n++
		value := fmt.Appendf(nil, "v%0*d", len(blank)-1, n)
		for _, at := range places {
			copy(request[at:], value)
		}
		return request
	}
}

// The codes of an answer as a whole.
const (
	admitted = uint64(rls.RateLimitResponse_OK)
	refused  = uint64(rls.RateLimitResponse_OVER_LIMIT)
)

// codeOf reads overall_code from an encoded answer and nothing else. It is 0 if the answer lacks one.
func codeOf(answer []byte) uint64 {
	for len(answer) > 0 {
		number, kind, n := protowire.ConsumeTag(answer)
		if n < 0 {
			return 0
		}
		answer = answer[n:]
		if number == 1 && kind == protowire.VarintType {
			code, n := protowire.ConsumeVarint(answer)
			if n < 0 {
				return 0
			}
			return code
		}
		n = protowire.ConsumeFieldValue(number, kind, answer)
		if n < 0 {
			return 0
		}
		answer = answer[n:]
	}
	return 0
}

// draws returns a function that chooses the next request of a case.
func draws(w work, r *rand.Rand) func() int {
	switch {
	case w.Values == 1:
		return func() int { return 0 }
	case w.Zipf > 0:
		z := rand.NewZipf(r, w.Zipf, 1, uint64(w.Values-1))
		return func() int { return int(z.Uint64()) }
	}
	return func() int { return r.IntN(w.Values) }
}
