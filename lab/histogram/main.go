// Prints which bucket of a native histogram of schema 5 Prometheus' own Go library puts a duration
// into: lines of nanoseconds and index. `go run . > ../../fixtures/histogram/prometheus.csv` made the
// table that crates/sonar-core/tests/histogram_peers.rs holds our buckets against.
package main

import (
	"bufio"
	"fmt"
	"log"
	"math/rand"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// index observes one duration in a histogram of its own and reads where it went.
func index(ns uint64) (int32, error) {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "duration_seconds",
		Help: "durations",
		// The largest factor that gives schema 5: 2^(1/32) = 1.0219.
		NativeHistogramBucketFactor: 1.0219,
	})
	histogram.Observe(float64(ns) / 1e9)
	var metric dto.Metric
	if err := histogram.Write(&metric); err != nil {
		return 0, err
	}
	told := metric.GetHistogram()
	if told.GetSchema() != 5 || len(told.PositiveSpan) != 1 || told.PositiveSpan[0].GetLength() != 1 {
		return 0, fmt.Errorf("%d ns: not one bucket of schema 5: %v", ns, told)
	}
	return told.PositiveSpan[0].GetOffset(), nil
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	dice := rand.New(rand.NewSource(5))
	print := func(ns uint64) {
		at, err := index(ns)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(out, "%d,%d\n", ns, at)
	}
	fmt.Fprintln(out, "ns,index")
	// Every bucket bound that is a whole number of nanoseconds, with its neighbours.
	for bound := uint64(1_000_000_000); bound > 1_953_124; bound /= 2 {
		for _, ns := range []uint64{bound - 1, bound, bound + 1} {
			print(ns)
		}
	}
	for seconds := uint64(2); seconds <= 1<<20; seconds *= 2 {
		for _, ns := range []uint64{seconds*1_000_000_000 - 1, seconds * 1_000_000_000, seconds*1_000_000_000 + 1} {
			print(ns)
		}
	}
	// Each whole number while buckets are narrower than one, then some of each power of two.
	for ns := uint64(1); ns <= 64; ns++ {
		print(ns)
	}
	for octave := 6; octave < 63; octave++ {
		for n := 0; n < 16; n++ {
			print(1<<octave | dice.Uint64()&(1<<octave-1))
		}
	}
}
