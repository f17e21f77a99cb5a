package settings

import (
	"fmt"
	"log/slog"
	"strings"
)

// levels are the names that the reference server takes. What it would end the process with is an error here, and trace
// is as fine as debug.
var levels = map[string]slog.Level{
	"panic": slog.LevelError + 4, "fatal": slog.LevelError + 4, "error": slog.LevelError,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "info": slog.LevelInfo,
	"debug": slog.LevelDebug, "trace": slog.LevelDebug - 4,
}

// Level returns the level of that name, in any case.
func Level(name string) (slog.Level, error) {
	level, ok := levels[strings.ToLower(name)]
	if !ok {
		return 0, fmt.Errorf("%q is not a level: use error, warn, info, debug or trace", name)
	}
	return level, nil
}

// LevelName is the name of a level, as Level takes it.
func LevelName(level slog.Level) string {
	switch {
	case level > slog.LevelError:
		return "fatal"
	case level >= slog.LevelInfo:
		return strings.ToLower(level.String())
	case level >= slog.LevelDebug:
		return "debug"
	}
	return "trace"
}
