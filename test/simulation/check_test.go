package simulation

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// checkWire is the request as Envoy's ext_authz filter sends it. The user u1 comes from 192.0.2.1.
func (c *call) checkWire() []byte {
	at := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "192.0.2." + c.user[1:], PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 40000},
	}}}
	b, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:            &authv3.AttributeContext_Peer{Address: at},
		ContextExtensions: map[string]string{"domain": c.domain.name},
		Request: &authv3.AttributeContext_Request{
			Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/", Host: "shop.example", Scheme: "https"},
		},
	}})
	if err != nil {
		panic(err)
	}
	return b
}

// readCheck takes the answer in.
func (c *call) readCheck(wire []byte) error {
	var answer authv3.CheckResponse
	if err := proto.Unmarshal(wire, &answer); err != nil {
		return err
	}
	if answer.Status == nil {
		return fmt.Errorf("no status")
	}
	c.over = answer.Status.Code != 0
	c.degraded = answer.DynamicMetadata.GetFields()["degraded"].GetStringValue()
	for _, h := range answer.GetDeniedResponse().GetHeaders() {
		if h.GetHeader().GetKey() != "retry-after" {
			continue
		}
		value := h.Header.Value
		if value == "" {
			value = string(h.Header.RawValue)
		}
		c.retry, _ = strconv.ParseInt(value, 10, 64)
	}
	return nil
}
