// Package telemetry is logs, metrics and traces. It observes the engine, fills the callbacks of other rooms' Configs,
// wraps the gRPC server, and reads the tags that name the metrics of what other rooms count.
package telemetry
