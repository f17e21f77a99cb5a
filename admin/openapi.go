package admin

import (
	_ "embed" // for the document
	"encoding/json"
)

// document is the OpenAPI document of the API. docs/reference/api.md is written from it.
//
//go:embed openapi.json
var document []byte

// OpenAPI returns the OpenAPI 3.1 document of the API, without what callers have to bring.
func OpenAPI() []byte { return document }

// openapi serves GET /v1/openapi.json: the document, with what callers have to bring here.
func (a *API) openapi(c *call) (any, *Problem) {
	_, wrong := c.query()
	if wrong != nil {
		return nil, wrong
	}
	var d map[string]any
	err := json.Unmarshal(document, &d)
	if err != nil {
		return nil, problem(500, "the document cannot be read: %v", err)
	}
	var needs []map[string][]string
	if a.Access.Tokens != nil {
		needs = append(needs, map[string][]string{"token": {}})
	}
	if a.Access.Certified {
		needs = append(needs, map[string][]string{"certificate": {}})
	}
	if len(needs) > 0 {
		d["security"] = needs
	}
	return d, nil
}
