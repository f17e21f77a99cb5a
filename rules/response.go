package rules

import (
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
)

// response makes a reader for the answer to a refused client.
func (d *decoder) response(to **descriptors.Response) reader {
	return func(n *node) {
		r := &descriptors.Response{}
		*to = r
		d.object(n, map[string]reader{
			"status":      d.small(&r.Status, 200, 599),
			"message":     d.name(&r.Message),
			"headers":     d.headers(&r.Headers),
			"retry_after": d.span(&r.RetryAfter),
		})
		if n.kind == mapping && len(n.fields) == 0 {
			d.fail(n, "response is empty; remove the key, or say what to answer")
		}
	}
}

// headers makes a reader for response headers, which keep their order.
func (d *decoder) headers(to *[]descriptors.Header) reader {
	return func(n *node) {
		seen := map[string]bool{}
		d.table(n, func(key, value *node) {
			var header descriptors.Header
			sound := d.sound(func() {
				d.headerName(&header.Name)(key)
				header.Value, _ = d.string(value)
				d.printable(value)
			})
			if seen[strings.ToLower(header.Name)] {
				d.fail(key, "the header %q stands here twice; remove one", key.text)
			}
			seen[strings.ToLower(header.Name)] = true
			if sound {
				*to = append(*to, header)
			}
		})
	}
}

// headerName makes a reader for the name of a header.
func (d *decoder) headerName(to *string) reader {
	return func(n *node) {
		if n.describes(scalar) {
			n.accept(matching("[-0-9A-Za-z" + strings.ReplaceAll(descriptors.TokenMarks, "-", "") + "]+"))
			return
		}
		text, ok := d.word(n, n.label)
		if !ok {
			return
		}
		if !descriptors.Token(text) {
			d.fail(n, "%q must be a header name of letters, digits and dashes", clip(text))
			return
		}
		*to = text
	}
}
