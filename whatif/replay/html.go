package replay

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var reportPage string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"clock": clock, "percent": percent, "join": func(texts []string) string { return strings.Join(texts, ", ") },
}).Parse(reportPage))

const (
	htmlRows   = 50 // of those who were limited
	htmlCharts = 30 // rules that have a chart: those that refuse most
)

// page is what the template shows beside the report.
type page struct {
	*Report
	Notes          []string
	Charts         []chart
	Sides          []sideView
	Limited, Freed limitedView
}

// chart is a bar per point of the timeline.
type chart struct {
	Title, From, To, Span string
	Most                  int64
	Width                 int
	Bars                  []column
	Keys                  []legend
}

type legend struct{ Class, Name string }

// column is one bar, in hundredths of the chart's height.
type column struct {
	X         int
	Y, Height float64
	Class     string
	Title     string
}

type sideView struct {
	*SideReport
	Title string
	Rows  []ruleView
	Who   limitedView
}

type ruleView struct {
	RuleReport
	Chart *chart
}

type limitedView struct {
	Title, More string
	Rows        []limitedRow
}

type limitedRow struct {
	Limited
	Least int64
	Share float64 // of the most, in percent
	Class string
}

// WriteHTML writes the report as one page that needs nothing else: no script, no network.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{Report: r}
	for _, field := range r.Log.Missing {
		p.Notes = append(p.Notes, "No line has the field "+field+".")
	}
	if len(r.Log.Formats) > 0 {
		p.Notes = append(p.Notes, "Read as "+strings.Join(r.Log.Formats, ", ")+": "+r.Log.taken()+".")
	}
	for _, side := range []*SideReport{&r.Rules, r.Against} {
		if side == nil {
			continue
		}
		for _, n := range side.Never {
			p.Notes = append(p.Notes, n.Rule+" of "+strings.Join(side.Paths, ", ")+" never applied: "+n.Why+".")
		}
	}
	if r.Log.Late > 0 {
		p.Notes = append(p.Notes,
			fmt.Sprintf("%d requests came too late to be put in order, and were decided at the time of those around "+
				"them.", r.Log.Late))
	}
	p.Charts = append(p.Charts, r.Timeline.traffic())
	p.Sides = append(p.Sides, r.side(&r.Rules, "Rules", "refused",
		func(at *Point) map[string]int64 { return at.Rules }))
	if r.Against != nil {
		p.Charts = append(p.Charts, r.Timeline.both())
		p.Sides = append(p.Sides, r.side(r.Against, "Against", "against",
			func(at *Point) map[string]int64 { return at.AgainstRules }))
		p.Limited = limitedOf("Newly refused", r.Changes.Limited, r.Changes.Incomplete, "against")
		p.Freed = limitedOf("Newly admitted", r.Changes.Freed, r.Changes.Incomplete, "passed")
	}
	return reportTemplate.Execute(w, p)
}

// chart makes an empty chart of the timeline.
func (t *Timeline) chart(title string) chart {
	length := time.Duration(t.Seconds) * time.Second
	return chart{
		Title: title, Width: max(len(t.Points), 1), Span: length.String(),
		From: clock(t.Start), To: clock(t.Start.Add(length * time.Duration(len(t.Points)))),
	}
}

// when is the span of a point.
func (t *Timeline) when(point int) string {
	return clock(t.Start.Add(time.Duration(point) * time.Duration(t.Seconds) * time.Second))
}

// addBar adds a bar that stands on what is below it.
func (c *chart) addBar(x int, n, below int64, class, title string) {
	if n == 0 {
		return
	}
	scale := 100 / float64(max(c.Most, 1))
	c.Bars = append(c.Bars, column{X: x, Y: 100 - scale*float64(n+below), Height: scale * float64(n), Class: class,
		Title: title})
}

// traffic is the chart of all requests: refused ones, and those that pass on top.
func (t *Timeline) traffic() chart {
	c := t.chart("Requests")
	c.Keys = []legend{{"refused", "refused"}, {"passed", "admitted"}}
	for i := range t.Points {
		c.Most = max(c.Most, t.Points[i].Requests)
	}
	for i := range t.Points {
		p := &t.Points[i]
		c.addBar(i, p.Refused, 0, "refused", fmt.Sprintf("%s: %d refused", t.when(i), p.Refused))
		c.addBar(i, p.Requests-p.Refused, p.Refused, "passed",
			fmt.Sprintf("%s: %d admitted", t.when(i), p.Requests-p.Refused))
	}
	return c
}

// both is the chart of what both rule sets refuse: what the second refuses stands behind what the first does.
func (t *Timeline) both() chart {
	c := t.chart("Refused before and after")
	c.Keys = []legend{{"refused", "by the rules"}, {"against", "by those they are compared with"}}
	for i := range t.Points {
		c.Most = max(c.Most, t.Points[i].Refused, *t.Points[i].Against)
	}
	for i := range t.Points {
		before, after := t.Points[i].Refused, *t.Points[i].Against
		title := fmt.Sprintf("%s: %d before, %d after", t.when(i), before, after)
		if after > before { // the longer bar is drawn first
			c.addBar(i, after, 0, "against", title)
			c.addBar(i, before, 0, "refused", title)
			continue
		}
		c.addBar(i, before, 0, "refused", title)
		c.addBar(i, after, 0, "against", title)
	}
	return c
}

// side is the view of one rule set.
func (r *Report) side(s *SideReport, title, class string, of func(*Point) map[string]int64) sideView {
	view := sideView{SideReport: s, Title: title, Who: limitedOf("Who is refused", s.Who, s.WhoIncomplete, class)}
	for number, rule := range s.Rules {
		row := ruleView{RuleReport: rule}
		if rule.Refused > 0 && number < htmlCharts {
			c := r.Timeline.chart("Refused by " + rule.Rule)
			for i := range r.Timeline.Points {
				c.Most = max(c.Most, of(&r.Timeline.Points[i])[rule.Rule])
			}
			for i := range r.Timeline.Points {
				n := of(&r.Timeline.Points[i])[rule.Rule]
				c.addBar(i, n, 0, class, fmt.Sprintf("%s: %d refused", r.Timeline.when(i), n))
			}
			row.Chart = &c
		}
		view.Rows = append(view.Rows, row)
	}
	return view
}

func limitedOf(title string, all []Limited, incomplete bool, class string) limitedView {
	view := limitedView{Title: title}
	for _, l := range all[:min(len(all), htmlRows)] {
		view.Rows = append(view.Rows, limitedRow{Limited: l, Least: l.Requests - l.Over,
			Share: 100 * float64(l.Requests) / float64(all[0].Requests), Class: class})
	}
	rest := len(all) - len(view.Rows)
	switch {
	case incomplete:
		view.More = fmt.Sprintf("more than %d others", rest)
	case rest > 0:
		view.More = fmt.Sprintf("%d others", rest)
	}
	return view
}
