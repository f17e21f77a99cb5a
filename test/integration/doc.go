// Package integration is the assembled sidecar against real Redis, PostgreSQL and Envoy.
//
// Envoy runs with examples/envoy/envoy.yaml, the file that users copy, with addresses, the log's path and the filter's timeout
// replaced; the sidecar runs with examples/rules. Every case ends with a look at Envoy's error counter: Envoy lets requests
// through when the rate limit service fails, so a case could pass for the wrong reason.
package integration
