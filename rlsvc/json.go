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
)

// maxJSON is the most bytes of a body, the same as of a gRPC message.
const maxJSON = 4 << 20

// JSON returns the handler for /json: a RateLimitRequest as JSON in, the RateLimitResponse as JSON out, with 200 when
// admitted and 429 when refused. As in the reference server the method does not matter, and a body that cannot be
// decoded is answered with 400 (413 above 4 MiB) and the bare status text.
func (s *Service) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, status := readJSON(w, r)
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		body, status, err := s.answerJSON(r.Context(), request)
		if err != nil {
			s.config.OnPanic(err)
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client is gone: nobody is left to tell
	})
}

// readJSON reads the body into wire bytes, or says with which status to refuse it.
func readJSON(w http.ResponseWriter, r *http.Request) (wire []byte, status int) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge
	}
	if err != nil {
		return nil, http.StatusBadRequest
	}
	request := new(ratelimitv3.RateLimitRequest)
	err = protojson.Unmarshal(body, request)
	if err != nil {
		return nil, http.StatusBadRequest
	}
	wire, err = proto.Marshal(request)
	if err != nil {
		return nil, http.StatusBadRequest
	}
	return wire, http.StatusOK
}

// answerJSON decides as over gRPC and translates the answer.
func (s *Service) answerJSON(ctx context.Context, request []byte) (body []byte, status int, err error) {
	wire, err := s.Answer(ctx, request, nil)
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

// compact takes out the blanks, which protojson varies from build to build.
func compact(body []byte) []byte {
	var out bytes.Buffer
	err := json.Compact(&out, body)
	if err != nil {
		return body
	}
	return out.Bytes()
}
