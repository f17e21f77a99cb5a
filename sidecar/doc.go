// Package sidecar is the assembled sidecar: Config (from the environment), New, Run, Close; listeners, the gRPC codec that
// hands the doors their wire bytes and everything else to grpc's own, and the routes over HTTP.
package sidecar
