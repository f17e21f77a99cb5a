package simulation

import (
	"slices"
	"strconv"
)

// listCommand runs a command about a list.
func (d *database) listCommand(name string, a []string) (reply, bool) {
	var list []string
	if v := d.get(a[0]); v != nil {
		if v.kind() != "list" {
			return errWrongType, slices.Contains(listCommands, name)
		}
		list = v.list
	}
	switch name {
	case "LLEN":
		return int64(len(list)), true
	case "LINDEX":
		i, _ := strconv.Atoi(a[1])
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil, true
		}
		return list[i], true
	case "LRANGE":
		from, to := span(a[1], a[2], len(list))
		return slices.Clone(list[from:to]), true
	}
	return d.changeList(name, a, list)
}

var listCommands = []string{"LLEN", "LINDEX", "LRANGE", "RPUSH", "LSET", "LTRIM", "LPOP"}

// changeList runs a command that writes a list.
func (d *database) changeList(name string, a, list []string) (reply, bool) {
	switch name {
	case "RPUSH":
		list = append(slices.Clone(list), a[1:]...)
		d.make(a[0]).list = list
		return int64(len(list)), true
	case "LSET":
		i, _ := strconv.Atoi(a[1])
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return refusal("ERR index out of range"), true
		}
		list = slices.Clone(list)
		list[i] = a[2]
		d.make(a[0]).list = list
		return status("OK"), true
	case "LTRIM":
		from, to := span(a[1], a[2], len(list))
		d.keepList(a[0], list[from:to])
		return status("OK"), true
	case "LPOP":
		if len(list) == 0 {
			return nil, true
		}
		d.keepList(a[0], list[1:])
		return list[0], true
	}
	return nil, false
}

// keepList keeps some of a list. An empty one is removed.
func (d *database) keepList(key string, list []string) {
	if len(list) == 0 {
		delete(d.values, key)
		return
	}
	d.make(key).list = slices.Clone(list)
}

// span reads the first and the last place of a part of a list; negative ones count from its end. The part may be empty.
func span(first, last string, length int) (from, to int) {
	from, to = index(first, length), index(last, length)
	if n, _ := strconv.Atoi(last); n+length < 0 {
		return 0, 0
	}
	to = min(to+1, length)
	return min(from, to), to
}
