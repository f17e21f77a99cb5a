package main

// goal is what a ratio of the sidecar to what it is compared with should be. A negative number is not a goal.
type goal struct {
	CPU       float64 // of server and Redis together, at most
	Redis     float64 // at most
	PerSecond float64 // at least
	Calls     float64 // of a script per decision of the sidecar, at most; not a ratio
}

// goals are by part and by the short name of a case.
var goals = map[string]map[string]goal{
	"closed": {
		"keys":      {0.60, 1.2, 1.6, 1.01},
		"zipf":      {0.48, -1, -1, 0.5},
		"hot":       {0.60, 1.2, 1.6, -1},
		"four":      {0.50, 1.0, 1.8, -1},
		"warm":      {0.40, -1, -1, 0.5},
		"refused":   {0.60, 0, 1.4, -1},
		"unmatched": {0.60, 0, 1.4, -1},
		"cache":     {0.60, 0, 1.4, -1},
	},
	"four": {
		"keys":    {0.60, 1.2, 1.6, 1.01},
		"hot":     {0.33, 1.2, 1.6, 0.02},
		"refused": {0.60, 0, 1.4, -1},
	},
	"leases": {
		"keys": {1.03, -1, -1, -1},
	},
}

// goal is that of the study's part and case.
func (s *study) goal() goal {
	g, found := goals[s.Part][s.Case.Short]
	if !found {
		return goal{-1, -1, -1, -1}
	}
	return g
}

// work is what requests look like.
type work struct {
	Domain  string
	Keys    []string // one descriptor for each
	Values  int      // distinct requests
	Zipf    float64  // exponent; 0: uniform
	Shared  bool     // the descriptors after the first have one value each, in all requests
	New     bool     // each request is about counters of its own
	Refused bool     // every answer is a refusal, once the warm-up has spent the limit
}

// testCase is a row of the tables.
type testCase struct {
	Name, Short string
	Work        work
	Also        []string // parts that it has beyond the closed loop
	Env         []string // settings that the reference server has in this case alone
}

const keys = 100_000

var cases = []testCase{
	{"100,000 keys", "keys", work{Domain: "bench", Keys: []string{"user"}, Values: keys},
		[]string{"open", "lone", "four", "leases"}, nil},
	{"Zipf 1.1", "zipf", work{Domain: "bench", Keys: []string{"user"}, Values: keys, Zipf: 1.1}, nil, nil},
	{"one hot key", "hot", work{Domain: "bench", Keys: []string{"user"}, Values: 1}, []string{"open", "four", "leases"},
		nil},
	{"four descriptors", "four", work{Domain: "bench", Keys: []string{"user", "tenant", "route", "address"},
		Values: keys}, []string{"open", "lone"}, nil},
	{"four descriptors, three hot", "warm", work{Domain: "bench", Keys: []string{"user", "tenant", "route", "address"},
		Values: keys, Shared: true}, nil, nil},
	{"new counters", "new", work{Domain: "bench", Keys: []string{"user"}, Values: 1, New: true}, nil, nil},
	{"four new counters", "fournew", work{Domain: "bench", Keys: []string{"user", "tenant", "route", "address"},
		Values: 1, New: true}, nil, nil},
	{"refused flood", "refused", work{Domain: "bench", Keys: []string{"spent"}, Values: 1, Refused: true},
		[]string{"open", "four"}, nil},
	{"unmatched", "unmatched", work{Domain: "bench", Keys: []string{"other"}, Values: keys}, nil, nil},
	{"refused, local cache", "cache", work{Domain: "bench", Keys: []string{"spent"}, Values: 1, Refused: true}, nil,
		[]string{"LOCAL_CACHE_SIZE_IN_BYTES=10000000"}},
}

// ruleFiles are by their names without .yaml.
type ruleFiles map[string]string

// trees is the one file of most parts.
var trees = ruleFiles{"bench": ruleFile}

// ruleFile is the file that both servers read. It is the reference server's format.
const ruleFile = `domain: bench
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: route
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: address
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: spent
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: global
    rate_limit: { unit: second, requests_per_unit: 100000 }
`

// globalLimit is that of the key global: decisions per second of all sidecars together.
const globalLimit = 100_000

// globalShare is how much of one core Redis may take for that limit, in percent.
const globalShare = 5.0

// The cases of the global limit. The first finds out how much this machine can do, on a counter that nothing refuses.
// The second makes half as many calls on the counter with the limit.
var (
	capacityCase = testCase{Name: "one hot key, closed loop", Short: "capacity",
		Work: work{Domain: "bench", Keys: []string{"user"}, Values: 1}}
	globalCase = testCase{Name: "global limit, open loop", Short: "global",
		Work: work{Domain: "bench", Keys: []string{"global"}, Values: 1}}
)

// algorithms are compared with one another, on the sidecar alone: the reference server has the fixed window only.
var algorithms = []string{"fixed_window", "token_bucket", "sliding_window", "sliding_log"}

// algorithmRules is the file of that comparison: a key for each algorithm.
func algorithmRules() ruleFiles {
	file := "domain: algorithms\ndescriptors:\n"
	for _, a := range algorithms {
		file += "  - key: " + a + "\n    rate_limit: { unit: hour, requests_per_unit: 10000, algorithm: " + a + " }\n"
	}
	return ruleFiles{"algorithms": file}
}

// algorithmCases has a case for each algorithm, over as many keys as the first case.
func algorithmCases() []testCase {
	var all []testCase
	for _, a := range algorithms {
		all = append(all, testCase{Name: a, Short: a, Work: work{Domain: "algorithms", Keys: []string{a},
			Values: keys}})
	}
	return all
}
