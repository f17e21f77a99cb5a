package simulation

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// scripts runs the product's own scripts, as Redis does. Its caller holds the server's turn.
type scripts struct {
	server *server
	state  *lua.LState
	loaded map[string]bool // digests that this life of the server knows

	refused reply // what the last command of a script was refused with
}

// compiled are the scripts of all simulations: a server is made anew for each seed, and a script does not change.
var compiled = newMemo(func(text string) *script {
	sum := sha1.Sum([]byte(text))
	s := &script{digest: hex.EncodeToString(sum[:])}
	chunk, err := parse.Parse(strings.NewReader(text), "script")
	if err == nil {
		s.proto, err = lua.Compile(chunk, "script")
	}
	s.err = err
	digests.put(s.digest, s)
	return s
})

type script struct {
	digest string
	proto  *lua.FunctionProto
	err    error
}

func newScripts(s *server) *scripts {
	state := lua.NewState(lua.Options{RegistrySize: 1024 * 8, CallStackSize: 128})
	x := &scripts{server: s, state: state, loaded: map[string]bool{}}
	redis := state.NewTable()
	redis.RawSetString("call", state.NewFunction(x.call))
	redis.RawSetString("pcall", state.NewFunction(x.pcall))
	state.SetGlobal("redis", redis)
	structs := state.NewTable()
	structs.RawSetString("unpack", state.NewFunction(unpack))
	state.SetGlobal("struct", structs)
	return x
}

func (x *scripts) flush() { clear(x.loaded) }

// load keeps a script, and returns its digest.
func (x *scripts) load(text []byte) reply {
	s := compiled.get(text)
	if s.err != nil {
		return refusal("ERR Error compiling script (new function): " + s.err.Error())
	}
	x.loaded[s.digest] = true
	return s.digest
}

// eval runs EVAL or EVALSHA.
func (x *scripts) eval(name string, a [][]byte) reply {
	var s *script
	if name == "EVAL" {
		s = compiled.get(a[0])
		if s.err != nil {
			return refusal("ERR Error compiling script (new function): " + s.err.Error())
		}
		x.loaded[s.digest] = true
	} else {
		digest := string(a[0])
		if !x.loaded[digest] {
			return refusal("NOSCRIPT No matching script. Please use EVAL.")
		}
		s = digests.find(digest)
	}
	keys, err := strconv.Atoi(string(a[1]))
	if err != nil || keys > len(a)-2 {
		return refusal("ERR Number of keys can't be greater than number of args")
	}
	x.state.SetGlobal("KEYS", x.list(a[2:2+keys]))
	x.state.SetGlobal("ARGV", x.list(a[2+keys:]))
	x.state.Push(x.state.NewFunctionFromProto(s.proto))
	x.refused = nil
	err = x.state.PCall(0, 1, nil)
	if err != nil {
		x.state.SetTop(0)
		if x.refused == reply(errReadOnly) {
			return errReadOnly
		}
		text, _, _ := strings.Cut(err.Error(), "\n")
		return refusal("ERR " + text)
	}
	result := x.state.Get(-1)
	x.state.SetTop(0)
	return fromLua(result)
}

func (x *scripts) list(words [][]byte) *lua.LTable {
	t := x.state.CreateTable(len(words), 0)
	for _, word := range words {
		t.Append(lua.LString(word))
	}
	return t
}

// call is redis.call.
func (x *scripts) call(l *lua.LState) int {
	r := x.command(l)
	if fault, ok := r.(refusal); ok {
		x.refused = r
		l.RaiseError("%s", string(fault))
	}
	return push(l, r)
}

// pcall is redis.pcall: an error is a table.
func (x *scripts) pcall(l *lua.LState) int {
	r := x.command(l)
	fault, ok := r.(refusal)
	if !ok {
		return push(l, r)
	}
	x.refused = r
	t := l.NewTable()
	t.RawSetString("err", lua.LString(fault))
	l.Push(t)
	return 1
}

// command runs one whose words are the arguments of a function.
func (x *scripts) command(l *lua.LState) reply {
	words := make([]string, l.GetTop())
	for i := range words {
		switch v := l.Get(i + 1).(type) {
		case lua.LNumber:
			words[i] = strconv.FormatFloat(float64(v), 'g', 17, 64)
			if whole := int64(v); lua.LNumber(whole) == v {
				words[i] = strconv.FormatInt(whole, 10)
			}
		case lua.LString:
			words[i] = string(v)
		default:
			l.RaiseError("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	r, known := x.server.command(strings.ToUpper(words[0]), words[1:])
	if !known {
		l.RaiseError("ERR unknown command '%s' in a script", words[0])
	}
	return r
}

func push(l *lua.LState, r reply) int {
	switch r := r.(type) {
	case nil:
		l.Push(lua.LFalse)
	case int64:
		l.Push(lua.LNumber(r))
	case string:
		l.Push(lua.LString(r))
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		l.Push(t)
	case []string:
		t := l.CreateTable(len(r), 0)
		for _, text := range r {
			t.Append(lua.LString(text))
		}
		l.Push(t)
	}
	return 1
}

// fromLua is a script's result as Redis replies it.
func fromLua(v lua.LValue) reply {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if fault, ok := v.RawGetString("err").(lua.LString); ok {
			return refusal(fault)
		}
		all := []any{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return all
			}
			all = append(all, fromLua(item))
		}
	}
	return nil
}
