package database

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/httpapi"
)

var loadColumns = []string{"name", "tier", "quota_hour", "quota_day", "quota_month", "burst"}

// csvReader reads lines of CSV of at most lineMost bytes. The breaks in a field in quotes do not end a line.
type csvReader struct {
	*csv.Reader
	body  io.Reader
	bytes int64 // of the body that were read
	began int64 // the byte at which the line begins
	lines int64 // that were read
}

// newCSVReader makes a csvReader.
func newCSVReader(body io.Reader) *csvReader {
	r := &csvReader{body: body}
	r.Reader = csv.NewReader(bufio.NewReaderSize(readerFunc(r.more), lineMost))
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	return r
}

// more reads on, unless the line is too long already.
func (r *csvReader) more(into []byte) (int, error) {
	if r.bytes-r.began > lineMost {
		return 0, tooLong(r.lines + 1)
	}
	n, err := r.body.Read(into)
	r.bytes += int64(n)
	return n, err
}

// Read reads a line.
func (r *csvReader) Read() ([]string, error) {
	fields, err := r.Reader.Read()
	length := r.InputOffset() - r.began
	r.began = r.InputOffset()
	r.lines++
	if length > lineMost {
		return nil, tooLong(r.lines)
	}
	return fields, err
}

// tooLong is the problem of a line.
func tooLong(line int64) error {
	return httpapi.NewProblem(http.StatusUnprocessableEntity, "line %d has more than %d bytes", line, lineMost)
}

// readerFunc is a function as an io.Reader.
type readerFunc func([]byte) (int, error)

// Read calls the function.
func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// CsvLines reads users as CSV. The first line names the columns; an empty field is not set.
func CsvLines(body io.Reader) func() (int64, userLine, error) {
	r := newCSVReader(body)
	var header []string
	return func() (int64, userLine, error) {
		if header == nil {
			first, err := r.Read()
			header = slices.Clone(first)
			if err == nil || errors.Is(err, io.EOF) {
				err = checkHeader(header)
			}
			if err != nil {
				return 1, userLine{}, err
			}
		}
		fields, err := r.Read()
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			err = &wrongLine{int64(parse.StartLine), parse.Err.Error()}
		}
		if err != nil {
			return 0, userLine{}, err
		}
		line, _ := r.FieldPos(0)
		if len(fields) != len(header) {
			return 0, userLine{}, &wrongLine{int64(line),
				fmt.Sprintf("it has %d fields, and the first line names %d", len(fields), len(header))}
		}
		u, err := fieldsOf(header, fields, int64(line))
		return int64(line), u, err
	}
}

// checkHeader refuses columns that are unknown or there twice, and a header without a name.
func checkHeader(header []string) error {
	for i, column := range header {
		if !slices.Contains(loadColumns, column) || slices.Contains(header[:i], column) {
			return httpapi.NewProblem(http.StatusUnprocessableEntity, "line 1: the column %q is unknown or there "+
				"twice: the columns are %s", column, strings.Join(loadColumns, ", "))
		}
	}
	if !slices.Contains(header, "name") {
		return httpapi.NewProblem(http.StatusUnprocessableEntity, "line 1 must name the columns, name among them: %s",
			strings.Join(loadColumns, ","))
	}
	return nil
}

// fieldsOf is a line of CSV as a user.
func fieldsOf(header, fields []string, line int64) (userLine, error) {
	var u userLine
	numbers := map[string]**int64{"quota_hour": &u.QuotaHour, "quota_day": &u.QuotaDay, "quota_month": &u.QuotaMonth,
		"burst": &u.Burst}
	for i, column := range header {
		text := fields[i]
		switch {
		case text == "" && column != "name":
		case column == "name":
			u.Name = text
		case column == "tier":
			u.Tier = &text
		default:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return u, &wrongLine{line, fmt.Sprintf("%s is %q and must be a whole number from 1", column, text)}
			}
			*numbers[column] = &n
		}
	}
	return u, nil
}

// decodeLine reads a user as JSON.
var decodeLine = httpapi.Decoder[userLine]("line")

// JsonLines reads users as lines of JSON. Empty lines are left out.
func JsonLines(body io.Reader) func() (int64, userLine, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 1<<16), lineMost)
	line := int64(0)
	return func() (int64, userLine, error) {
		for lines.Scan() {
			line++
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			u, err := decodeLine(text)
			if err != nil {
				return line, userLine{}, &wrongLine{line, err.Error()}
			}
			return line, *u, nil
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return 0, userLine{}, tooLong(line + 1)
		case err != nil:
			return 0, userLine{}, err
		}
		return 0, userLine{}, io.EOF
	}
}
