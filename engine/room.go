package engine

// classShare is how many times what is free one class may take. So one class alone takes eight ninths of the room, and there is
// always some left for another.
const classShare = 8

// counterBytes is what is kept for a counter without its key: an entry, its place in a map and in a queue, each with the room
// that they grow by.
const counterBytes = 288

// room bounds what is kept for counters: by their number, by bytes, and so that what one class of charges fills keeps no other out. Its
// owner guards it.
type room struct {
	bound   load
	used    load
	classes map[uint32]load // of that, what each class takes
}

// load is so many counters, and the bytes that they take.
type load struct{ counters, bytes int64 }

func newRoom(counters, bytes int64) room {
	return room{bound: load{counters, bytes}, classes: make(map[uint32]load)}
}

// sizeOf is how many bytes are kept for a counter. The allocator rounds keys up by at most a quarter.
func sizeOf(key string) int64 { return counterBytes + int64(len(key)+len(key)/4) }

// take makes room for a counter, and reports whether there is any.
func (r *room) take(class uint32, key string) bool {
	size, own := sizeOf(key), r.classes[class]
	counters, bytes := r.bound.counters-r.used.counters, r.bound.bytes-r.used.bytes
	if counters < 1 || bytes < size || own.counters >= classShare*counters || own.bytes >= classShare*bytes {
		return false
	}
	r.add(class, 1, size)
	return true
}

// give ends what take began.
func (r *room) give(class uint32, key string) { r.add(class, -1, -sizeOf(key)) }

func (r *room) add(class uint32, counters, bytes int64) {
	own := r.classes[class]
	own.counters, own.bytes = own.counters+counters, own.bytes+bytes
	r.used.counters, r.used.bytes = r.used.counters+counters, r.used.bytes+bytes
	if own.counters == 0 {
		delete(r.classes, class)
		return
	}
	r.classes[class] = own
}
