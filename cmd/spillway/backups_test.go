package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBackupsComeBackAsTheyWereSent sends a folder, and fetches it. What was changed on the way, or is not whole, is
// refused, and a folder with files is left alone.
func TestBackupsComeBackAsTheyWereSent(t *testing.T) {
	from, place, to := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new")
	must(os.Mkdir(filepath.Join(from, "redis"), 0o700))
	must(os.WriteFile(filepath.Join(from, "redis", "dump.rdb"), []byte("keys"), 0o600))
	must(os.WriteFile(filepath.Join(from, "database.dump"), []byte("rows"), 0o600))
	run := func(code int, says string, words ...string) string {
		t.Helper()
		got := call("", append([]string{"backups"}, words...)...)
		if got.code != code || !strings.Contains(got.out+got.errors, says) {
			t.Fatalf("spillway backups %v ends with %d and %s%s, want %d and %q", words, got.code, got.out, got.errors,
				code, says)
		}
		return strings.TrimSpace(got.out)
	}
	run(exitUsage, "is empty", "send", t.TempDir(), place)
	run(exitOK, "2 files", "send", from, place)
	name := run(exitOK, "", "list", place)
	run(exitOK, "2 files", "fetch", place, name, to)
	for file, want := range map[string]string{"redis/dump.rdb": "keys", "database.dump": "rows"} {
		if got, err := os.ReadFile(filepath.Join(to, file)); string(got) != want {
			t.Errorf("%s is fetched as %q, want %q: %v", file, got, want, err)
		}
	}
	run(exitUsage, "is not an empty folder", "fetch", place, name, to)
	must(os.WriteFile(filepath.Join(place, name, "database.dump"), []byte("Rows"), 0o600))
	run(exitUsage, "is not what was sent", "fetch", place, name, filepath.Join(to, "changed"))
	must(os.WriteFile(filepath.Join(place, name, sumsFile), []byte("0  ../escaped\n"), 0o600))
	run(exitUsage, "has a line that no backup has", "fetch", place, name, filepath.Join(to, "escaped"))
	must(os.Remove(filepath.Join(place, name, sumsFile)))
	run(exitUsage, "that is whole", "fetch", place, name, filepath.Join(to, "half"))
	if got := run(exitOK, "", "list", place); slices.Contains(strings.Fields(got), name) {
		t.Errorf("a backup that is not whole is listed: %s", got)
	}
}
