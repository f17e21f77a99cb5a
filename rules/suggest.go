package rules

import (
	"slices"
	"strings"
)

// suggest returns what to do about an unknown word: the nearest one, else all of them.
func suggest(word string, known []string) string {
	near := nearest(word, known)
	if near != "" {
		return "did you mean " + quote(near) + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// homes are the keys that are easily put a level too high or too low, by where they belong.
var homes = []struct {
	home string
	keys []string
}{
	{"a limit", []string{"count", "per", "burst", "algorithm"}},
	{"rate_limit", []string{"unit", "requests_per_unit", "unit_multiplier", "unlimited", "replaces", "algorithm",
		"burst"}},
	{"a rule", []string{"limit", "limits", "scope", "match", "action", "max_delay", "priority", "enabled", "on_failure",
		"post_paid", "lease", "response", "penalty"}},
	{"a descriptor, beside rate_limit", []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
		"share_threshold", "metadata"}},
	{"match", []string{"endpoints", "methods", "users", "tenants", "tiers", "cidrs", "entries"}},
	{"the top of the file", []string{"charge_denied", "co_locate", "attributes", "costs", "cost_header",
		"reset_format"}},
}

// actionForms are how actions are written, which other tools have as keys.
var actionForms = map[string]string{
	"throttle": "action: throttle, max_delay: 500ms", "delay": "action: throttle, max_delay: 500ms",
	"block": "action: block", "deny": "action: block", "allow": "action: allow", "exempt": "action: allow",
	"log_only": "action: log_only", "shadow": "action: log_only", "dry_run": "action: log_only",
}

// suggestKey returns what to do about an unknown key: the nearest one that is known here, else the nearest one that
// belongs elsewhere, else all that are known here.
func suggestKey(word string, known []string) string {
	if nearest(word, known) != "" {
		return suggest(word, known)
	}
	if slices.Contains(known, "action") && actionForms[normal(word)] != "" {
		return "write `" + actionForms[normal(word)] + "`"
	}
	for _, h := range homes {
		near := nearest(word, h.keys)
		if near == word {
			return "it belongs to " + h.home
		}
		if near != "" {
			return "did you mean " + quote(near) + "? It belongs to " + h.home
		}
	}
	return suggest(word, known)
}

// synonyms are words that other tools have for ours.
var synonyms = map[string][]string{
	"path": {"endpoint", "endpoints"}, "paths": {"endpoint", "endpoints"}, "url": {"endpoint", "endpoints"},
	"uri": {"endpoint", "endpoints"}, "route": {"endpoint", "endpoints"}, "prefix": {"endpoint", "endpoints"},
	"address": {"ip", "cidrs"}, "remote_address": {"ip", "cidrs"}, "client_ip": {"ip"}, "ips": {"cidrs"},
	"organization": {"tenant", "tenants"}, "account": {"tenant", "tenants"}, "plan": {"tier", "tiers"},
	"plans": {"tiers"}, "verbs": {"methods"}, "descriptors": {"entries"}, "headers": {"entries"},
	"quota": {"limit", "limits"}, "quotas": {"limits", "limit"}, "rate": {"limit"}, "rate_limit": {"limit"},
	"requests": {"limit", "count"}, "window": {"per"}, "interval": {"per"}, "period": {"per"},
}

// nearest returns the known word that the word is most likely meant to be, or nothing.
func nearest(word string, known []string) string {
	near, best := "", tolerance(word)+1
	for _, k := range known {
		distance := Distance(normal(word), normal(k))
		if len(word) > 2 && strings.HasPrefix(k, normal(word)) {
			distance = 1 // cut short: sec for second
		}
		if distance < best {
			near, best = k, distance
		}
	}
	for _, ours := range synonyms[normal(word)] {
		if near == "" && slices.Contains(known, ours) {
			near = ours
		}
	}
	return near
}

// normal makes words comparable that differ in case or in how they are joined.
func normal(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "-", "_")
}

// tolerance is how many slips of the finger a word may hold: a third of its letters, from one to five.
func tolerance(word string) int {
	return min(max(1, (len(word)+1)/3), 5)
}

// Distance counts the letters to insert, remove, replace or swap with their neighbour that turn a into b.
func Distance(a, b string) int {
	const longest = 64
	if max(len(a), len(b)) > longest {
		return longest
	}
	var before, above, row [longest + 1]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+1)
			if a[i] == b[j] {
				row[j+1] = above[j]
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}

// quote puts a word from the rule file's vocabulary in quotes.
func quote(word string) string { return `"` + word + `"` }

// sorted returns the keys of a table in order, for messages.
func sorted[V any](table map[string]V) []string {
	keys := make([]string, 0, len(table))
	for k := range table {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
