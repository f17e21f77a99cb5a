package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// program is one program that was built for one platform.
type program struct {
	platform
	name, file string
}

// names are the programs of a release.
var names = []string{"sidecar", "spillway"}

// build builds every program for every platform below a folder.
func (r *release) build(folder string) ([]program, error) {
	var built []program
	for _, p := range r.platforms {
		to := filepath.Join(folder, p.String())
		err := os.MkdirAll(to, 0o755)
		if err != nil {
			return nil, err
		}
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.release=" +
			r.version, "-o", to + string(filepath.Separator)}
		for _, name := range names {
			args = append(args, "./cmd/"+name)
			built = append(built, program{p, name, filepath.Join(to, name)})
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = r.source
		cmd.Stderr = os.Stderr
		// What else could change the bytes has a fixed value.
		cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
			"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off", "GODEBUG=")
		err = cmd.Run()
		if err != nil {
			return nil, fmt.Errorf("build for %s: %w", p, err)
		}
	}
	return built, nil
}
