// Package control is the control plane: rules, tiers, users, API keys and blocks in PostgreSQL, with who changed what
// and when. One control of several leads: it puts all of this into Redis, where sidecars take it from. Sidecars never
// ask PostgreSQL or a control.
package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/control/copier"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/erase"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/httpapi/reread"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
)

// Config sets up a Control. All fields but TokenFile, the certificate, Pools and Archive are required.
type Config struct {
	DatabaseURL string
	Pools       database.PoolSizes // connections to the database
	Listen      string             // host:port
	TokenFile   string             // who may use the API; empty: this machine alone
	Cert, Key   string             // files of a certificate and its key; empty: no TLS
	Redis       redis.Servers
	KeyPrefix   string // of the keys in Redis, as the sidecars have it
	KeySecret   string // of the keys in Redis, as the sidecars have it
	// the sidecars write identities into the record as they are, although there is a secret
	Plain   bool
	Migrate bool              // Run brings the schema of the database to what this program needs, first
	Archive *archive.Archiver // where old events go; nil: they stay in the database
	Log     *slog.Logger
	// how long usage by hour, usage by day and lines of the audit stay
	KeepHours, KeepDays, KeepAudit time.Duration
}

// What peers may hold of the control through connections, before it knows who they are.
const (
	peersMost       = 64 << 20
	connectionMost  = 256
	connectionHolds = 88 << 10 // with TLS, and without a request
)

// Control is the control plane's server. Make one with New.
type Control struct {
	cfg       Config
	database  *database.DB
	redis     *redis.Client
	publisher *publish.Publisher
	copier    *copier.Copier
	leader    *leader.Leader
	names     keys.Names // how the record names identities
	socket    net.Listener
	tokens    *reread.Files[[]httpapi.Token]  // nil: this machine alone
	pair      *reread.Files[*tls.Certificate] // nil: no TLS
	peers     *connlimit.Limit
}

// New opens the port. It waits neither for PostgreSQL nor for Redis.
func New(cfg Config) (*Control, error) {
	tokens, pair, err := openFiles(&cfg)
	if err != nil {
		return nil, err
	}
	db, err := database.Open(cfg.DatabaseURL, cfg.Pools)
	if err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	c := &Control{cfg: cfg, database: db, redis: redis.New(redis.Config{Servers: cfg.Redis}), tokens: tokens,
		pair: pair}
	c.peers = connlimit.New(peersMost, cfg.Log)
	c.socket = c.peers.Listen(socket, connlimit.Kind{
		Name: "control", Conns: connectionMost, Bytes: connectionHolds, Whole: 2 * httpapi.Headers,
	})
	c.lead()
	return c, nil
}

// lead makes the leader and its tasks.
func (c *Control) lead() {
	names := keys.NewNames(c.cfg.KeyPrefix, []byte(c.cfg.KeySecret))
	c.names = names
	if c.cfg.Plain {
		c.names = keys.NewNames(c.cfg.KeyPrefix, nil)
	}
	c.publisher = publish.New(publish.Config{Database: c.database, Redis: c.redis, Keys: names, Log: c.cfg.Log})
	c.copier = copier.New(copier.Config{
		Connect: c.database.Connect, Redis: c.redis, Keys: c.names, Log: c.cfg.Log,
		Keep: copier.Keep{Hours: c.cfg.KeepHours, Days: c.cfg.KeepDays, Audit: c.cfg.KeepAudit},
	})
	eraser := &erase.Eraser{
		Database: c.database, Publisher: c.publisher, Redis: c.redis, Keys: names, Archive: c.cfg.Archive,
		Log: c.cfg.Log,
	}
	tasks := []leader.Task{
		{Name: "feed", Run: c.publisher.Feed},
		{Name: "walk", Run: c.publisher.Walk},
		{Name: "take", Run: c.publisher.Take},
		{Name: "claim", Run: c.publisher.Claim},
		{Name: "erase", Run: eraser.Run},
		{Name: "copy", Run: c.copier.Run},
	}
	if c.cfg.Archive != nil {
		tasks = append(tasks, leader.Task{Name: "archive", Run: c.cfg.Archive.Run})
	}
	c.leader = leader.New(leader.Config{
		Connect: c.database.Connect, Ready: c.database.CheckSchema, Begin: c.publisher.Begin, Log: c.cfg.Log,
	}, tasks...)
}

