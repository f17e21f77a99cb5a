package sidecar

import (
	"context"
	"log/slog"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// logLevel lets the level of the log be read and changed while the sidecar runs. The next start has LOG_LEVEL again.
func (s *Sidecar) logLevel() admin.LogLevel {
	return admin.LogLevel{
		Get: func() string { return settings.LevelName(s.level.Level()) },
		Set: func(name string) error {
			level, err := settings.Level(name)
			if err != nil {
				return err
			}
			s.level.Set(level)
			// The one line that every level shows, so that a silence in the log has a reason in it.
			s.loadLog.Log(context.Background(), max(level, slog.LevelWarn), "the level of the log was changed", "to", settings.LevelName(level))
			return nil
		},
	}
}
