// Package journal keeps what a sidecar decided: exact usage per minute, and single events. A sidecar collects both in bounded memory and appends
// them to two capped streams of Redis every second; the control plane copies the streams to PostgreSQL. This room has both sides' format.
package journal
