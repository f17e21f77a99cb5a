package main

// titles of the parts.
var titles = map[string]string{
	"closed":     "closed loop, 64 calls in flight, two servers",
	"open":       "open loop at half of the slower server's capacity, two servers",
	"lone":       "one caller at a time, two servers",
	"four":       "closed loop, 64 calls in flight, four servers",
	"algorithms": "Spillway's algorithms over 100,000 keys, closed loop, two sidecars",
}

func (s *session) write() error { return nil }
