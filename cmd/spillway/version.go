package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version that the linker was told: `-ldflags "-X main.release=1.2.3"`. Empty without that.
var release string

// version is what this program was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: between(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			all := object{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return out.value(all, func() { out.line("spillway %s", version()) })
		},
	}
}
