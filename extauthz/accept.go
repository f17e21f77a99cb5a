package extauthz

import (
	"strings"

	"github.com/spillway-mesh/spillway/identity"
)

// weight is how much a client wants one type of content: the weight of the most specific range that names it.
type weight struct {
	specific int // 0: nothing named it
	quality  int // thousandths
}

func (w *weight) prefer(specific, quality int) {
	if specific > w.specific {
		*w = weight{specific, quality}
	}
}

// prefersText reports whether the client would rather have plain text than a problem document. One that likes both the
// same, or neither, gets the document.
func prefersText(headers []identity.Header) bool {
	var text, problem weight
	for _, h := range headers {
		if h.Name != "accept" {
			continue
		}
		for part := range strings.SplitSeq(h.Value, ",") {
			media, parameters, _ := strings.Cut(part, ";")
			rate(strings.TrimSpace(media), quality(parameters), &text, &problem)
		}
	}
	return text.quality > problem.quality
}

// rate records the weight that one media range gives to the two types. A client that reads JSON reads a problem
// document.
func rate(media string, quality int, text, problem *weight) {
	switch {
	case media == "*/*":
		text.prefer(1, quality)
		problem.prefer(1, quality)
	case strings.EqualFold(media, "text/*"):
		text.prefer(2, quality)
	case strings.EqualFold(media, "text/plain"):
		text.prefer(3, quality)
	case strings.EqualFold(media, "application/*"):
		problem.prefer(2, quality)
	case strings.EqualFold(media, "application/json"):
		problem.prefer(3, quality)
	case strings.EqualFold(media, "application/problem+json"):
		problem.prefer(4, quality)
	}
}

// quality reads the parameter q in thousandths: 1000 unless it is given, 0 when it cannot be read.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			return thousandths(strings.TrimSpace(value))
		}
	}
	return 1000
}

// thousandths reads a number from 0 to 1 with at most three decimals; more are cut.
func thousandths(number string) int {
	whole, decimals, _ := strings.Cut(number, ".")
	if whole == "1" {
		return 1000
	}
	if whole != "0" && whole != "" {
		return 0
	}
	value, scale := 0, 100
	for i := range len(decimals) {
		if decimals[i] < '0' || decimals[i] > '9' {
			return 0
		}
		value += int(decimals[i]-'0') * scale
		scale /= 10
	}
	return value
}
