// Package integration is the assembled sidecar against real Redis, PostgreSQL and Envoy.
//
// Envoy runs with examples/envoy/envoy.yaml and ext_authz.yaml, the files that users copy, with addresses, the log's
// path and the filters' timeouts replaced; the sidecar runs with examples/rules. Every case ends with a look at Envoy's
// error counters: Envoy lets requests through when the rate limit service fails, so a case could pass for the wrong
// reason.
package integration
