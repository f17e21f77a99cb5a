package manifests

import (
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

func TestSettingsExist(t *testing.T) {
	known := settings.Variables()
	eachPod(t, func(t *testing.T, p pod, _ []document) {
		for _, e := range p.spillway.Env {
			if !slices.Contains(known, e.Name) {
				t.Errorf("%s must be a setting of the sidecar", e.Name)
			}
		}
	})
}
