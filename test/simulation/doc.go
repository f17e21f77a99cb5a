// Package simulation runs a fleet of sidecars, its Redis and its callers in virtual time, with faults that a seed
// chooses, and checks every decision. docs/simulation.md explains it.
package simulation
