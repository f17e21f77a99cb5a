package httpapi

import "strconv"

// Condition is a part of the inputs of an operation that changes something: which revision it has to have. Nothing is
// changed where it has another one now.
type Condition struct {
	Match     string `header:"If-Match" like:"^(\\*|\"[1-9][0-9]{0,17}\")$"` // the etag that was answered, or *
	NoneMatch string `header:"If-None-Match" one:"*"`                        // it must not exist
}

// Revision is the one that has to be there: nil for any, 0 for none. No revision is both there and none.
func (c *Condition) Revision() *int64 {
	revision := int64(0)
	switch {
	case c.Match != "" && c.NoneMatch != "":
		revision = -1
	case c.NoneMatch != "":
	case c.Match == "", c.Match == "*":
		return nil
	default:
		revision, _ = strconv.ParseInt(c.Match[1:len(c.Match)-1], 10, 64) // the pattern allows digits alone
	}
	return &revision
}
