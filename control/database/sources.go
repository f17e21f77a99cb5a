package database

import "embed"

// Sources are the files whose comments describe requests and answers.
//
//go:embed *.go
var Sources embed.FS
