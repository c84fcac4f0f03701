// Command load keeps a server busy: WORKERS clients of one pool that each send the next command when the last
// one is answered, mostly reads by _id. It prints "ready" when data is loaded and caches are warm, and from
// then on, for each line on its standard input, the commands that were answered so far and the nanoseconds
// since the start. It ends at the end of its input, or at the first command that fails.
// Usage: load URI WORKERS.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// The lab's server goes through a whole collection at each find; a small one makes many commands of it.
	documents = 10
	warmUp    = 2 * time.Second
)

type d = bson.D

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: load URI WORKERS")
	}
	workers, err := strconv.Atoi(os.Args[2])
	if err != nil || workers < 1 {
		return fmt.Errorf("%q is no number of workers", os.Args[2])
	}
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Args[1]).SetAppName("load").
		SetMaxPoolSize(uint64(workers)).SetRetryReads(false).SetRetryWrites(false))
	if err != nil {
		return err
	}
	orders := client.Database("load").Collection("orders")
	if err := fill(ctx, orders); err != nil {
		return err
	}

	var answered atomic.Int64
	failed := make(chan error, workers)
	for worker := range workers {
		go func() {
			random := rand.New(rand.NewSource(int64(worker)))
			for {
				if err := ask(ctx, orders, random); err != nil {
					failed <- err
					return
				}
				answered.Add(1)
			}
		}()
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			asked <- struct{}{}
		}
	}()
	start := time.Now()
	time.Sleep(warmUp)
	fmt.Println("ready")
	for {
		select {
		case err := <-failed:
			return err
		case _, more := <-asked:
			if !more {
				return nil
			}
			fmt.Println(answered.Load(), time.Since(start).Nanoseconds())
		}
	}
}

func fill(ctx context.Context, orders *mongo.Collection) error {
	if err := orders.Drop(ctx); err != nil {
		return err
	}
	batch := make([]any, documents)
	for id := range batch {
		batch[id] = d{{Key: "_id", Value: id}, {Key: "customer", Value: id % 3}, {Key: "status", Value: "new"},
			{Key: "note", Value: strings.Repeat("x", 100)}}
	}
	_, err := orders.InsertMany(ctx, batch)
	return err
}

// ask sends one command: of ten, nine finds of one document and a find of a few. There are no writes, as the
// lab's server has them wait for one another, and that makes its throughput uneven.
func ask(ctx context.Context, orders *mongo.Collection, random *rand.Rand) error {
	if random.Intn(10) == 0 {
		cursor, err := orders.Find(ctx, d{{Key: "customer", Value: random.Intn(3)}})
		if err != nil {
			return err
		}
		var found []bson.Raw
		return cursor.All(ctx, &found)
	}
	return orders.FindOne(ctx, d{{Key: "_id", Value: random.Intn(documents)}}).Err()
}
