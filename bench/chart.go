package main

import (
	"fmt"
	"math"
	"strings"
)

// The measures of the chart, in pixels.
const (
	chartWidth = 860
	labelWidth = 190
	panelGap   = 70
	barHeight  = 15
	rowHeight  = 2*barHeight + 18
	chartHead  = 64
	panelWidth = (chartWidth - labelWidth - panelGap - 60) / 2
)

const chartStyle = `<style>
text { font: 13px sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #59636e; }
.bad { fill: #cf222e; }
.ground { fill: #ffffff; }
.axis { stroke: #d1d9e0; }
.reference { fill: #9aa4af; } .referenceRedis { fill: #5d6874; }
.Spillway { fill: #2f81c4; } .SpillwayRedis { fill: #174f82; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .small { fill: #9198a1; } .bad { fill: #ff7b72; } .ground { fill: #0d1117; } .axis { stroke: #3d444d; }
.reference { fill: #8b949e; } .referenceRedis { fill: #c3cad2; } .Spillway { fill: #4493f8; } .SpillwayRedis { fill: #a5cfff; }
}
</style>
`

// chart draws the studies as an SVG: on the left processor time per decision, server and Redis one behind the other, on the right
// decisions per second.
func chart(studies []*study) string {
	var out strings.Builder
	height := chartHead + len(studies)*rowHeight + 16
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="Processor time and decisions per second">`+"\n",
		chartWidth, height, chartWidth, height)
	out.WriteString(chartStyle)
	fmt.Fprintf(&out, `<rect class="ground" width="%d" height="%d"/>`+"\n", chartWidth, height)
	legend(&out)
	label(&out, labelWidth, 52, "small", "processor time per decision, µs (less is better)")
	label(&out, rightPanel, 52, "small", "decisions per second (more is better)")
	time, speed := 0.0, 0.0
	for _, s := range studies {
		if len(s.faults()) > 0 {
			continue
		}
		for _, server := range []string{reference, spillway} {
			time = max(time, s.median(server, sumCPU))
			speed = max(speed, s.median(server, perSecond))
		}
	}
	for _, x := range []int{labelWidth, rightPanel} {
		fmt.Fprintf(&out, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", x, chartHead-4, x, height-12)
	}
	for i, s := range studies {
		drawRow(&out, chartHead+i*rowHeight, s, time, speed)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// rightPanel is where decisions per second begin.
const rightPanel = labelWidth + panelWidth + panelGap

// drawRow draws the bars of a case, whose lengths are shares of the largest time and speed.
func drawRow(out *strings.Builder, top int, s *study, time, speed float64) {
	label(out, 8, top+barHeight+5, "", s.Case.Name)
	if len(s.faults()) > 0 {
		label(out, labelWidth+6, top+barHeight+5, "bad", "no result")
		label(out, rightPanel+6, top+barHeight+5, "bad", "no result")
		return
	}
	for k, server := range []string{reference, spillway} {
		y := top + k*(barHeight+2)
		own, redis := s.median(server, serverCPU), s.median(server, redisCPU)
		middle := bar(out, server, labelWidth, y, own, time)
		end := bar(out, server+"Redis", middle, y, redis, time)
		label(out, end+5, y+12, "small", fmt.Sprintf("%.0f + %.0f", own, redis))
		end = bar(out, server, rightPanel, y, s.median(server, perSecond), speed)
		label(out, end+5, y+12, "small", number(math.Round(s.median(server, perSecond))))
	}
}

// legend says which colour is what.
func legend(out *strings.Builder) {
	x := labelWidth
	for _, item := range []struct{ class, text string }{
		{"reference", "reference"}, {"referenceRedis", "Redis for it"}, {"Spillway", "Spillway"}, {"SpillwayRedis", "Redis for it"},
	} {
		fmt.Fprintf(out, `<rect class="%s" x="%d" y="14" width="12" height="12"/>`+"\n", item.class, x)
		label(out, x+18, 25, "", item.text)
		x += 36 + 8*len(item.text)
	}
}

// bar draws a bar, and returns where it ends.
func bar(out *strings.Builder, class string, x, y int, value, largest float64) int {
	width := 0
	if largest > 0 {
		width = int(math.Round(value / largest * panelWidth))
	}
	fmt.Fprintf(out, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", class, x, y, width, barHeight)
	return x + width
}

func label(out *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, text)
}
