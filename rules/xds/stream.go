package xds

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	connectWithin = 10 * time.Second // for a connection and the answer to its first bytes
	// Servers that set no policy hang up on a client that pings more often than every five minutes.
	pingEvery  = 6 * time.Minute
	pingWithin = 20 * time.Second
)

// errSilent is why an attempt ends that gets no answer.
var errSilent = fmt.Errorf("no answer within %s", connectWithin)

// stream is one aggregated discovery stream. Every stream starts without version and nonce: versions are counters of
// one server process, so a number from another process means nothing to this one.
type stream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node    *corev3.Node
	version string // of the last response that was accepted on this stream
}

// follow opens a stream and handles its responses until it ends. It reports whether a response came.
func (s *Source) follow(ctx context.Context, k *keeper) (heard bool, err error) {
	conn, err := s.dial()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st, err := s.open(ctx, cancel, conn)
	if err != nil {
		return false, err
	}
	k.begin()
	s.turn(true, nil)
	responses := receive(ctx, st)
	for {
		r, ok := k.next(ctx, responses)
		if !ok {
			return heard, ctx.Err()
		}
		if r.err != nil {
			return heard, s.explain(ctx, r.err)
		}
		heard = true
		err = k.handle(ctx, st, r.response)
		if err != nil {
			return heard, err
		}
	}
}

func (s *Source) dial() (*grpc.ClientConn, error) {
	secured := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		secured = credentials.NewTLS(s.cfg.TLS())
	}
	conn, err := grpc.NewClient(s.cfg.Server,
		grpc.WithTransportCredentials(secured),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.cfg.MaxMessage), grpc.ForceCodecV2(newCodec())),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingWithin}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	)
	if err != nil {
		return nil, fmt.Errorf("xds: connect to %s: %w", s.cfg.Server, err)
	}
	return conn, nil
}

// open opens a stream and asks for all resources. It cancels a connection that takes too long.
func (s *Source) open(ctx context.Context, cancel context.CancelCauseFunc, conn *grpc.ClientConn) (*stream, error) {
	giveUp := time.AfterFunc(connectWithin, func() { cancel(errSilent) })
	defer giveUp.Stop()
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(s.cfg.Headers))
	client, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	st := &stream{AggregatedDiscoveryService_StreamAggregatedResourcesClient: client, node: s.node()}
	err = st.Send(&discoveryv3.DiscoveryRequest{Node: st.node, TypeUrl: typeURL})
	if err != nil {
		_, err = st.Recv() // holds the reason
		return nil, s.explain(ctx, err)
	}
	return st, nil
}

// explain returns why the stream ended: what a connection was cancelled for, rather than that it was.
func (s *Source) explain(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return fmt.Errorf("xds: %s: %s", s.cfg.Server, shorten(err.Error(), maxReason))
}

// node is how this sidecar presents itself.
func (s *Source) node() *corev3.Node {
	n := &corev3.Node{Id: s.cfg.NodeID, UserAgentName: "spillway",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	for key, value := range s.cfg.Metadata {
		n.Metadata.Fields[key] = structpb.NewStringValue(value)
	}
	return n
}

// received is a response, or why there are no more.
type received struct {
	response *discoveryv3.DiscoveryResponse
	err      error
}

// receive hands out the responses of a stream one at a time: while one is handled, at most one more is taken from the
// connection.
func receive(ctx context.Context, st *stream) <-chan received {
	out := make(chan received)
	go func() {
		for {
			response, err := st.Recv()
			select {
			case out <- received{response, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// accept sends an ACK.
func (st *stream) accept(r *discoveryv3.DiscoveryResponse) error {
	st.version = r.GetVersionInfo()
	return st.answer(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce()})
}

// refuse sends a NACK.
func (st *stream) refuse(r *discoveryv3.DiscoveryResponse, reason string) error {
	return st.answer(&discoveryv3.DiscoveryRequest{
		ResponseNonce: r.GetNonce(), ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: reason},
	})
}

func (st *stream) answer(request *discoveryv3.DiscoveryRequest) error {
	request.Node, request.TypeUrl, request.VersionInfo = st.node, typeURL, st.version
	err := st.Send(request)
	if err != nil {
		return fmt.Errorf("xds: answer a response: %w", err)
	}
	return nil
}
