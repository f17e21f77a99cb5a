package rlsvc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
)

// JSON returns the handler for /json: a RateLimitRequest as JSON in, the RateLimitResponse as JSON out, with 200 when
// admitted and 429 when refused. As in the reference server the method does not matter, and a body that cannot be
// decoded is answered with 400 and the bare status text. One that brings more than a message may is refused.
func (s *Service) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := door.Share{Intake: s.config.Intake}
		request, err := readJSON(w, r, &share)
		excess := share.Excess
		share.End()
		if err != nil {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		body, status, err := s.answerJSON(r.Context(), request, excess)
		if err != nil {
			s.config.OnPanic(err)
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client is gone
	})
}

// jsonName is what metrics, logs and traces call this door.
const jsonName = "json"

// objectBytes is what an object of a body takes as a message, and as the bytes of one.
const objectBytes = 256

// readJSON reads the body into wire bytes. If the body brings too much, the share's Excess is set, and the wire bytes
// are empty.
func readJSON(w http.ResponseWriter, r *http.Request, share *door.Share) (wire []byte, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(share.Intake.MaxBytes())))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		share.Excess = door.ExcessBytes
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !share.Add(4*len(body) + objectBytes*bytes.Count(body, []byte{'{'})) {
		return nil, nil
	}
	request := new(ratelimitv3.RateLimitRequest)
	err = protojson.Unmarshal(body, request)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(request)
}

// answerJSON decides as over gRPC and translates the answer.
func (s *Service) answerJSON(ctx context.Context, request []byte, excess string) (body []byte, status int, err error) {
	var wire []byte
	if excess == "" {
		wire, err = s.json.Answer(ctx, request, nil)
	} else {
		wire = s.refuse(ctx, excess)
	}
	if err != nil {
		return nil, 0, err
	}
	answer := new(ratelimitv3.RateLimitResponse)
	err = proto.Unmarshal(wire, answer)
	if err != nil {
		return nil, 0, fmt.Errorf("reading our own answer: %w", err)
	}
	body, err = protojson.Marshal(answer)
	if err != nil {
		return nil, 0, fmt.Errorf("writing the answer as JSON: %w", err)
	}
	status = http.StatusOK
	if answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		status = http.StatusTooManyRequests
	}
	return compact(body), status, nil
}

// refuse answers a request that was not read because it brings too much.
func (s *Service) refuse(ctx context.Context, excess string) []byte {
	req, v := &descriptors.Request{Door: jsonName, Excess: excess}, new(engine.Verdict)
	s.config.Engine.Decide(ctx, req, v)
	return s.appendAnswer(nil, req, v)
}

// compact takes out the blanks, which protojson varies from build to build.
func compact(body []byte) []byte {
	var out bytes.Buffer
	err := json.Compact(&out, body)
	if err != nil {
		return body
	}
	return out.Bytes()
}
