package fleet

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// stored is a connection on which some bytes come.
type stored struct {
	net.Conn
	from io.Reader
}

// Read reads them.
func (s stored) Read(b []byte) (int, error) { return s.from.Read(b) }

// TestTheClientLibraryGetsNoReplyThatAnnouncesTooMuch: it would make room for it, which ends the process.
func TestTheClientLibraryGetsNoReplyThatAnnouncesTooMuch(t *testing.T) {
	slot := "*3\r\n:0\r\n:5\r\n*4\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$-1\r\n"
	for name, c := range map[string]struct {
		reply string
		good  bool
	}{
		"replies":               {"+OK\r\n:1\r\n$3\r\n\n\n*\r\n$-1\r\n*-1\r\n*0\r\n-ERR x\r\n_\r\n", true},
		"a map":                 {"%1\r\n$1\r\na\r\n:1\r\n+OK\r\n", true},
		"many slots":            {strings.Repeat("*100\r\n"+strings.Repeat(slot, 100), 2000), true},
		"a huge list":           {"*2147483647\r\n", false},
		"a list without bound":  {"*4611686018427387904\r\n", false},
		"a huge text":           {"$34359738368\r\n", false},
		"a text without bound":  {"$9223372036854775806\r\n", false},
		"a huge map":            {"%1048576\r\n", false},
		"lists in lists":        {strings.Repeat("*1\r\n", maxDepth+1), false},
		"many large lists":      {"*3\r\n" + strings.Repeat("*524288\r\n", 3), false},
		"a length that is none": {"$x\r\n", false},
		"an endless line":       {"+" + strings.Repeat("x", longestLine+1), false},
		"an empty line":         {"\r\n", false},
	} {
		for way, from := range map[string]io.Reader{
			"at once": strings.NewReader(c.reply), "byte by byte": iotest.OneByteReader(strings.NewReader(c.reply)),
		} {
			conn, err := bound(stored{from: from}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if c.good && (err != nil || string(got) != c.reply) || !c.good && err == nil {
				t.Errorf("%s, %s: %d of %d bytes, %v", name, way, len(got), len(c.reply), err)
			}
		}
	}
}
