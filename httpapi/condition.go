package httpapi

import "strconv"

// Condition is a part of the inputs of an operation that changes something: which revision it has to have. Nothing is
// changed where it has another one now.
type Condition struct {
	Match     etag   `header:"If-Match"`              // the ETag that was answered, or *
	NoneMatch string `header:"If-None-Match" one:"*"` // it must not exist
}

// etag is a revision in quotes, or *.
type etag string

// Schema describes it.
func (*etag) Schema() *Schema {
	return &Schema{Description: "An ETag that was answered, or *.", AnyOf: []*Schema{
		{Type: "string", Enum: []string{"*"}}, {Type: "string", Pattern: `^"[1-9][0-9]{0,17}"$`},
	}}
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
		revision, _ = strconv.ParseInt(string(c.Match[1:len(c.Match)-1]), 10, 64) // the pattern allows digits alone
	}
	return &revision
}
