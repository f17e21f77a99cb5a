package api

import (
	"embed"
)

// pageFiles are the page of the control: HTML and JavaScript that ask /v1 and nothing else. Its look is that of the sidecar's live page.
//
//go:embed page/*.html page/*.js
var pageFiles embed.FS

// pageList is what programs get at /.
const pageList = `/                 the page of the control, in a browser
/v1/openapi.json  describes the API
/livez            whether the program runs
/readyz           whether changes can be made
/metrics          for Prometheus
`
