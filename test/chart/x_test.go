package chart
import (
 _ "k8s.io/api/apps/v1"
 _ "k8s.io/api/core/v1"
 _ "k8s.io/api/autoscaling/v2"
 _ "k8s.io/api/policy/v1"
 _ "k8s.io/api/networking/v1"
 _ "k8s.io/apimachinery/pkg/runtime/serializer"
 _ "sigs.k8s.io/yaml"
 _ "go.yaml.in/yaml/v3"
 _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
 _ "github.com/spillway-mesh/spillway/settings"
 _ "github.com/spillway-mesh/spillway/rules"
 _ "github.com/spillway-mesh/spillway/test/servers"
)
