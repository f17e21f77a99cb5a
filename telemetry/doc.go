// Package telemetry is logs and metrics: it fills the callbacks of the other rooms' Configs, wraps the gRPC server, serves
// /metrics, and is the one place where names of metrics live.
package telemetry
