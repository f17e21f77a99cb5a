package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/httpapi"
)

// unreachable is the error of a sidecar or a control that does not answer, or refuses.
type unreachable struct{ error }

// Unwrap is the cause.
func (u *unreachable) Unwrap() error { return u.error }

const (
	askWithin = 15 * time.Second
	maxAnswer = 64 << 20
)

// peer is what a command asks: how it is called, and which flag names it.
type peer struct{ what, flag, hint string }

var aSidecar = peer{"sidecar", "server", "--server names its debug port"}

// ask sends a request to the sidecar, and returns its answer.
func ask(cmd *cobra.Command, method, path string, body any, params url.Values) (json.RawMessage, error) {
	request, err := requestOf(cmd, aSidecar, method, path, body, params)
	if err != nil {
		return nil, err
	}
	transport, err := transportOf(cmd)
	if err != nil {
		return nil, err
	}
	_, document, err := send(&http.Client{Timeout: askWithin, Transport: transport}, request, aSidecar)
	return document, err
}

// requestOf makes a request to the server that the flags name.
func requestOf(cmd *cobra.Command, to peer, method, path string, body any, params url.Values) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	at := strings.TrimSuffix(cmd.Flag(to.flag).Value.String(), "/") + path
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	if len(params) > 0 {
		at += "?" + params.Encode()
	}
	request, err := http.NewRequest(method, at, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if file := cmd.Flag("token-file").Value.String(); file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return request, nil
}

// refusal is an answer that is a problem.
type refusal struct {
	status int
	text   string
}

// Error is the status with what is wrong.
func (r *refusal) Error() string { return r.text }

// send returns the headers of the answer and its document, which is nil where it has none. A problem is an error with its detail.
func send(client *http.Client, request *http.Request, to peer) (http.Header, json.RawMessage, error) {
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, &unreachable{fmt.Errorf("%w; is a %s there? %s", err, to.what, to.hint)}
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNoContent {
		return answer.Header, nil, nil
	}
	var document json.RawMessage
	err = json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&document)
	if err != nil {
		return nil, nil, &unreachable{fmt.Errorf("%s answers %s, which is no JSON: is a %s there? %s", request.URL.Host, answer.Status, to.what, to.hint)}
	}
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusCreated {
		return answer.Header, document, nil
	}
	var wrong httpapi.Problem
	err = understand(document, &wrong)
	if err == nil {
		err = &unreachable{&refusal{answer.StatusCode, answer.Status + ": " + plainLines(wrong.Detail)}}
	}
	return nil, nil, err
}

// transportOf is how the sidecar is reached.
func transportOf(cmd *cobra.Command) (*http.Transport, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := cmd.Flag("ca").Value.String(); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New(file + " holds no certificate in PEM")
		}
	}
	if cert := cmd.Flag("cert").Value.String(); cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, cmd.Flag("key-file").Value.String())
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{TLSClientConfig: cfg, Proxy: nil}, nil
}
