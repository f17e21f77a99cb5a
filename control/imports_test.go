package control

import (
	"os/exec"
	"strings"
	"testing"
)

// TestSidecarsDoNotLinkPostgreSQL lists all that the sidecar's program is made of.
func TestSidecarsDoNotLinkPostgreSQL(t *testing.T) {
	for program, want := range map[string]bool{"../cmd/sidecar": false, "../cmd/spillway": true} {
		out, err := exec.Command("go", "list", "-deps", program).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		for _, module := range []string{"jackc/pgx", "pressly/goose", "spillway-mesh/spillway/control",
			"parquet-go/parquet-go", "minio/minio-go"} {
			if strings.Contains(string(out), "github.com/"+module) != want {
				t.Errorf("%s links %s: %v, want %v", program, module, !want, want)
			}
		}
	}
}
