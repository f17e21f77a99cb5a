package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// generator is the process of a load generator that waits for "go".
type generator struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	log   strings.Builder
}

// startGenerator starts this program as a load generator, and returns when it is warm. It ends with the context.
func startGenerator(ctx context.Context, o order) (*generator, error) {
	g := &generator{}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g.cmd = exec.CommandContext(ctx, self, "load")
	g.cmd.Stderr = &g.log
	// Less garbage collection leaves more of the processors to the servers.
	g.cmd.Env = []string{"GOGC=400"}
	g.cmd.SysProcAttr = childAttributes()
	g.in, err = g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.lines = bufio.NewReader(out)
	err = g.cmd.Start()
	if err != nil {
		return nil, err
	}
	err = json.NewEncoder(g.in).Encode(o)
	if err == nil {
		err = g.expect("warm")
	}
	if err != nil {
		return nil, g.wait(err)
	}
	return g, nil
}

// runLoad lets the load flow, calls measured as soon as it has ended, and returns what the generator saw.
func (g *generator) runLoad(measured func() error) (outcome, error) {
	_, err := io.WriteString(g.in, "go\n")
	if err == nil {
		err = g.expect("done")
	}
	if err == nil {
		err = measured()
	}
	var o outcome
	if err == nil {
		err = json.NewDecoder(g.lines).Decode(&o)
	}
	return o, g.wait(err)
}

func (g *generator) expect(word string) error {
	line, err := g.lines.ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(line) != word {
		return fmt.Errorf("the load generator answered %q in place of %q", line, word)
	}
	return nil
}

// wait waits for the process, which ends by itself after an outcome, and kills it after an error.
func (g *generator) wait(err error) error {
	if err != nil {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
		return fmt.Errorf("load generator: %w\n%s", err, g.log.String())
	}
	err = g.cmd.Wait()
	if err != nil {
		return fmt.Errorf("load generator: %w\n%s", err, g.log.String())
	}
	return nil
}

// limit bounds a round, so that a server that hangs ends the run.
func limit(ctx context.Context, o order) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.Warm+o.Run+patience+10*time.Second)
}
