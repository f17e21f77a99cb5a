package main

import (
	"net/url"
	"path/filepath"
)

// The parts of SARIF 2.1.0 that a list of problems needs. https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID          string    `json:"id"`
		Description sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// sarif is what was found in the format that code hosts show beside the lines.
func (f *findings) sarif() sarifLog {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}, Tool: sarifTool{sarifDriver{
		Name: "spillway", Version: version(), InformationURI: "https://github.com/spillway-mesh/spillway",
		Rules: []sarifRule{
			{severityError, sarifText{"The rules cannot be used."}},
			{severityWarning, sarifText{"The rules can be used, and do something else than was probably meant."}},
		},
	}}}
	for _, one := range f.Findings {
		place := sarifPhysical{Artifact: sarifArtifact{URI: fileURI(one.File)}}
		if one.Line > 0 {
			place.Region = &sarifRegion{one.Line, one.Column}
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: one.Severity, Level: one.Severity, Message: sarifText{one.Message}, Locations: []sarifLocation{{place}},
		})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

// fileURI is a file's name as a URI: relative where the name is.
func fileURI(name string) string {
	uri := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		uri.Scheme = "file"
	}
	return uri.String()
}
