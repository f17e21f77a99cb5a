package fleet

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// idled is how long the processors of this machine have been idle so far, all of them together, in steps of 10 ms. It reports whether the
// kernel tells.
func idled() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, false
	}
	_, idle, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	seconds, err := strconv.ParseFloat(idle, 64)
	return time.Duration(seconds * float64(time.Second)), err == nil
}
