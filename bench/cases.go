package main

// goal is what a ratio of the sidecar to the reference server should be. A negative number is no goal.
type goal struct {
	CPU       float64 // of server and Redis together, at most
	Redis     float64 // at most
	PerSecond float64 // at least
}

// work is what requests look like.
type work struct {
	Domain  string
	Keys    []string // one descriptor for each
	Values  int      // distinct requests
	Zipf    float64  // exponent; 0: uniform
	Refused bool     // every answer is a refusal, once the warm-up has spent the limit
}

// testCase is a row of the tables.
type testCase struct {
	Name, Short string
	Work        work
	Goal        goal
	Also        []string // parts that it has beyond the closed loop
	Env         []string // settings that the reference server has in this case alone
}

const keys = 100_000

var cases = []testCase{
	{"100,000 keys", "keys", work{Domain: "bench", Keys: []string{"user"}, Values: keys}, goal{0.60, 1.2, 1.6}, []string{"open", "lone", "four"}, nil},
	{"Zipf 1.1", "zipf", work{Domain: "bench", Keys: []string{"user"}, Values: keys, Zipf: 1.1}, goal{-1, -1, -1}, nil, nil},
	{"one hot key", "hot", work{Domain: "bench", Keys: []string{"user"}, Values: 1}, goal{0.60, 1.2, 1.6}, []string{"open", "four"}, nil},
	{"four descriptors", "four", work{Domain: "bench", Keys: []string{"user", "tenant", "route", "address"}, Values: keys}, goal{0.50, 1.0, 1.8}, []string{"open", "lone"}, nil},
	{"refused flood", "refused", work{Domain: "bench", Keys: []string{"spent"}, Values: 1, Refused: true}, goal{0.60, 0, 1.4}, []string{"open", "four"}, nil},
	{"unmatched", "unmatched", work{Domain: "bench", Keys: []string{"other"}, Values: keys}, goal{0.60, 0, 1.4}, nil, nil},
	{"refused, local cache", "cache", work{Domain: "bench", Keys: []string{"spent"}, Values: 1, Refused: true}, goal{0.60, 0, 1.4}, nil, []string{"LOCAL_CACHE_SIZE_IN_BYTES=10000000"}},
}

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
`

// algorithms are compared with one another, on the sidecar alone: the reference server has the fixed window only.
var algorithms = []string{"fixed_window", "token_bucket", "sliding_window", "sliding_log"}

// algorithmRules is the file of that comparison: a key for each algorithm.
func algorithmRules() string {
	file := "domain: algorithms\ndescriptors:\n"
	for _, a := range algorithms {
		file += "  - key: " + a + "\n    rate_limit: { unit: hour, requests_per_unit: 10000, algorithm: " + a + " }\n"
	}
	return file
}

// algorithmCases has a case for each algorithm, over as many keys as the first case.
func algorithmCases() []testCase {
	var all []testCase
	for _, a := range algorithms {
		all = append(all, testCase{Name: a, Short: a, Work: work{Domain: "algorithms", Keys: []string{a}, Values: keys}})
	}
	return all
}
