package telemetry

import (
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Lines is where a log goes. It counts the lines that could not be written, such as those that a full disk has no room for: nothing waits for them, and nothing else fails.
type Lines struct {
	Out  io.Writer
	lost atomic.Int64
}

// Write writes a line.
func (l *Lines) Write(line []byte) (int, error) {
	n, err := l.Out.Write(line)
	if err != nil {
		l.lost.Add(1)
	}
	return n, err
}

// Lines measures a log.
func (t *Telemetry) Lines(l *Lines) {
	t.register.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "spillway_log_lines_lost_total", Help: "Lines of the log that could not be written, as on a disk that is full.",
	}, func() float64 { return float64(l.lost.Load()) }))
}
