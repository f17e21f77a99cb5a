package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/whatif/replay"
)

func newUsersLoad() *cobra.Command {
	cmd := &cobra.Command{
		Use: "load FILE", Short: "Make or change many users by a file",
		Example: "  spillway users load users.csv --domain shop", Args: between(1, 1),
		Long: `load sends a file of users to a control, which sets each of them as its line has it: all of them or,
where a line is wrong, none. Wrong lines are listed by number. Users that the file does not name stay, and so do
blocks. The file may be sent again: equal users are not touched.

CSV begins with a line of column names: name, and any of tier, quota_hour, quota_day, quota_month and burst; an empty
field means none. JSON lines have the same names: {"name": "ann", "tier": "gold"}. The file - is standard input.`,
		RunE: func(cmd *cobra.Command, args []string) error { return loadUsers(cmd, args[0]) },
	}
	addControl(cmd)
	cmd.Flags().String("format", "", "csv or jsonl; default: by the name of the file, which ends with .csv, .jsonl or .ndjson")
	cmd.Flags().String("progress", "auto", "show progress on the standard error: auto (on a terminal), always or never")
	return cmd
}

// formatOf is the content type of a file.
func formatOf(cmd *cobra.Command, file string) (string, error) {
	format := cmd.Flag("format").Value.String()
	if format == "" {
		_, format, _ = strings.Cut(file[strings.LastIndex(file, "/")+1:], ".")
		format = format[strings.LastIndex(format, ".")+1:]
	}
	switch format {
	case "csv":
		return "text/csv", nil
	case "jsonl", "ndjson":
		return "application/x-ndjson", nil
	}
	return "", fmt.Errorf("%s may be CSV or JSON lines: --format csv or --format jsonl says which", file)
}

func loadUsers(cmd *cobra.Command, file string) error {
	kind, err := formatOf(cmd, file)
	if err != nil {
		return err
	}
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	bar, err := newBar(cmd.Flag("progress").Value.String(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	document, err := sendLines(cmd, domain, file, kind, bar)
	bar.end()
	if err != nil {
		return hinted(err)
	}
	var done database.Loaded
	err = understand(document, &done)
	if err != nil {
		return err
	}
	return put(cmd, done, func(w io.Writer, done database.Loaded) {
		fmt.Fprintf(w, "%d users: %d made, %d changed, %d the same as before\n", done.Lines, done.Made, done.Changed, done.Unchanged)
	})
}

// sendLines sends the file, and returns the answer.
func sendLines(cmd *cobra.Command, domain, file, kind string, bar *bar) (json.RawMessage, error) {
	in, size, err := source(cmd, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	request, err := requestOf(cmd, aControl, http.MethodPost, place(domain, "users:load"), nil, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Expect", "100-continue") // so that a refusal comes before the file goes
	request.Body, request.ContentLength, request.GetBody = io.NopCloser(&shown{in, bar, replay.Progress{Size: size}}), size, nil
	if size == 0 {
		request.ContentLength = -1
	}
	transport, err := transportOf(cmd)
	if err != nil {
		return nil, err
	}
	transport.ExpectContinueTimeout = 5 * time.Second
	_, document, err := send(&http.Client{Transport: transport}, request, aControl)
	return document, err
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

// shown reads, and shows how far it has come.
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
		s.bar.say(fmt.Sprintf("%d lines are sent; the control stores them", s.at.Lines))
	}
	return n, err
}
