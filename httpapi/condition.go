package httpapi

import "strconv"

// Condition is a part of the inputs of an operation that changes something: which revision it has to have.
type Condition struct {
	Match     string `header:"If-Match" like:"^\"[1-9][0-9]{0,17}\"$"` // the etag that was answered: nothing is changed if it has another one now
	NoneMatch string `header:"If-None-Match" one:"*"`                  // nothing is changed if it exists
}

// Revision is the one that has to be there: nil for any, 0 for none.
func (c *Condition) Revision() (*int64, error) {
	switch {
	case c.Match != "" && c.NoneMatch != "":
		return nil, Cannot("if-match and if-none-match are both sent: send one of them")
	case c.NoneMatch != "":
		return new(int64), nil
	case c.Match == "":
		return nil, nil
	}
	n, err := strconv.ParseInt(c.Match[1:len(c.Match)-1], 10, 64)
	return &n, err
}
