package replay

import "io"

// WriteHTML x
func (r *Report) WriteHTML(w io.Writer) error { return nil }
