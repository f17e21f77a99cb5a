package redis

// slotCount is how many slots a cluster has.
const slotCount = 16384

// SlotOf is the slot of a key in a cluster: the CRC-16 (XMODEM) of its hash tag.
func SlotOf(key string) int {
	crc := uint16(0)
	tag := hashTag(key)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % slotCount)
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
