//go:build unix

package journal

import (
	"runtime"
	"syscall"
	"unsafe"
)

// roomOf returns the memory of n values without pointers, outside of the heap: there it would let the heap grow to
// several times its size before garbage is collected. It takes what is written to, and is given back when owner is
// garbage.
func roomOf[T any, O any](owner *O, n int) []T {
	var one T
	bytes := n * int(unsafe.Sizeof(one))
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]T, n)
	}
	runtime.AddCleanup(owner, func(m []byte) { _ = syscall.Munmap(m) }, memory)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), n)
}
