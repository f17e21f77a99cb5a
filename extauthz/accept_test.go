package extauthz

import (
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

func TestWhoPrefersText(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                             false,
		"*/*":                          false,
		"text/plain":                   true,
		"Text/Plain":                   true,
		"text/*":                       true,
		"text/html":                    false,
		"application/json":             false,
		"application/problem+json":     false,
		"text/plain, application/json": false,
		"text/plain, */*":              false,
		"text/plain;q=0.9, */*;q=0.8":  true,
		"text/plain;q=0.9, application/json;q=0.91":                        false,
		"text/plain;q=0.2, application/json;q=0.1":                         true,
		"application/json;q=0.1, text/plain ; Q = 0.2":                     true,
		"text/plain;format=flowed;q=0.5":                                   true,
		"text/plain;q=0, */*":                                              false,
		"application/*;q=0, */*":                                           true,
		"application/problem+json;q=0, application/json, text/plain;q=0.1": true,
		"text/plain;q=nonsense":                                            false,
		"text/plain;q=-1":                                                  false,
		"text/plain;q=1.000":                                               true,
		"text/plain;q=.5":                                                  true,
		"text/plain;q=0.0001":                                              false,
		"text/html,application/xhtml+xml,*/*;q=0.8":                        false,
		",;,=;q=,text/plain":                                               true,
		strings.Repeat("text/html,", 6000):                                 false,
		strings.Repeat("a;", 20_000) + "q=0.1,text/*":                      true,
		"text/plain\xff":                                                   false,
	} {
		if got := prefersText([]identity.Header{{Name: "accept", Value: accept}}); got != want {
			t.Errorf("%.80q: %t", accept, got)
		}
	}
}

func TestAcceptInSeveralHeaders(t *testing.T) {
	headers := []identity.Header{{Name: "accept", Value: "text/plain;q=0.5"},
		{Name: "x-accept", Value: "application/json"}, {Name: "accept", Value: "*/*;q=0.1"}}
	if !prefersText(headers) {
		t.Error("a client that likes text most gets a problem document")
	}
}
