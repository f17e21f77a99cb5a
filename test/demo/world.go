package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// World is a plan that runs.
type World struct {
	plan     *Plan
	children []*child
	ended    chan *process // whatever ended
}

// child is one service of the demo.
type child struct {
	Command
	*process
}

// process is one life of a child. It dies with the demo, however that ends.
type process struct {
	name string
	pid  int
	done chan struct{} // closed when it is gone
	told bool          // it was told to end
}

const (
	startTimeout = 30 * time.Second // for a busy machine: each takes less than a second
	stopTimeout  = 5 * time.Second
)

// StartWorld starts all commands in their order, each when the one before listens. What was started is stopped when one
// fails.
func StartWorld(ctx context.Context, plan *Plan) (*World, error) {
	w := &World{plan: plan, ended: make(chan *process, len(plan.Commands))}
	for _, command := range plan.Commands {
		c := &child{Command: command}
		w.children = append(w.children, c)
		err := w.start(ctx, c)
		if err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// Stop ends everything, the last first, and waits until it is gone.
func (w *World) Stop() {
	for i := len(w.children) - 1; i >= 0; i-- {
		w.children[i].stop()
	}
}

// Off ends one service; On starts it again.
func (w *World) Off(name string) {
	for _, c := range w.children {
		if c.Name == name {
			c.stop()
		}
	}
}

// On starts a service that is off.
func (w *World) On(ctx context.Context, name string) error {
	for _, c := range w.children {
		if c.Name == name && c.told {
			return w.start(ctx, c)
		}
	}
	return nil
}

// start starts a process and waits until it listens.
func (w *World) start(ctx context.Context, c *child) error {
	log, err := os.OpenFile(filepath.Join(w.plan.folder, c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.environment(), log, log
	cmd.SysProcAttr = childAttributes()
	err = cmd.Start()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	life := &process{name: c.Name, pid: cmd.Process.Pid, done: make(chan struct{})}
	c.process = life
	go func() {
		cmd.Wait() // how it ended stands in its log
		close(life.done)
		w.ended <- life
	}()
	err = c.await(ctx)
	if err != nil {
		return fmt.Errorf("%s does not start: %w\n%s", c.Name, err, w.tail(c.Name))
	}
	return nil
}

// environment is the command's own and nothing else, but where there is none: programs such as Envoy need a PATH or HOME.
func (c *child) environment() []string {
	if c.Env == nil {
		return os.Environ()
	}
	return c.Env
}

// await waits until the process listens on all its ports.
func (c *child) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.listens()
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (c *child) listens() error {
	for _, addr := range c.Open {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

// stop ends the process, by force after a while. Nothing happens when it is gone, or never was.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.told = true
	syscall.Kill(-p.pid, syscall.SIGTERM) // it may be gone already, which is what is wanted
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
	}
}

// tail is the end of a child's log.
func (w *World) tail(name string) string {
	const enough = 4000
	text, err := os.ReadFile(filepath.Join(w.plan.folder, name+".log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
