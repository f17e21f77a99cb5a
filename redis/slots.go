package redis

import (
	"errors"
	"net"
	"slices"
	"strconv"
)

// slotRange is a row of the map of slots.
type slotRange struct {
	first, last int
	address     string // of its master; without a host, it is where the server is that was asked
}

var errSlots = errors.New("the map of slots cannot be read")

// slotRanges reads the reply to CLUSTER SLOTS. A range without servers is left out.
func slotRanges(reply []any) (all []slotRange, err error) {
	for _, row := range reply {
		fields, _ := row.([]any)
		if len(fields) == 2 {
			continue
		}
		if len(fields) < 3 {
			return nil, errSlots
		}
		first, isFirst := fields[0].(int64)
		last, isLast := fields[1].(int64)
		address, err := slotMaster(fields[2])
		if err != nil || !isFirst || !isLast {
			return nil, errSlots
		}
		all = append(all, slotRange{int(first), int(last), address})
	}
	return all, nil
}

// slotMaster reads one server: its host, its port, its name, and what else it may be reached by. A host that the
// server does not know is none, or a question mark.
func slotMaster(reply any) (string, error) {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return "", errSlots
	}
	port, isPort := fields[1].(int64)
	if !isPort {
		return "", errSlots
	}
	host, _ := fields[0].(string)
	if host != "?" {
		return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
	}
	host = ""
	if len(fields) > 3 {
		beside, _ := fields[3].([]any) // names and values
		if at := slices.Index(beside, any("ip")); at >= 0 && at+1 < len(beside) {
			host, _ = beside[at+1].(string)
		}
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}
