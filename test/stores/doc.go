// Package stores runs the whole sidecar over one server of Redis: counts, what it makes of missing rights, and its
// warnings. make test takes the redis-server of this machine, make test-stores each version of Redis and Valkey that
// Spillway supports, and one that is too old (SPILLWAY_TEST_REDIS names the program).
package stores
