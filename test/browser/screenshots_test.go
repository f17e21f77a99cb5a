package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

var screenshots = flag.String("screenshots", "", "folder that gets pictures of the live page, after a minute and a "+
	"half of requests")

// shots are the pictures of the docs.
var shots = []struct {
	name, scheme  string
	width, height int
}{
	{"page-light.png", "light", 1280, 1400}, {"page-dark.png", "dark", 1920, 1200},
	{"page-phone.png", "light", 375, 1500}, {"page-phone-dark.png", "dark", 375, 1500},
}

const mostShot = 150 << 10 // bytes

// shopRules have something of each kind to look at.
const shopRules = `domain: shop
rules:
  - { name: per-user, scope: user, limit: 600/1m }
  - { name: search, scope: [user, endpoint], match: { endpoints: ["/search"] }, limit: { count: 120, per: 1m,
      algorithm: sliding_window } }
  - { name: checkout, scope: user, match: { endpoints: ["/checkout"] }, limit: 30/1m }
  - { name: gold, scope: user, match: { tiers: [gold] }, limit: 5000/1m }
  - { name: per-tenant, scope: tenant, limit: 100000/1h }
  - { name: crawlers, match: { users: [scraper-7] }, action: block, reason: "Use the export API." }
`

// TestScreenshots takes the pictures of docs/: with -screenshots it writes them, and without it takes them all the
// same.
func TestScreenshots(t *testing.T) {
	redis := servers.StartRedis(t)
	w := watch(t, sidecar(t, shopRules, "REDIS_URL="+redis.Addr))
	sidecar(t, shopRules, "REDIS_URL="+redis.Addr)
	crowd(t, w)
	columns := 3
	if *screenshots != "" {
		columns = 90
	}
	w.set(t, "ask-path", "/checkout")
	w.set(t, "ask-peer", "192.0.2.7")
	w.click(t, "#ask button")
	w.tab.Await(t, `document.querySelectorAll("#explained table").length > 0 || document.querySelector("#explained `+
		`.notice")`)
	w.set(t, "who-name", "carol")
	w.set(t, "who-endpoint", "/search")
	for _, part := range []int{columns / 2, columns} {
		w.tab.Await(t, fmt.Sprintf(`document.querySelector("#chart `+
			`path.o-allowed").getAttribute("d").split("M").length > %d`, part))
	}
	w.click(t, "#look")
	w.tab.Await(t, inside("left", "per-user")+" && "+inside("tile-fleet", "2 sidecars")+
		` && document.querySelectorAll("#refusal-list li").length > 2`)
	for _, shot := range shots {
		w.tab.Screen(t, shot.width, shot.height, shot.scheme)
		w.tab.Await(t, "innerWidth === "+fmt.Sprint(shot.width))
		w.tab.Await(t, fmt.Sprintf("document.querySelector('#rules > details').open === %t", shot.width > 640))
		keep(t, shot.name, w.tab.Shot(t))
	}
	redis.Kill(t)
	w.tab.Screen(t, 1280, 560, "light")
	w.tab.Await(t, inside("notices", "Redis does not decide")+" && "+inside("tile-breaker", "open"))
	keep(t, "page-outage.png", w.tab.Shot(t))
}

// keep writes a picture into the folder that -screenshots names, if there is one, and checks the one of docs/.
func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	if *screenshots != "" {
		must.Do(t, os.WriteFile(filepath.Join(servers.Root(t), *screenshots, name), smaller(t, picture), 0o644))
	}
	held, err := os.ReadFile(filepath.Join(servers.Root(t), "docs", "pictures", name))
	if err != nil {
		t.Fatalf("make screenshots makes it: %v", err)
	}
	was, err := png.DecodeConfig(bytes.NewReader(held))
	if err != nil {
		t.Fatalf("docs/pictures/%s: %v", name, err)
	}
	now, err := png.DecodeConfig(bytes.NewReader(picture))
	if err != nil || len(held) > mostShot || was.Width != now.Width || was.Height != now.Height {
		t.Errorf("docs/pictures/%s has %d bytes and %d by %d pixels, want at most %d and %d by %d: %v", name, len(held),
			was.Width, was.Height, mostShot, now.Width, now.Height, err)
	}
}

// crowd sends requests until the test ends: many users, some of whom ask too often.
func crowd(t *testing.T, w *world) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-ended
	})
	users := []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "scraper-7"}
	paths := []string{"/", "/cart", "/search", "/checkout", "/items"}
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			beat := float64(time.Now().UnixMilli()) / 1000
			for range int(6 + 3*math.Sin(beat/9) + 2*math.Sin(beat/2.3)) {
				n++
				user := users[(n*n+n/7)%len(users)]
				if n%3 == 0 {
					user = "carol"
				}
				_, _ = w.calls.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "shop",
					Descriptors: []*commonv3.RateLimitDescriptor{
						{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user},
							{Key: "path", Value: paths[n%4]}}},
					}}) // the picture has no failed calls
			}
		}
	}()
}

// smaller is a picture with at most 256 colours, which is enough for a page and takes a third of the bytes.
func smaller(t *testing.T, picture []byte) []byte {
	t.Helper()
	from := must.Get(png.Decode(bytes.NewReader(picture)))(t)
	to := image.NewPaletted(from.Bounds(), palette(from))
	draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
	var out bytes.Buffer
	must.Do(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}

// palette is the 256 colours that a picture has most of, of which no two are nearly the same.
func palette(of image.Image) color.Palette {
	counts := map[color.RGBA]int{}
	for y := of.Bounds().Min.Y; y < of.Bounds().Max.Y; y++ {
		for x := of.Bounds().Min.X; x < of.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(of.At(x, y)).(color.RGBA)]++
		}
	}
	var all []color.RGBA
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var chosen color.Palette
	for i, c := range all {
		if len(chosen) == 256 {
			break
		}
		if i < 48 || !near(chosen, c) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// near reports whether a palette has nearly that colour.
func near(chosen color.Palette, c color.RGBA) bool {
	other := chosen.Convert(c).(color.RGBA)
	apart := func(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
	return apart(c.R, other.R)+apart(c.G, other.G)+apart(c.B, other.B) < 12
}
