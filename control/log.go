package control

import (
	"io"
	"log/slog"

	"github.com/spillway-mesh/spillway/telemetry"
)

// NewLog returns a log as lines of text. Nothing waits for lines that no reader takes.
func NewLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(&telemetry.Lines{Out: out}, nil))
}
