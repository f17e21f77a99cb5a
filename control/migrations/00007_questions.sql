-- +goose Up
-- Refusals of a domain by time. It holds all that is asked of many refusals, so that their rows need not be read.
CREATE INDEX events_refused ON events (domain, at) INCLUDE (identity, method, endpoint) WHERE outcome IN ('refused', 'blocked', 'malformed');
