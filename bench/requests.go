package main

import (
	"fmt"
	"math/rand/v2"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// encode returns the requests of a case as bytes, so that the load generator only chooses among them. Request i has value i in its
// first descriptor; each further descriptor has a value of its own, drawn uniformly, or with Shared value 0.
func encode(w work, r *rand.Rand) ([]mem.BufferSlice, error) {
	all := make([]mem.BufferSlice, w.Values)
	for i := range all {
		request := &rls.RateLimitRequest{Domain: w.Domain}
		for k, key := range w.Keys {
			value := i
			switch {
			case k > 0 && w.Shared:
				value = 0
			case k > 0:
				value = r.IntN(w.Values)
			}
			entry := &common.RateLimitDescriptor_Entry{Key: key, Value: fmt.Sprintf("v%06d", value)}
			request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}})
		}
		bytes, err := proto.Marshal(request)
		if err != nil {
			return nil, err
		}
		all[i] = mem.BufferSlice{mem.SliceBuffer(bytes)}
	}
	return all, nil
}

// The codes of an answer as a whole.
const (
	admitted = uint64(rls.RateLimitResponse_OK)
	refused  = uint64(rls.RateLimitResponse_OVER_LIMIT)
)

// codeOf reads overall_code from an encoded answer and nothing else. It is 0 where there is none.
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

// codec sends encoded requests as they are and reads the code of an answer. It has the name of the usual codec, which is part of
// the content type.
type codec struct{}

// Name is part of grpc's interface.
func (codec) Name() string { return "proto" }

// Marshal takes a *mem.BufferSlice.
func (codec) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }

// Unmarshal fills a *uint64.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if len(data) == 1 {
		*v.(*uint64) = codeOf(data[0].ReadOnlyData())
		return nil
	}
	*v.(*uint64) = codeOf(data.Materialize())
	return nil
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
