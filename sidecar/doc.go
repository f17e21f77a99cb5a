// Package sidecar is the assembled sidecar: New, Run, Close, with the Config of package settings; listeners, the gRPC
// codec that hands the doors their wire bytes and everything else to grpc's own, and the routes over HTTP.
package sidecar
