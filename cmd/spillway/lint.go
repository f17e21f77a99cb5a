package main

import (
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/rules"
)

// finding is one problem, for programs.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"` // error or warning
	Message  string `json:"message"`  // what is wrong, and what to do
}

// findings is what lint found.
type findings struct {
	Files    int       `json:"files"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Findings []finding `json:"findings"`
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

func newLint() *cobra.Command {
	strict, merge := false, false
	cmd := &cobra.Command{
		Use: "lint FILE|FOLDER...", Short: "Report every problem of rule files",
		Long: `lint reads rule files as the sidecar would, and reports every problem and warning with its position and
what to do. All files are one rule set: a domain in two of them is a problem, unless --merge-domains is given. A
folder is its .yaml and .yml files.`,
		Example: "  spillway lint rules/\n  spillway lint -o sarif shop.yaml >lint.sarif",
		Args:    between(1, many), ValidArgsFunction: ruleFiles,
		RunE: printing(func(_ *cobra.Command, out *printer, args []string) error {
			found, err := lint(rules.FilesConfig{MergeDomains: merge}, args)
			if err == nil {
				err = found.print(out)
			}
			if err == nil && (found.Errors > 0 || strict && found.Warnings > 0) {
				err = exit(exitFound)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings count as problems")
	addMerge(cmd, &merge)
	return cmd
}

// lint checks the files. An error means that they could not be read at all.
func lint(cfg rules.FilesConfig, paths []string) (*findings, error) {
	load := rules.Read(cfg, paths...)
	if load.Err != nil {
		return nil, load.Err
	}
	found := &findings{Files: load.Files, Findings: []finding{}}
	for _, p := range load.Problems {
		found.note(p)
	}
	return found, nil
}

func (f *findings) note(p rules.Problem) {
	one := finding{File: p.File, Line: p.Line, Column: p.Column, Severity: severityError, Message: p.Text}
	if p.Warning {
		one.Severity = severityWarning
		f.Warnings++
	} else {
		f.Errors++
	}
	f.Findings = append(f.Findings, one)
}

func (f *findings) print(out *printer) error {
	if out.format == "sarif" {
		return out.value(f.sarif(), nil)
	}
	return out.value(f, func() {
		for _, one := range f.Findings {
			out.painted(cleanText(one.place()), ": ", out.stated(one.Severity+": "+one.Message))
		}
		out.line("%s, %s in %s", counted(f.Errors, "problem"), counted(f.Warnings, "warning"), counted(f.Files, "file"))
	})
}

// place is where the finding is, as compilers write it.
func (f finding) place() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
	}
	return f.File
}

// sarif is what was found in SARIF 2.1.0, which code hosts show beside the lines.
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
func (f *findings) sarif() object {
	results := []object{}
	for _, one := range f.Findings {
		place := object{"artifactLocation": object{"uri": fileURI(one.File)}}
		if one.Line > 0 {
			place["region"] = object{"startLine": one.Line, "startColumn": max(one.Column, 1)}
		}
		results = append(results, object{
			"ruleId": one.Severity, "level": one.Severity, "message": object{"text": one.Message},
			"locations": []object{{"physicalLocation": place}},
		})
	}
	rule := func(id, text string) object { return object{"id": id, "shortDescription": object{"text": text}} }
	driver := object{
		"name": "spillway", "version": version(), "informationUri": "https://github.com/spillway-mesh/spillway",
		"rules": []object{
			rule(severityError, "The rules cannot be used."),
			rule(severityWarning, "The rules can be used, and do something else than was probably meant."),
		},
	}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}},
	}
}

// fileURI is a file's name as a URI: relative where the name is.
func fileURI(name string) string {
	uri := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		uri.Scheme = "file"
	}
	return uri.String()
}
