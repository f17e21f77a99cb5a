package redis

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
