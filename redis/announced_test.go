package redis

import (
	"strings"
	"testing"
)

func TestRepliesThatAnnounceTooMuch(t *testing.T) {
	nested := strings.Repeat("*1\r\n", mostItems+1)
	for text, ok := range map[string]bool{
		"+OK\r\n:5\r\n$3\r\nabc\r\n*2\r\n$-1\r\n:1\r\n*-1\r\n*0\r\n": true,
		"*2\r\n*2\r\n:1\r\n:2\r\n$0\r\n\r\n-ERR x\r\n":               true,
		"$3\r\n*9\r\r\n*1\r\n:1\r\n":                                 true,  // the text begins as a list does
		"%1\r\n:1\r\n:2\r\n":                                         false, // RESP3, which was not asked for
		"*1048576\r\n":                                               true,
		"*1048577\r\n":                                               false,
		"*2147483647\r\n":                                            false,
		"*99999999999999999999\r\n":                                  false,
		"*-2\r\n":                                                    false,
		"*x\r\n":                                                     false,
		"$34359738368\r\n":                                           false,
		"$-7\r\n":                                                    false,
		"*1000000\r\n*1000000\r\n":                                   false,
		"\r\n":                                                       false,
		nested:                                                       false,
		"+" + strings.Repeat("x", longestLine):                       false,
	} {
		for _, size := range []int{1, 7, len(text)} {
			var a announced
			good := true
			for rest := text; rest != "" && good; {
				part := rest[:min(size, len(rest))]
				rest = rest[len(part):]
				good = a.check([]byte(part)) == len(part)
			}
			if good != ok {
				t.Errorf("%.20q in parts of %d: %v", text, size, good)
			}
		}
	}
}

// TestManyRepliesAreNotOneLongReply: each begins anew.
func TestManyRepliesAreNotOneLongReply(t *testing.T) {
	var a announced
	reply := []byte("*3\r\n:1\r\n:2\r\n$1\r\nx\r\n")
	for range mostItems {
		if a.check(reply) < len(reply) {
			t.Fatal("a reply announces too much")
		}
	}
}