// openFiles reads the files of tokens and of the certificate, again when they change. A change that cannot be read is
// logged.
func openFiles(cfg *Config) (tokens *reread.Files[[]httpapi.Token], pair *reread.Files[*tls.Certificate], err error) {
	if cfg.TokenFile != "" {
		tokens, err = api.TokenFile.Open(cfg.TokenFile, func(err error) {
			if err != nil {
				cfg.Log.Error("tokens cannot be read; those before stay", "error", err)
				return
			}
			cfg.Log.Info("tokens read again")
		})
	}
	if err != nil || cfg.Cert == "" {
		return tokens, nil, err
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("CONTROL_TLS_CERT and CONTROL_TLS_KEY: %w", err)
		}
		return &pair, nil
	}
	pair, err = reread.New([]string{cfg.Cert, cfg.Key}, read, func(err error) {
		if err != nil {
			cfg.Log.Error("the certificate changed and cannot be used; the last good one stays", "error", err)
			return
		}
		cfg.Log.Info("certificate read again")
	})
	return tokens, pair, err
}

// Reload looks at the files of tokens and of the certificate now. Requests look at them once a second.
func (c *Control) Reload() {
	if c.tokens != nil {
		c.tokens.Look()
	}
	if c.pair != nil {
		c.pair.Look()
	}
}

// Address is where it listens.
func (c *Control) Address() string { return c.socket.Addr().String() }

// Migrate brings the schema of the database to what this program needs.
func (c *Control) Migrate(ctx context.Context) (int64, error) { return c.database.Migrate(ctx, 0) }

// Run serves, publishes and copies the record until ctx ends. It may be called once.
func (c *Control) Run(ctx context.Context) error {
	served := &api.API{
		Database: c.database, Publisher: c.publisher, Leader: c.leader, Copier: c.copier, Keys: c.names,
		Archive: c.cfg.Archive, Log: c.cfg.Log,
	}
	if c.tokens != nil {
		served.Tokens = c.tokens.Current
	}
	server := httpapi.Server(served.Handler(), httpapi.Headers, 2*api.AnswerWithin)
	server.ErrorLog = httpapi.Complaints(c.cfg.Log)
	working, stop := context.WithCancel(ctx)
	defer stop()
	var done sync.WaitGroup
	done.Go(func() { c.leader.Run(working) })
	defer done.Wait()
	defer stop()
	broke := make(chan error, 2)
	go func() { broke <- c.serve(server) }()
	if c.cfg.Migrate {
		done.Go(func() { c.migrate(working, broke) })
	}
	c.cfg.Log.Info("listening", "control", c.Address())
	select {
	case <-ctx.Done():
	case err := <-broke:
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(last) // what takes longer is cut off
	return nil
}

// migrate brings the schema up to date as soon as the database answers. Where the database refuses, that is what broke.
func (c *Control) migrate(ctx context.Context, broke chan<- error) {
	for ctx.Err() == nil {
		version, err := c.Migrate(ctx)
		if err == nil {
			c.leader.Note("migrate", nil)
			c.cfg.Log.Info("the schema of the database is up to date", "version", version)
			return
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !slices.Contains(soonBack, refused.Code) {
			broke <- err
			return
		}
		c.leader.Note("migrate", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// soonBack are codes of a database that starts, stops, follows another one or has no more connections.
var soonBack = []string{"57P01", "57P02", "57P03", "25006", "53300"}

// serve serves until the server is shut down.
func (c *Control) serve(server *http.Server) error {
	var err error
	if c.pair != nil {
		current := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Current(), nil }
		server.TLSConfig = &tls.Config{GetCertificate: current}
		err = server.ServeTLS(c.socket, "", "")
	} else {
		err = server.Serve(c.socket)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// Close gives everything back.
func (c *Control) Close() error {
	err := c.publisher.Close()
	c.redis.Close()
	c.database.Close()
	_ = c.socket.Close() // the server may have closed it
	c.peers.Close()
	return err
}
