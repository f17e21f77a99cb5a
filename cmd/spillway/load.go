package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// loadVerb sends a file of users.
func loadVerb() verb {
	return verb{
		use: "load FILE", short: "Make or change many users by a file", example: "load users.csv --domain shop",
		run: loadUsers,
		flags: func(cmd *cobra.Command) {
			cmd.ValidArgsFunction = nil
			cmd.Flags().String("format", "",
				"csv or jsonl; default: by the name of the file, which ends with .csv, .jsonl or .ndjson")
			addProgress(cmd)
		},
		long: `load sends a file of users to a control, which sets each of them as its line has it: all of them or,
where a line is wrong, none. Wrong lines are listed by number. Users that the file does not name stay, and so do
blocks.

CSV begins with a line of column names: name, and any of tier, quota_hour, quota_day, quota_month and burst; an empty
field means none. JSON lines have the same names: {"name": "ann", "tier": "gold"}. The file - is standard input.`,
	}
}

// loadFormats are the content types of formats.
var loadFormats = map[string]string{"csv": "text/csv", "jsonl": "application/x-ndjson",
	"ndjson": "application/x-ndjson"}

func loadUsers(s *session, args []string) {
	file := args[0]
	kind := loadFormats[cmp.Or(s.flag("format"), strings.TrimPrefix(filepath.Ext(file), "."))]
	if kind == "" {
		s.fail(fmt.Errorf("%s must be CSV or JSON lines: --format csv or --format jsonl names the format", file))
	}
	path := s.below("users:load")
	bar, err := newBar(s.flag("progress"), s.cmd.ErrOrStderr())
	if s.failed(err) {
		return
	}
	done := s.sendLines(path, file, kind, bar)
	bar.end()
	s.print(done, func() {
		s.line("%s users: %s made, %s changed, %s the same as before", text(done, "lines"), text(done, "made"),
			text(done, "changed"), text(done, "unchanged"))
	})
}

// sendLines sends the file, and returns the answer.
func (s *session) sendLines(path, file, kind string, bar *bar) object {
	in, size, err := source(s.cmd, file)
	if s.failed(err) {
		return nil
	}
	defer in.Close()
	// Expect: a refusal comes before the file is sent.
	request, err := s.request(http.MethodPost, path, nil, nil, "Content-Type", kind, "Expect", "100-continue")
	if s.failed(err) {
		return nil
	}
	request.Body, request.GetBody = io.NopCloser(&shown{in, bar, replay.Progress{Size: size}}), nil
	request.ContentLength = size
	if size == 0 {
		request.ContentLength = -1
	}
	s.calls.Timeout = 0
	a, err := s.send(request)
	if s.failed(err) {
		return nil
	}
	s.keep(a)
	return a.object
}

// source opens the file, or standard input, whose size is 0.
func source(cmd *cobra.Command, file string) (io.ReadCloser, int64, error) {
	if file == "-" {
		return io.NopCloser(cmd.InOrStdin()), 0, nil
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	about, err := in.Stat()
	if err != nil {
		return nil, 0, err
	}
	return in, about.Size(), nil
}

// shown is a reader that shows how far it is.
type shown struct {
	from io.Reader
	bar  *bar
	at   replay.Progress
}

// Read reads from the file.
func (s *shown) Read(into []byte) (int, error) {
	n, err := s.from.Read(into)
	s.at.Bytes += int64(n)
	s.at.Lines += int64(bytes.Count(into[:n], []byte{'\n'}))
	s.bar.show(s.at)
	if err == io.EOF {
		s.bar.showText(fmt.Sprintf("%d lines are sent; the control stores them", s.at.Lines))
	}
	return n, err
}
