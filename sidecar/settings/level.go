package settings

import (
	"fmt"
	"log/slog"
	"strings"
)

// levels are the names that the reference server takes. With panic or fatal the log shows no
// errors. trace shows the same lines as debug, because no line has a finer level.
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

// LevelName returns the name of a level, in a form that Level takes.
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
