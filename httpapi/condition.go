package httpapi

import "strconv"

// Condition is a part of the inputs of an operation that changes something: which revision it has to have.
type Condition struct {
	Match     string `header:"If-Match" like:"^\"[1-9][0-9]{0,17}\"$"` // the etag that was answered: nothing is changed if it has another one now
	NoneMatch string `header:"If-None-Match" one:"*"`                  // nothing is changed if it exists
}

// Revision is the one that has to be there: nil for any, 0 for none. No revision is both there and none.
func (c *Condition) Revision() *int64 {
	revision := int64(0)
	switch {
	case c.Match != "" && c.NoneMatch != "":
		revision = -1
	case c.Match != "":
		revision, _ = strconv.ParseInt(c.Match[1:len(c.Match)-1], 10, 64) // the pattern allows digits alone
	case c.NoneMatch == "":
		return nil
	}
	return &revision
}
