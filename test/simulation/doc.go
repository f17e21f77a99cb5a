// Package simulation runs a fleet of sidecars, its Redis and its callers in virtual time, with faults that a seed chooses, and
// checks every decision. docs/simulation.md explains it. Its tests have the build tag full: make test-all and make simulate run them.
package simulation
