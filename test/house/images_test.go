package house

import (
	"regexp"
	"strings"
	"testing"
)

var ownImage = regexp.MustCompile(`[\w./-]*/spillway:([\w.-]+)`)

// TestImagesHaveOneTag: examples, chart and pages name the image by the version of the chart, and by no other style.
func TestImagesHaveOneTag(t *testing.T) {
	version := regexp.MustCompile(`(?m)^appVersion: (\S+)$`)
	tag := version.FindStringSubmatch(page(t, "deploy/helm/spillway/Chart.yaml"))[1]
	seen := 0
	for _, name := range files(t, ".yaml", ".md") {
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, image := range ownImage.FindAllStringSubmatch(page(t, name), -1) {
			seen++
			if image[1] != tag {
				t.Errorf("%s names the image %s, and not with the tag %s", name, image[0], tag)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d images found: they have another shape than this test reads", seen)
	}
}
