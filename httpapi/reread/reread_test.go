package reread

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestFilesAreReadAgain changes a file, breaks it, mends it, and takes it away. What was read last stays in use.
func TestFilesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/file"
		written := time.Now()
		write := func(text string) {
			written = written.Add(time.Minute)
			must.Do(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, written, written)))
		}
		write("one")
		var reports []error
		wrong := errors.New("it is wrong")
		f := must.Get(New([]string{path, ""}, func() (string, error) {
			text, err := os.ReadFile(path)
			if string(text) == "wrong" {
				err = wrong
			}
			return string(text), err
		}, func(err error) { reports = append(reports, err) }))(t)
		check := func(want string, count int, last error) {
			t.Helper()
			got := f.Current()
			if got != want || len(reports) != count || count > 0 && !errors.Is(reports[count-1], last) {
				t.Errorf("it holds %q after %v, want %q after %d reports, the last %v", got, reports, want, count, last)
			}
		}
		write("two")
		check("one", 0, nil) // it was looked at just now
		<-time.After(Every)
		check("two", 1, nil)
		write("three")
		f.Look()
		check("three", 2, nil)
		write("wrong")
		for range 3 {
			<-time.After(Every)
			check("three", 3, wrong)
		}
		write("four")
		<-time.After(Every)
		check("four", 4, nil)
		must.Do(t, os.Remove(path))
		<-time.After(Every)
		check("four", 5, os.ErrNotExist)
	})
}

// TestNewFailsWithoutTheFile begins without the file.
func TestNewFailsWithoutTheFile(t *testing.T) {
	path := t.TempDir() + "/none"
	_, err := New([]string{path}, func() ([]byte, error) { return os.ReadFile(path) }, func(error) {})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("New returns %v", err)
	}
}
