package settings

import (
	"log/slog"
	"testing"
)

func TestLevelsHaveTheReferenceServersNames(t *testing.T) {
	for name, want := range map[string]slog.Level{
		"WARN": slog.LevelWarn, "warning": slog.LevelWarn, "INFO": slog.LevelInfo, "Debug": slog.LevelDebug,
		"error": slog.LevelError,
		"trace": slog.LevelDebug - 4, "fatal": slog.LevelError + 4, "panic": slog.LevelError + 4,
	} {
		got, err := Level(name)
		if err != nil || got != want {
			t.Errorf("Level(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := Level("loud"); err == nil {
		t.Error(`Level("loud") is taken`)
	}
}

func TestLevelsHaveNames(t *testing.T) {
	for _, name := range []string{"error", "warn", "info", "debug", "trace", "fatal"} {
		level, err := Level(name)
		if err != nil || LevelName(level) != name {
			t.Errorf("the level %s is called %s (%v)", name, LevelName(level), err)
		}
	}
}
