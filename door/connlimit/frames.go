package connlimit

import "encoding/binary"

// preface is how many bytes a client of HTTP/2 sends before its first frame.
const preface = 24

// What a frame is, and what its flags mean.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
)

// frame is the head of a frame of HTTP/2.
type frame struct {
	length      int
	kind, flags byte
	stream      uint32
}

func (f frame) ends() bool { return f.flags&flagEndStream != 0 && f.kind <= frameHeaders }

// frames follows one direction of a connection of HTTP/2 from frame to frame. It looks at nothing but their heads.
type frames struct {
	head [9]byte
	have int // bytes of the head
	rest int // bytes until the next head
}

// next returns the head of the next frame that begins in p, with what follows it. ok is false when none begins there.
func (f *frames) next(p []byte) (head frame, after []byte, ok bool) {
	n := min(f.rest, len(p))
	f.rest -= n
	p = p[n:]
	n = copy(f.head[f.have:], p)
	f.have += n
	if f.have < len(f.head) {
		return frame{}, nil, false
	}
	f.have = 0
	h := &f.head
	f.rest = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	id := binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)
	return frame{length: f.rest, kind: h[3], flags: h[4], stream: id}, p[n:], true
}
