package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Age is a duration that may also be written in days, such as 90d.
type Age time.Duration

// UnmarshalText reads 90d, or what other durations take.
func (a *Age) UnmarshalText(text []byte) error {
	if days, found := strings.CutSuffix(string(text), "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return fmt.Errorf("%q must be a whole number of days, up to %d", text, 1<<16-1)
		}
		*a = Age(n) * Age(24*time.Hour)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	*a = Age(d)
	return err
}
