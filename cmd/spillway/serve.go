package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control"
	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

func newControl() *cobra.Command {
	cmd := group("control", "", "Run the control plane", "Run the control plane. Other commands ask it by its API.")
	serve := &cobra.Command{
		Use: "serve", Short: "Serve the control plane, with PostgreSQL and Redis",
		Example: "  CONTROL_DATABASE_URL=postgres://db/spillway REDIS_URL=redis:6379 spillway control serve --migrate",
		Args:    between(0, 0),
		Long: `Serve the API of the control plane, and put what its database holds into Redis, where sidecars with
RULES=redis: take it. Of several controls one does so; the others wait, and serve the API.
docs/reference/environment.md lists its variables, docs/guides/control.md explains the API.`,
		RunE: serveControl,
	}
	serve.Flags().Bool("migrate", false, "bring the schema of the database up to date, first")
	serve.Flags().Bool("migrate-only", false, "bring it up to date, and end")
	cmd.AddCommand(serve, newStatus())
	return cmd
}

// newStatus makes the command that shows how a control does.
func newStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show whether a control leads, and what it has left to do",
		Example: "  spillway control status", Args: between(0, 0),
		Long: `Show whether the control that is asked leads, how many changes are not in Redis yet, and why it cannot
publish or copy, if it cannot. It ends with 1 where there is such a problem.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := start(cmd, controlAPI)
			if err == nil {
				s.status()
			}
			return s.err
		},
	}
}

// status prints how the control does.
func (s *session) status() {
	now := s.get("/v1/status", nil)
	s.print(now, func() {
		s.facts(now, columns(`LEADS leads | PENDING CHANGES pending | MENDED PROFILES mended | COMPARED AT walked_at:when |
			PROBLEM problem | YOU caller | YOUR ROLE role | YOUR DOMAINS domains`))
	})
	s.found(text(now, "problem") != "")
}

// serveControl runs until a signal.
func serveControl(cmd *cobra.Command, _ []string) error {
	own, shared, err := settings.ControlFromEnvironment(os.Environ())
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a log whose reader is gone costs its lines, and not the process
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // reads files again; one that comes early ends nothing
	defer signal.Stop(hangUps)
	log := control.NewLog(cmd.OutOrStdout())
	cfg := control.Config{
		DatabaseURL: own.Database, Listen: own.Listen, Cert: own.Cert, Key: own.Key, TokenFile: own.Tokens, Log: log,
		Pools:     database.PoolSizes{Changes: own.Changes, Reads: own.Reads, Blocks: own.Blocks},
		KeyPrefix: shared.Store.KeyPrefix, KeySecret: shared.Store.KeySecret, Plain: shared.Record.Plain,
		KeepHours: time.Duration(own.KeepHours), KeepDays: time.Duration(own.KeepDays),
		KeepAudit: time.Duration(own.KeepAudit),
	}
	cfg.Redis, err = shared.RedisServers(log)
	if err != nil {
		return err
	}
	if own.Archive != "" {
		store, err := openStore(&own)
		if err == nil {
			cfg.Archive, err = newArchiver(store, &own, log)
		}
		if err != nil {
			return err
		}
		defer cfg.Archive.Close()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return runControl(ctx, hangUps, cmd, cfg)
}

func runControl(ctx context.Context, hangUps <-chan os.Signal, cmd *cobra.Command, cfg control.Config) error {
	cfg.Migrate, _ = cmd.Flags().GetBool("migrate")
	c, err := control.New(cfg)
	if err != nil {
		return err
	}
	only, _ := cmd.Flags().GetBool("migrate-only")
	if only {
		version, err := c.Migrate(ctx)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		cfg.Log.Info("the schema of the database is up to date", "version", version)
		return c.Close()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for {
			select {
			case <-hangUps:
				c.Reload()
			case <-ctx.Done():
				return
			}
		}
	}()
	return errors.Join(c.Run(ctx), c.Close())
}

func newTokens() *cobra.Command {
	cmd := group("tokens", "token", "Make tokens for the API of the control plane",
		"Make tokens for the API of the control plane.")
	var domains []string
	create := &cobra.Command{
		Use: "create ROLE NAME", Short: "Make a token", Args: between(2, 2),
		ValidArgs: []string{"viewer", "operator", "admin"},
		Example:   "  spillway tokens create admin alice\n  spillway tokens create operator bob --domains shop,test",
		Long: `Make a token. The first line is the token, which is shown this once. The second is the line for
CONTROL_TOKEN_FILE, with the SHA-256 of the token. The roles are viewer, operator (users, API keys and blocks) and
admin (tiers and rules, too). --domains limits the token to some domains: what is about all domains is then refused,
and lists leave out the others.`,
		RunE: printing(func(_ *cobra.Command, out *printer, args []string) error {
			secret, line, err := api.TokenFile.New(args[0], args[1], domains...)
			if err != nil {
				return err
			}
			return out.value(object{"token": secret, "line": line}, func() { out.line("%s\n%s", secret, line) })
		}),
	}
	create.Flags().StringSliceVar(&domains, "domains", nil,
		"domains that it is for, with commas between them; default: all")
	cmd.AddCommand(create)
	return cmd
}
