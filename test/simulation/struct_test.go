package simulation

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

// unpack is that of the struct library that Redis gives to scripts, big-endian, of the formats d B I4 and x.
func unpack(l *lua.LState) int {
	format, text := l.CheckString(1), l.CheckString(2)
	at := l.OptInt(3, 1) - 1
	n := 0
	for i := 0; i < len(format); i++ {
		size := 0
		switch format[i] {
		case '>', '<', '4':
			continue
		case 'x', 'B':
			size = 1
		case 'd':
			size = 8
		case 'I':
			size = 4
		default:
			l.RaiseError("invalid format option '%c'", format[i])
		}
		if at < 0 || at+size > len(text) {
			l.RaiseError("data string too short")
		}
		some := text[at : at+size]
		at += size
		switch format[i] {
		case 'B':
			l.Push(lua.LNumber(some[0]))
		case 'd':
			l.Push(lua.LNumber(math.Float64frombits(bits(some))))
		case 'I':
			l.Push(lua.LNumber(bits(some)))
		default:
			continue
		}
		n++
	}
	l.Push(lua.LNumber(at + 1))
	return n + 1
}

// bits reads a big-endian number.
func bits(text string) (n uint64) {
	for i := range len(text) {
		n = n<<8 | uint64(text[i])
	}
	return n
}
