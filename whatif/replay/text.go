package replay

import (
	"errors"
	"strings"
)

// Envoy's text format, and Istio's, which has more in the middle and at the end:
//
//	[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS BYTES BYTES DURATION SERVICE_TIME
//	    "X-FORWARDED-FOR" "USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST"
//	[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS DETAILS TERMINATION "FAILURE" BYTES BYTES DURATION SERVICE_TIME
//	    "X-FORWARDED-FOR" … "UPSTREAM_HOST" CLUSTER LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS
//	    DOWNSTREAM_REMOTE_ADDRESS SERVER_NAME ROUTE
//
// Nothing in it is escaped, so a client's header can hold quotes. What stands behind the user agent is therefore read
// from the end.
var (
	envoyMiddle = []string{"response_code", "response_flags", "bytes_received", "bytes_sent", "duration",
		"upstream_service_time"}
	istioMiddle = []string{"response_code", "response_flags", "response_code_details",
		"connection_termination_details"}
	quotedFromEnd = []string{"upstream_host", "authority", "request_id"}
	istioEnd      = []string{"upstream_cluster", "upstream_local_address", "downstream_local_address",
		"downstream_remote_address", "requested_server_name", "route_name"}
)

var errShort = errors.New("not Envoy's text format: the line is cut off")

// readText reads a line in Envoy's or Istio's text format.
func readText(l *layout, r *record, line string) error {
	at, rest, found := strings.Cut(line[1:], "] \"")
	if !found {
		return errShort
	}
	r.set(l, "start_time", at)
	method, rest, _ := strings.Cut(rest, " ")
	path, rest, _ := strings.Cut(rest, " ")
	protocol, rest, found := strings.Cut(rest, "\" ")
	if !found || strings.Contains(protocol, " ") {
		return errShort
	}
	r.set(l, "method", method)
	r.set(l, "path", path)
	r.set(l, "protocol", protocol)
	middle, rest, found := strings.Cut(rest, " \"")
	fields := strings.Split(middle, " ")
	switch {
	case !found:
		return errShort
	case len(fields) == len(envoyMiddle):
		r.setAll(l, envoyMiddle, fields)
		return readTail(l, r, strings.TrimRight(rest, "\r"))
	case len(fields) == len(istioMiddle):
		r.format = formatIstio
		r.setAll(l, istioMiddle, fields)
		return readIstio(l, r, strings.TrimRight(rest, "\r"))
	}
	return errors.New("neither Envoy's nor Istio's text format")
}

func (r *record) setAll(l *layout, names, values []string) {
	for i, name := range names {
		r.set(l, name, values[i])
	}
}

// readIstio reads what follows the opening quote of the failure.
func readIstio(l *layout, r *record, rest string) error {
	failure, rest, found := strings.Cut(rest, "\" ")
	numbers, rest, more := strings.Cut(rest, " \"")
	last := strings.LastIndex(rest, "\" ")
	if !found || !more || last < 0 || strings.Count(numbers, " ") != 3 {
		return errShort
	}
	r.set(l, "upstream_transport_failure_reason", failure)
	end := strings.Split(rest[last+2:], " ")
	if len(end) < len(istioEnd) {
		return errShort
	}
	r.setAll(l, istioEnd, end)
	return readTail(l, r, rest[:last+1])
}

// readTail reads the values in quotes, of which the first quote is gone.
func readTail(l *layout, r *record, rest string) error {
	forwarded, rest, found := strings.Cut(rest, "\" \"")
	rest, closed := strings.CutSuffix(rest, "\"")
	if !found || !closed {
		return errShort
	}
	r.set(l, "x_forwarded_for", forwarded)
	for _, name := range quotedFromEnd {
		at := strings.LastIndex(rest, "\" \"")
		if at < 0 {
			return errShort
		}
		r.set(l, name, rest[at+3:])
		rest = rest[:at]
	}
	r.set(l, "user_agent", rest)
	return nil
}
