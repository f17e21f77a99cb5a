package fleet

import (
	"bytes"
	"errors"
	"testing"
)

func TestScan(t *testing.T) {
	for text, want := range map[string]int{
		"":                         0,
		"+":                        0,
		"+OK\r":                    0,
		"+OK\r\n":                  5,
		"-ERR no\r\nmore":          9,
		":-12\r\n":                 6,
		"$-1\r\n":                  5,
		"$0\r\n\r\n":               6,
		"$3\r\na\r\n":              0,
		"$3\r\na\r\n\r\n":          9,
		"*0\r\n":                   4,
		"*2\r\n:1\r\n":             0,
		"*2\r\n:1\r\n$1\r\nx\r\n:": 15,
		"*1\r\n*1\r\n+a\r\n":       12,
	} {
		if n, err := scan([]byte(text), 0); n != want || err != nil {
			t.Errorf("%q: %d bytes, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"\r\n", "x\r\n", "+OK\n", "$x\r\n", "$-2\r\n", "$99999999999999999999\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"} {
		if n, err := scan([]byte(text), 0); !errors.Is(err, errProtocol) {
			t.Errorf("%q: %d bytes, %v; want that it is no reply", text, n, err)
		}
	}
}

// FuzzScan: bytes of any kind are a reply, a part of one or none, and a reply can be taken apart.
func FuzzScan(f *testing.F) {
	for _, text := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n$-1\r\n", "-ERR x\r\n", "$5\r\nab"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := scan(b, 0)
		if n < 0 || n > len(b) || err != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if n == 0 {
			return
		}
		r := parse(b[:n])
		if len(r.Data) > n {
			t.Fatalf("%d bytes in a reply of %d", len(r.Data), n)
		}
		// A part of it is not taken for the whole.
		for cut := range n {
			if m, _ := scan(b[:cut], 0); m != 0 {
				t.Fatalf("%q is a whole reply, and so is its part %q", b[:n], b[:cut])
			}
		}
	})
}

func TestCommand(t *testing.T) {
	if got, want := command("SET", "k", ""), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := AppendWord([]byte("x"), []byte("ab")); !bytes.Equal(got, []byte("x$2\r\nab\r\n")) {
		t.Errorf("%q", got)
	}
}
