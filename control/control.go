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

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/connlimit"
	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/control/copier"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/reread"
)

// Config sets up a Control. All fields but TokenFile, the certificate, Pools and Archive are required.
type Config struct {
	DatabaseURL string
	Pools       PoolSizes // connections to the database
	Listen      string    // host:port
	TokenFile   string    // who may use the API; empty: this machine alone
	Cert, Key   string    // files of a certificate and its key; empty: no TLS
	Redis       redis.Servers
	KeyPrefix   string            // of the keys in Redis, as the sidecars have it
	KeySecret   string            // of the keys in Redis, as the sidecars have it
	Plain       bool              // the sidecars write identities into the record as they are, although there is a secret
	Migrate     bool              // Run brings the schema of the database to what this program needs, first
	Archive     *archive.Archiver // where old events go; nil: they stay in the database
	Log         *slog.Logger
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
	database  *Database
	redis     *redis.Client
	publisher *Publisher
	copier    *copier.Copier
	names     descriptors.RecordKeys // how the record names identities
	socket    net.Listener
	tokens    *reread.Files[[]Token]          // nil: this machine alone
	pair      *reread.Files[*tls.Certificate] // nil: no TLS
	peers     *connlimit.Limit
}

// New opens the port. It waits neither for PostgreSQL nor for Redis.
func New(cfg Config) (*Control, error) {
	tokens, pair, err := openFiles(&cfg)
	if err != nil {
		return nil, err
	}
	database, err := OpenDatabase(cfg.DatabaseURL, cfg.Pools)
	if err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		database.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	shared := redis.New(redis.Config{Servers: cfg.Redis})
	keys := descriptors.NewRecordKeys(cfg.KeyPrefix, []byte(cfg.KeySecret))
	publisher := NewPublisher(PublisherConfig{Database: database, Redis: shared, Keys: keys, Log: cfg.Log})
	names := keys
	if cfg.Plain {
		names = descriptors.NewRecordKeys(cfg.KeyPrefix, nil)
	}
	copies := copier.New(copier.Config{Connect: database.connect, Redis: shared, Keys: names, Log: cfg.Log})
	peers := connlimit.New(peersMost, cfg.Log)
	kind := connlimit.Kind{Name: "control", Conns: connectionMost, Bytes: connectionHolds, Whole: 2 * admin.Headers}
	socket = peers.Listen(socket, kind)
	return &Control{cfg, database, shared, publisher, copies, names, socket, tokens, pair, peers}, nil
}

// openFiles reads the files of tokens and of the certificate, again when they change. A change that cannot be read is
// logged.
func openFiles(cfg *Config) (tokens *reread.Files[[]Token], pair *reread.Files[*tls.Certificate], err error) {
	if cfg.TokenFile != "" {
		tokens, err = openTokens(cfg.TokenFile, cfg.Log)
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
	api := &API{Database: c.database, Publisher: c.publisher, Recorder: c.copier, Keys: c.names, Archive: c.cfg.Archive, Log: c.cfg.Log}
	if c.tokens != nil {
		api.Tokens = c.tokens.Current
	}
	server := admin.Server(api.Handler(), admin.Headers, 2*apiWithin)
	server.ErrorLog = admin.Complaints(c.cfg.Log)
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	var done sync.WaitGroup
	done.Go(func() { c.publisher.Run(publishing) })
	done.Go(func() { c.whileLeading(publishing, "copier", c.copier.Run) })
	eraser := &Eraser{Database: c.database, Publisher: c.publisher, Archive: c.cfg.Archive, Log: c.cfg.Log}
	done.Go(func() { eraser.Run(publishing) })
	if c.cfg.Archive != nil {
		done.Go(func() { c.whileLeading(publishing, "archive", c.cfg.Archive.Run) })
	}
	defer done.Wait()
	defer stop()
	broke := make(chan error, 2)
	go func() { broke <- c.serve(server) }()
	if c.cfg.Migrate {
		done.Go(func() { c.migrate(publishing, broke) })
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
			c.cfg.Log.Info("the schema of the database is up to date", "version", version)
			return
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !slices.Contains(soonBack, refused.Code) {
			broke <- err
			return
		}
		c.publisher.note(err)
		pause(ctx, lookEvery)
	}
}

// whileLeading runs a task while this control leads, again a second after it has returned.
func (c *Control) whileLeading(ctx context.Context, name string, task func(context.Context, <-chan struct{}) error) {
	before := ""
	for ; ctx.Err() == nil; pause(ctx, lookEvery) {
		if !c.publisher.leads.Load() {
			continue
		}
		term, stop := context.WithCancel(ctx)
		go func() {
			for term.Err() == nil && c.publisher.leads.Load() {
				pause(term, lookEvery)
			}
			stop()
		}()
		err := task(term, nil)
		if err != nil && term.Err() == nil && err.Error() != before {
			before = err.Error()
			c.cfg.Log.Warn("a task of the control fails and is tried again", "task", name, "error", err)
		}
		stop()
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
