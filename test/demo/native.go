package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/settings"
)

// Programs are what stands in for the images.
type Programs struct{ Envoy, Redis, Sidecar string }

// Plan is how the services of a compose file run on this machine, all on loopback: which program, with which arguments and
// environment, on which ports. Services whose image none of the programs replaces are left out.
type Plan struct {
	Commands []Command
	at       map[place]string // host:port on this machine of what others may use
	away     map[string]bool  // services that are left out
	folder   string           // for configurations that had to be rewritten
}

// Command is one service as a process.
type Command struct {
	Name string
	Path string
	Args []string
	Env  []string // all of it
	Open []string // host:port on which it will listen
}

// place is a port of a container.
type place struct {
	service string
	port    int
}

// loopback is where everything listens, and nowhere where nothing does: what the demo leaves out is looked for there.
const (
	loopback = "127.0.0.1"
	nowhere  = "127.0.0.1:1"
)

// NewPlan chooses ports and makes commands. Published ports keep their number, unless that is 0, which picks a free one.
func NewPlan(c *Compose, programs Programs, folder string) (*Plan, error) {
	p := &Plan{at: map[place]string{}, away: map[string]bool{}, folder: folder}
	for i := range c.Services {
		s := &c.Services[i]
		if programs.of(s) == "" {
			p.away[s.Name] = true
			continue
		}
		err := p.assign(s)
		if err != nil {
			return nil, err
		}
	}
	for i := range c.Services {
		s := &c.Services[i]
		if p.away[s.Name] {
			continue
		}
		made, err := p.command(c, s, programs.of(s))
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
		p.Commands = append(p.Commands, *made)
	}
	return p, nil
}

// of is the program that stands in for a service's image, or nothing.
func (p Programs) of(s *Service) string {
	switch {
	case s.Build != nil:
		return p.Sidecar
	case len(s.Command) > 0 && s.Command[0] == "envoy":
		return p.Envoy
	case len(s.Command) > 0 && s.Command[0] == "redis-server":
		return p.Redis
	}
	return ""
}

// At is where a container's port is on this machine.
func (p *Plan) At(service string, port int) string {
	return p.at[place{service, port}]
}

func (p *Plan) assign(s *Service) error {
	published, err := s.Published()
	if err != nil {
		return err
	}
	open, err := s.Open()
	if err != nil {
		return err
	}
	fixed := map[int]int{}
	for _, one := range published {
		fixed[one.Container] = one.Host
	}
	for _, port := range open {
		addr, err := free(fixed[port])
		if err != nil {
			return fmt.Errorf("service %s: port %d cannot be used; docker-compose.yaml names the variable that changes it: %w", s.Name, fixed[port], err)
		}
		p.at[place{s.Name, port}] = addr
	}
	return nil
}

// free is a loopback address that no program listens on at the moment. Port 0 picks one.
func free(port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (p *Plan) command(c *Compose, s *Service, program string) (*Command, error) {
	made := &Command{Name: s.Name, Path: program}
	open, err := s.Open()
	if err != nil {
		return nil, err
	}
	for _, port := range open {
		made.Open = append(made.Open, p.At(s.Name, port))
	}
	mounts, err := c.Mounts(s)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Build != nil:
		made.Env, err = p.sidecar(s, mounts)
	case s.Command[0] == "redis-server":
		made.Args = append(s.Command[1:], "--bind", loopback, "--port", portOf(made.Open[0]), "--dir", p.folder)
	default:
		made.Args, err = p.envoy(s, mounts)
	}
	return made, err
}

// envoy is the arguments with paths of this machine: configurations are rewritten into copies.
func (p *Plan) envoy(s *Service, mounts []Mount) ([]string, error) {
	args := append([]string{}, s.Command[1:]...)
	for _, m := range mounts {
		text, err := os.ReadFile(m.Source)
		if err != nil {
			return nil, err
		}
		rewritten, err := p.rewrite(s.Name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Source, err)
		}
		copied := filepath.Join(p.folder, filepath.Base(m.Source))
		err = os.WriteFile(copied, []byte(rewritten), 0o600)
		if err != nil {
			return nil, err
		}
		for i := range args {
			if args[i] == m.Target {
				args[i] = copied
			}
		}
	}
	return args, nil
}

var address = regexp.MustCompile(`\{address: ([A-Za-z0-9.-]+), port_value: (\d+)\}`)

// rewrite puts addresses of this machine into an Envoy configuration: 0.0.0.0 is the service itself, other names are services.
func (p *Plan) rewrite(service, text string) (string, error) {
	var bad []error
	found := 0
	text = address.ReplaceAllStringFunc(text, func(whole string) string {
		found++
		parts := address.FindStringSubmatch(whole)
		name := parts[1]
		if name == "0.0.0.0" {
			name = service
		}
		host, err := p.locate(name, parts[2])
		bad = append(bad, err)
		return fmt.Sprintf("{address: %s, port_value: %s}", loopback, portOf(host))
	})
	if strings.Count(text, "port_value") != found {
		bad = append(bad, errors.New("an address is not written as {address: name, port_value: number}"))
	}
	return text, errors.Join(bad...)
}

// locate is where a service's port is on this machine: nowhere for services that are left out.
func (p *Plan) locate(service, port string) (string, error) {
	if p.away[service] {
		return nowhere, nil
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	at := p.At(service, number)
	if at == "" {
		return nowhere, fmt.Errorf("%s:%s is no service with that port open", service, port)
	}
	return at, nil
}

// hostPort finds name:port in a setting.
var hostPort = regexp.MustCompile(`\b([a-z][a-z0-9-]*):(\d+)\b`)

// sidecar is the environment with paths, hosts and ports of this machine. Tracing is off, since its collector is left out.
func (p *Plan) sidecar(s *Service, mounts []Mount) ([]string, error) {
	var env []string
	var bad []error
	for name, value := range s.Environment {
		if strings.HasPrefix(name, "OTEL_") {
			continue
		}
		if value == "0.0.0.0" {
			value = loopback
		}
		for _, m := range mounts {
			if value == m.Target {
				value = m.Source
			}
		}
		value = hostPort.ReplaceAllStringFunc(value, func(found string) string {
			other, port, _ := strings.Cut(found, ":")
			at, err := p.locate(other, port)
			bad = append(bad, err)
			return at
		})
		env = append(env, name+"="+value)
	}
	listen, err := p.listen(s, env)
	return append(env, listen...), errors.Join(append(bad, err)...)
}

// listen moves the listeners from the container's ports to those of this machine.
func (p *Plan) listen(s *Service, env []string) ([]string, error) {
	cfg, err := settings.FromEnvironment(env, "sidecar")
	if err != nil {
		return nil, err
	}
	var moved []string
	for name, port := range map[string]uint16{"PORT": cfg.Listen.Port, "GRPC_PORT": cfg.Listen.GRPCPort, "DEBUG_PORT": cfg.Listen.DebugPort} {
		at := p.At(s.Name, int(port))
		if at == "" {
			return nil, fmt.Errorf("%s is %d, which is not exposed", name, port)
		}
		moved = append(moved, name+"="+portOf(at))
	}
	return moved, nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
