package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// process is a child on loopback, whose output is in a file. It ends with this program, however that ends.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// startProcess starts a child in a process group of its own, so that Ctrl-C reaches this program alone, which then
// stops it. It is called on the main thread.
func startProcess(folder, name, bin string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(folder, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = env, log, log, folder
	p.cmd.SysProcAttr = childAttributes()
	err = p.cmd.Start()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	return p, nil
}

// stop asks the child to end, and ends it after two seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// await waits until the child is ready, for at most 20 seconds.
func (p *process) await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.complain(errors.New("it ended"))
		case <-ctx.Done():
			return p.complain(errors.Join(err, context.Cause(ctx)))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// complain adds the end of the child's output to an error.
func (p *process) complain(err error) error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w\n%s", p.name, err, text[max(0, len(text)-2000):])
}

// freePorts finds ports of loopback that nothing listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// redisServer is the Redis of a run. A base has one of its own, because its counters may have another form.
type redisServer struct {
	*process
	addr string
	conn *redisConn
}

// empty removes all keys.
func (r *redisServer) empty() error {
	_, err := r.conn.do("FLUSHALL SYNC")
	if err != nil {
		return r.complain(err)
	}
	return nil
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis(ctx context.Context, folder, name string) (*redisServer, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is missing; make bench installs it: %w", err)
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	r := &redisServer{addr: "127.0.0.1:" + ports[0]}
	r.process, err = startProcess(folder, name, bin, nil,
		"--bind", "127.0.0.1", "--port", ports[0], "--save", "", "--appendonly", "no", "--dir", folder)
	if err != nil {
		return nil, err
	}
	err = r.await(ctx, func() error {
		r.conn, err = dialRedis(r.addr)
		if err != nil {
			return err
		}
		_, err = r.conn.do("PING")
		return err
	})
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}
