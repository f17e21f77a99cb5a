-- +goose Up
SET LOCAL statement_timeout = 0; -- a table of events that is filled takes minutes

-- Refusals of a domain by time. It holds all that is asked of many refusals, so that their rows need not be read.
CREATE INDEX events_refused ON events (domain, at) INCLUDE (identity, method, endpoint) WHERE outcome IN ('refused', 'blocked', 'malformed');
