package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// TestALogWithoutAReaderHoldsNothingUp writes to a pipe that is read only later.
func TestALogWithoutAReaderHoldsNothingUp(t *testing.T) {
	reader, writer := io.Pipe()
	l := &Lines{Out: writer}
	fmt.Fprintln(l, "the first")
	if _, wait := l.put([]byte("the second\n")); wait {
		t.Error("a line waits behind one that is not read")
	}
	const over = 10
	for i := range maxLines - 1 + over { // the first is taken to be written, the second waits
		fmt.Fprintln(l, i)
	}
	if lost := l.lost.Load(); lost < over || lost > over+1 {
		t.Errorf("%d lines are lost, want %d: those beyond the bound", lost, over)
	}
	kept := maxLines - 1 + over - l.lost.Load()
	want := bytes.NewBufferString("the first\nthe second\n")
	for i := range kept {
		fmt.Fprintln(want, i)
	}
	got := make([]byte, want.Len())
	_, err := io.ReadFull(reader, got)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("what waited is not written in order: %v", err)
	}
}
