package redis

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
)

// slotRange is a row of the map of slots.
type slotRange struct {
	first, last int64
	address     string // of its master
}

var errSlots = errors.New("the map of slots cannot be read")

// slotRanges reads the reply to CLUSTER SLOTS of the server at origin. A range without servers is left out.
func slotRanges(reply []any, origin string) (all []slotRange, err error) {
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
		address := slotMaster(fields[2], origin)
		if !isFirst || !isLast || address == "" {
			return nil, errSlots
		}
		all = append(all, slotRange{first, last, address})
	}
	return all, nil
}

// slotMaster reads one server: its host, its port, its name, and what else it may be reached by.
func slotMaster(reply any, origin string) string {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return ""
	}
	host, _ := fields[0].(string)
	port, _ := fields[1].(int64)
	if host == "?" && len(fields) > 3 {
		beside, _ := fields[3].([]any) // names and values
		if at := slices.Index(beside, any("ip")); at >= 0 && at+1 < len(beside) {
			host, _ = beside[at+1].(string)
		}
	}
	return reachable(host+":"+strconv.FormatInt(port, 10), origin)
}

// reachable is the address of a server as the one at origin named it, ready to be dialled: without a host, or on a
// machine of its own, it is where that one is. It is empty for what cannot be an address.
func reachable(address, origin string) string {
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 || colon == len(address)-1 {
		return ""
	}
	host, port := strings.Trim(address[:colon], "[]"), address[colon+1:]
	near, _, _ := net.SplitHostPort(origin)
	if host == "" || host == "?" || isLoopback(host) && !isLoopback(near) {
		host = near
	}
	return net.JoinHostPort(host, port)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
