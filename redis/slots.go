package redis

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// slotCount is how many slots a cluster has.
const slotCount = 16384

// SlotOf is the slot of a key in a cluster: the CRC-16 (XMODEM) of its hash tag.
func SlotOf(key string) int {
	crc, tag := uint16(0), hashTag(key)
	for i := range len(tag) {
		x := crc>>8 ^ uint16(tag[i])
		x ^= x >> 4
		crc = crc<<8 ^ x<<12 ^ x<<5 ^ x
	}
	return int(crc % slotCount)
}

// slotRow reads a row of the reply to CLUSTER SLOTS of the server at origin: a range of slots, their master, which is
// empty if they have none, and its replicas.
func slotRow(reply any, origin string) (first, last int64, master string, replicas []string) {
	row, _ := reply.([]any)
	if len(row) < 3 {
		return 0, 0, "", nil
	}
	first, _ = row[0].(int64)
	last, _ = row[1].(int64)
	for _, server := range row[3:] {
		replicas = append(replicas, slotServer(server, origin))
	}
	return first, last, slotServer(row[2], origin), replicas
}

// slotServer is the address of a server in such a row, empty where it has none.
func slotServer(reply any, origin string) string {
	server, _ := reply.([]any) // its host, its port, its name, and what else it may be reached by
	if len(server) < 2 {
		return ""
	}
	host, _ := server[0].(string)
	port, _ := server[1].(int64)
	if host == "?" && len(server) > 3 {
		beside, _ := server[3].([]any) // names and values
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

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
