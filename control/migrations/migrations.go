// Package migrations is the schema of the control plane's database, as steps that lead from each version to the next.
// Steps are not undone: a step that was wrong is mended by another.
package migrations

import "embed"

// Files are the steps.
//
//go:embed *.sql
var Files embed.FS
