package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// Row is one event, with the names of the columns of the table `events`.
type Row struct {
	At         int64   `parquet:"at,timestamp(microsecond),delta" json:"at"` // in µs since 1970
	Sidecar    string  `parquet:"sidecar,dict" json:"sidecar"`
	Sequence   int64   `parquet:"sequence,delta" json:"sequence"`
	Place      int32   `parquet:"place,delta" json:"place"`
	Domain     string  `parquet:"domain,dict" json:"domain"`
	Outcome    string  `parquet:"outcome,dict" json:"outcome"`
	Rule       string  `parquet:"rule,dict" json:"rule"`
	Identity   string  `parquet:"identity,dict" json:"identity"`
	Tenant     string  `parquet:"tenant,dict" json:"tenant"`
	APIKey     string  `parquet:"api_key,dict" json:"api_key"`
	IP         string  `parquet:"ip,dict" json:"ip"`
	Method     string  `parquet:"method,dict" json:"method"`
	Endpoint   string  `parquet:"endpoint,dict" json:"endpoint"`
	Count      int64   `parquet:"count" json:"count"`
	CountLimit int64   `parquet:"count_limit" json:"count_limit"`
	Cost       int64   `parquet:"cost" json:"cost"`
	Status     int32   `parquet:"status" json:"status"`
	RetryAfter float32 `parquet:"retry_after" json:"retry_after"` // in seconds
	Latency    float32 `parquet:"latency" json:"latency"`         // in ms
	Region     string  `parquet:"region,dict" json:"region"`
	Weight     int32   `parquet:"weight" json:"weight"`
}

// columns are those of the table `events`, in the order of the fields of Row.
var columns = []string{
	"at", "sidecar", "sequence", "place", "domain", "outcome", "rule", "identity", "tenant", "api_key", "ip",
	"method", "endpoint",
	"count", "count_limit", "cost", "status", "retry_after", "latency", "region", "weight",
}

// Time is when the event was.
func (r *Row) Time() time.Time { return time.UnixMicro(r.At).UTC() }

// scan reads the columns of a row of the database.
func (r *Row) scan(rows pgx.Rows) error {
	var at time.Time
	err := rows.Scan(&at, &r.Sidecar, &r.Sequence, &r.Place, &r.Domain, &r.Outcome, &r.Rule, &r.Identity, &r.Tenant,
		&r.APIKey, &r.IP, &r.Method, &r.Endpoint,
		&r.Count, &r.CountLimit, &r.Cost, &r.Status, &r.RetryAfter, &r.Latency, &r.Region, &r.Weight)
	r.At = at.UnixMicro()
	return err
}

// values are the columns of a row for the database.
func (r *Row) values() []any {
	return []any{
		r.Time(), r.Sidecar, r.Sequence, r.Place, r.Domain, r.Outcome, r.Rule, r.Identity, r.Tenant, r.APIKey, r.IP,
		r.Method, r.Endpoint,
		r.Count, r.CountLimit, r.Cost, int16(r.Status), r.RetryAfter, r.Latency, r.Region, r.Weight,
	}
}

// tally counts rows, and makes a checksum of them in their order. Every column counts, each text with its length before
// it, so that no two different lists of rows have the same bytes.
type tally struct {
	rows int64
	sum  hash.Hash
	b    []byte // room for one row
}

func newTally() *tally { return &tally{sum: sha256.New()} }

// include counts one row.
func (t *tally) include(r *Row) {
	b := t.b[:0]
	for _, n := range [...]int64{r.At, r.Sequence, int64(r.Place), r.Count, r.CountLimit, r.Cost, int64(r.Status),
		int64(r.Weight)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	for _, f := range [...]float32{r.RetryAfter, r.Latency} {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(f))
	}
	for _, s := range [...]string{r.Sidecar, r.Domain, r.Outcome, r.Rule, r.Identity, r.Tenant, r.APIKey, r.IP,
		r.Method, r.Endpoint, r.Region} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	t.sum.Write(b)
	t.b = b
	t.rows++
}

// checksum is that of all rows so far, in hex.
func (t *tally) checksum() string { return hex.EncodeToString(t.sum.Sum(nil)) }
