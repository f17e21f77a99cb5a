package main

import (
	"cmp"
	"slices"
	"strings"
)

// outages are the reasons why Redis cannot decide, as /readyz, metrics and the log call them, in words.
var outages = map[string]string{
	"dial": "cannot be reached", "closed": "ends connections", "timeout": "does not answer in time",
	"breaker": "failed a moment ago", "noauth": "wants another user or password", "noperm": "does not allow what " +
		"is needed",
	"loading": "reads its data", "readonly": "is a replica, which takes no writes", "oom": "is out of memory",
	"misconf": "cannot save, and takes no writes", "clients": "takes no more connections",
	"overload": "is asked more than it can answer", "deadline": "had no time to answer",
	"wrongtype": "holds a foreign value under the key", "busy": "is in a script that does not end",
	"cluster": "does not hold the key", "crossslot": "holds the keys in several slots",
	"script": "cannot run the script", "reply": "sent what is no answer", "error": "failed",
	"breaker open": "failed several times in a row", "breaker half-open": "is tried again",
}

// outage is why Redis cannot decide, in words. Other texts stay as they are.
func outage(reason string) string {
	var all []string
	for part := range strings.SplitSeq(reason, ", ") {
		text := outages[part]
		server, why, several := strings.Cut(part, " ")
		if text == "" && several && outages[why] != "" {
			text = outages[why] + " (" + server + ")" // one of several servers
		}
		if text == "" {
			return reason
		}
		all = append(all, text)
	}
	return "Redis " + strings.Join(all, ", ")
}

// outagesOf are parts of /readyz that do not work, in words.
func outagesOf(value any) string {
	list, _ := value.([]any)
	all := make([]string, len(list))
	for i, one := range list {
		all[i] = words(one)
		why := strings.TrimPrefix(all[i], "redis: ")
		if text := outage(why); text != why {
			all[i] = text
		}
	}
	return strings.Join(slices.Compact(all), ", ")
}

// unwritten are the rules that are in no file, in words.
var unwritten = map[string]string{"~profile": "block by an operator", "~penalty": "penalty of the domain"}

// ruleWords is a rule by its name, or what it is.
func ruleWords(rule string) string { return cmp.Or(unwritten[rule], rule) }

// ruleTitle is what headers call the rule of a counter, or what it is.
func ruleTitle(o object) string {
	if isTrue(o, "own") {
		return "own limit"
	}
	return cmp.Or(unwritten[text(o, "rule")], text(o, "name"))
}
