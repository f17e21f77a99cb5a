package telemetry

import (
	"context"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// StatsdConfig is where statistics go under the reference server's names. Address and Every are required.
type StatsdConfig struct {
	Address string            // host:port
	Dog     bool              // over UDP, with tags as DogStatsD has them; else over TCP, with tags in the names
	Tags    map[string]string // on every statistic
	Every   time.Duration     // between two flushes
	OnError func(error)       // called at most once for each flush that fails; nil: nothing is called
}

const (
	statsdPatience = time.Second // of a dial, and of a write
	datagram       = 1432        // bytes that no usual network splits
	segment        = 64 << 10    // bytes of one write over TCP
)

// Statsd sends statistics from a goroutine of its own: counters as what was added since the last flush, and a fair
// sample of times. Nothing waits for it, and what cannot be sent is dropped and counted.
type Statsd struct {
	cfg     StatsdConfig
	sources func() []source
	head    string // of a tag list in names
	tail    string // of a line
	last    map[string]float64
	conn    net.Conn
	buffer  []byte
	held    int64 // lines in buffer
	failure error // of this flush

	sent, dropped atomic.Int64 // lines
	life          context.Context
	cut           context.CancelFunc
	stop          chan struct{}
	done          chan struct{}
}

// Statsd begins to send statistics, until Close.
func (t *Telemetry) Statsd(cfg StatsdConfig) *Statsd {
	s := &Statsd{cfg: cfg, sources: t.sources.all, last: map[string]float64{}, stop: make(chan struct{}),
		done: make(chan struct{})}
	s.head, s.tail = statsdTags(cfg)
	s.life, s.cut = context.WithCancel(context.Background())
	t.counts("spillway_statsd_lines_total", "Statistics sent to statsd.", &s.sent)
	t.counts("spillway_statsd_dropped_total", "Statistics that could not be sent to statsd.", &s.dropped)
	t.timed.Store(true)
	go s.run()
	return s
}

// statsdTags is how the tags are written in each line: within the name, and at its end.
func statsdTags(cfg StatsdConfig) (head, tail string) {
	safe := strings.NewReplacer(".", "_", ":", "_", "|", "_", "\n", "_", ",", "_")
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(cfg.Tags)) {
		value := safe.Replace(cfg.Tags[key])
		head += ".__" + key + "=" + value
		parts = append(parts, key+":"+value)
	}
	if !cfg.Dog {
		return head, "\n"
	}
	if len(parts) == 0 {
		return "", "\n"
	}
	return "", "|#" + strings.Join(parts, ",") + "\n"
}

// run flushes until Close, and once more then.
func (s *Statsd) run() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flush()
		case <-s.stop:
			s.flush()
			s.disconnect()
			return
		}
	}
}

// Close sends what is left, until ctx ends, and drops the rest.
func (s *Statsd) Close(ctx context.Context) {
	late := context.AfterFunc(ctx, s.cut)
	defer late()
	close(s.stop)
	<-s.done
	s.cut()
}

// flush sends what has changed. Only run calls it.
func (s *Statsd) flush() {
	s.failure = nil
	for _, read := range s.sources() {
		read(s)
	}
	s.write()
	if s.failure != nil && s.cfg.OnError != nil {
		s.cfg.OnError(s.failure)
	}
}

// counter sends what a counter has grown by.
func (s *Statsd) counter(name string, total float64) {
	grown := total - s.last[name]
	if grown == 0 {
		return
	}
	s.last[name] = total
	s.line(name, grown, "|c", 1)
}

// gauge sends a value as it is.
func (s *Statsd) gauge(name string, value float64) { s.line(name, value, "|g", 1) }

// line adds one statistic, a sample of one in 1/share.
func (s *Statsd) line(name string, value float64, kind string, share float64) {
	if s.failure != nil {
		s.dropped.Add(1)
		return
	}
	limit := segment
	if s.cfg.Dog {
		limit = datagram
	}
	was := len(s.buffer)
	b := append(append(append(s.buffer, name...), s.head...), ':')
	b = strconv.AppendFloat(b, value, 'f', -1, 64)
	b = append(b, kind...)
	if share < 1 {
		b = strconv.AppendFloat(append(b, "|@"...), share, 'f', 6, 64)
	}
	s.buffer = append(b, s.tail...)
	if len(s.buffer) <= limit || was == 0 {
		s.held++
		return
	}
	next := s.buffer[was:]
	s.buffer = s.buffer[:was]
	s.write()
	s.buffer, s.held = append(s.buffer, next...), 1
}

// write sends the buffer, or drops it. A flush that has failed is not tried again.
func (s *Statsd) write() {
	if s.held == 0 {
		return
	}
	if s.failure == nil {
		s.failure = s.send()
	}
	if s.failure != nil {
		s.dropped.Add(s.held)
	} else {
		s.sent.Add(s.held)
	}
	s.buffer, s.held = s.buffer[:0], 0
}

// send writes the buffer to the connection, and opens one first if necessary.
func (s *Statsd) send() error {
	if s.conn == nil {
		network := "tcp"
		if s.cfg.Dog {
			network = "udp"
		}
		conn, err := (&net.Dialer{Timeout: statsdPatience}).DialContext(s.life, network, s.cfg.Address)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(statsdPatience))
	if err != nil {
		return err
	}
	conn := s.conn
	cut := context.AfterFunc(s.life, func() { conn.Close() })
	_, err = conn.Write(s.buffer)
	cut()
	if err != nil {
		s.disconnect()
	}
	return err
}

func (s *Statsd) disconnect() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// source hands statistics to statsd. It is called for each flush, by one goroutine.
type source func(s *Statsd)

// sources are all there are. They are added while the sidecar is put together.
type sources struct {
	mu   sync.Mutex // guards list
	list []source
}

func (s *sources) add(more source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, more)
}

func (s *sources) all() []source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// valueOf reads a counter.
func valueOf(c prometheus.Counter) float64 {
	var m dto.Metric
	err := c.Write(&m)
	if err != nil {
		return math.NaN()
	}
	return m.GetCounter().GetValue()
}
