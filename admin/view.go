package admin

import (
	"encoding/json"
	"time"

	"github.com/spillway-mesh/spillway/records"
)

// RecordView is a record as answers show it.
type RecordView struct {
	Block  *BlockView  `json:"block,omitempty"`
	Tier   string      `json:"tier,omitempty"`
	Limits []LimitView `json:"limits,omitempty"`
	Note   string      `json:"note,omitempty"`
	By     string      `json:"by,omitempty"`
	At     time.Time   `json:"at,omitzero"`
}

// BlockView is a block as answers show it.
type BlockView struct {
	Lifted bool      `json:"lifted,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// LimitView is a limit as answers show it, in the words of a rule file.
type LimitView struct {
	Name      string `json:"name,omitempty"`
	Unlimited bool   `json:"unlimited,omitempty"`
	Count     int64  `json:"count"`
	Per       string `json:"per,omitempty"`
	Burst     int64  `json:"burst,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
}

// viewOf is a record as answers show it; nil for none.
func viewOf(r *records.Record) *RecordView {
	if r == nil {
		return nil
	}
	v := &RecordView{Tier: r.Tier, Note: r.Note, By: r.By, At: r.At}
	if r.Block != nil {
		v.Block = &BlockView{r.Block.Lifted, r.Block.Reason, r.Block.Until}
	}
	for _, l := range r.Limits {
		one := LimitView{Name: l.Name, Unlimited: l.Unlimited, Count: l.Count, Burst: l.Burst, Algorithm: l.Algorithm}
		if l.Per > 0 {
			one.Per = l.Per.String()
		}
		v.Limits = append(v.Limits, one)
	}
	return v
}

// jsonText is a document on one line, for the log.
func jsonText(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
