package main

import "github.com/spf13/cobra"

func newDiff() *cobra.Command { return &cobra.Command{Use: "diff"} }
