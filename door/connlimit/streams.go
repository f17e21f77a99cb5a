package connlimit

import "math"

// What a stream takes, measured and rounded up.
const (
	streamBytes  = 2 << 10   // one that was read
	readerBytes  = 14 << 10  // and while its request arrives, for who reads it
	dataBytes    = 160       // of a DATA frame, beside its content
	headerFactor = 96        // of one byte of a packed header block: a field may take one
	headerMost   = 192 << 10 // of a header block: its list may have 64 KiB
	headerUsual  = 512       // bytes of a packed header block of Envoy
	frameMost    = 16 << 10  // of one frame: a longer one is not read, and ends the connection
	streamsMost  = 1024      // open streams of a connection; the server refuses most of them
)

// phase is how far a stream is.
type phase uint8

const (
	asking    phase = iota // its request arrives
	asked                  // its request is being answered
	answering              // its answer is being sent
)

// stream is one call.
type stream struct {
	id      uint32
	phase   phase
	last    bool // its header block is not complete, and it has nothing but that
	began   int64
	headers int64 // bytes of its header blocks
	data    int64 // bytes of its message
}

// takes is how many bytes it holds, and how many of them because its request is not complete.
func (s *stream) takes() (all, unfinished int64) {
	headers := min(headerFactor*s.headers, headerMost)
	switch s.phase {
	case asking:
		return streamBytes + readerBytes + headers + s.data, s.data
	case answering:
		return streamBytes + headers, 0
	}
	return streamBytes + min(headerFactor/2*max(0, s.headers-headerUsual), headerMost), 0
}

// streams are the calls of a connection of HTTP/2.
type streams struct {
	in, out    frames
	open       []stream
	largest    int64 // payload of the frames so far that are not DATA: the reader keeps room for it
	held       int64
	unfinished int64
}

func (s *streams) tooMany() bool { return len(s.open) > streamsMost }

// oldest is when the oldest request began that is not complete.
func (s *streams) oldest() int64 {
	at := int64(math.MaxInt64)
	for i := range s.open {
		if s.open[i].phase == asking {
			at = min(at, s.open[i].began)
		}
	}
	return at
}

// received follows what the peer sends.
func (s *streams) received(p []byte, now int64) {
	for f, rest, ok := s.in.next(p); ok; f, rest, ok = s.in.next(rest) {
		if length := min(int64(f.length), frameMost); f.kind != frameData && length > s.largest {
			s.held += length - s.largest
			s.largest = length
		}
		i := s.indexOf(f.stream)
		switch {
		case f.kind == frameHeaders && i < 0:
			s.open = append(s.open, stream{id: f.stream, began: now, headers: int64(f.length)})
			s.put(len(s.open)-1, s.open[len(s.open)-1], 0, 0)
			i = len(s.open) - 1
		case i < 0:
			continue
		case f.kind == frameReset:
			s.drop(i)
			continue
		}
		s.applyFrame(i, f)
	}
}

// applyFrame changes a stream by a frame of its peer.
func (s *streams) applyFrame(i int, f frame) {
	changed := s.open[i]
	switch {
	case f.kind == frameContinuation:
		changed.headers += int64(f.length)
	case f.kind == frameData && changed.phase == asking:
		changed.data += int64(f.length) + dataBytes
	}
	ends := f.ends() || changed.last
	changed.last = ends && f.kind != frameData && f.flags&flagEndHeaders == 0
	if ends && !changed.last && changed.phase == asking {
		changed.phase, changed.data = asked, 0
	}
	s.change(i, changed)
}

// sent follows what is sent to the peer, and reports whether it ends a call with an answer.
func (s *streams) sent(p []byte) (answered bool) {
	for f, rest, ok := s.out.next(p); ok; f, rest, ok = s.out.next(rest) {
		i := s.indexOf(f.stream)
		switch {
		case i < 0:
		case f.ends():
			answered = true
			s.drop(i)
		case f.kind == frameReset:
			s.drop(i)
		case f.kind == frameHeaders && s.open[i].phase == asking:
			s.open[i].began = math.MaxInt64 // both sides talk, for as long as they like
		case f.kind == frameHeaders && s.open[i].phase == asked:
			changed := s.open[i]
			changed.phase = answering
			s.change(i, changed)
		}
	}
	return answered
}

// indexOf is the place of a stream that is open, or below 0. New ones are last.
func (s *streams) indexOf(id uint32) int {
	if id == 0 {
		return -1
	}
	for i := len(s.open) - 1; i >= 0; i-- {
		if s.open[i].id == id {
			return i
		}
	}
	return -1
}

func (s *streams) change(i int, to stream) {
	all, unfinished := s.open[i].takes()
	s.put(i, to, all, unfinished)
}

// put places a stream, which took that much.
func (s *streams) put(i int, to stream, all, unfinished int64) {
	s.open[i] = to
	nowAll, nowUnfinished := to.takes()
	s.held += nowAll - all
	s.unfinished += nowUnfinished - unfinished
}

func (s *streams) drop(i int) {
	all, unfinished := s.open[i].takes()
	s.held -= all
	s.unfinished -= unfinished
	s.open[i] = s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
}
