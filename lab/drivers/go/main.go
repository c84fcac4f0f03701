// Command go runs the lab's workload through the official Go driver.
// Usage: go URI OUTPUT [SUFFIX]; see ../README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// line is one command as it ended; the fields are explained in ../README.md.
type line struct {
	Driver         string  `json:"driver"`
	Client         string  `json:"client"`
	RequestID      uint32  `json:"request_id"`
	Command        string  `json:"command"`
	Namespace      string  `json:"ns"`
	Micros         int64   `json:"us"`
	Outcome        string  `json:"outcome"`
	Code           *int32  `json:"code,omitempty"`
	WriteErrors    []int32 `json:"write_errors,omitempty"`
	Docs           *int    `json:"docs,omitempty"`
	N              *int64  `json:"n,omitempty"`
	NModified      *int64  `json:"n_modified,omitempty"`
	NUpserted      int     `json:"n_upserted,omitempty"`
	Cursor         *int64  `json:"cursor,omitempty"`
	Unacknowledged bool    `json:"unacknowledged,omitempty"`
	Server         string  `json:"server"`
}

type recorder struct {
	mutex   sync.Mutex
	started map[int64]line
	encoder *json.Encoder
}

func (r *recorder) monitor(app string) *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			key := e.CommandName
			if key == "getMore" {
				key = "collection"
			}
			namespace := e.DatabaseName
			if collection, ok := e.Command.Lookup(key).StringValueOK(); ok {
				namespace += "." + collection
			}
			w, isNumber := e.Command.Lookup("writeConcern", "w").AsInt64OK()
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.started[e.RequestID] = line{Driver: "go", Client: app, RequestID: uint32(e.RequestID),
				Command: e.CommandName, Namespace: namespace, Unacknowledged: isNumber && w == 0}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			r.ended(e.CommandFinishedEvent, "ok", func(l *line) { facts(l, e.Reply) })
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			r.ended(e.CommandFinishedEvent, "failed", func(l *line) {
				var failure mongo.CommandError
				if errors.As(e.Failure, &failure) {
					l.Code = &failure.Code
				}
			})
		},
	}
}

func facts(l *line, reply bson.Raw) {
	if id, ok := reply.Lookup("cursor", "id").AsInt64OK(); ok {
		l.Cursor = &id
		for _, batch := range []string{"firstBatch", "nextBatch"} {
			if array, ok := reply.Lookup("cursor", batch).ArrayOK(); ok {
				values, _ := array.Values()
				count := len(values)
				l.Docs = &count
			}
		}
	}
	switch l.Command {
	case "insert", "update", "delete":
		if n, ok := reply.Lookup("n").AsInt64OK(); ok {
			l.N = &n
		}
		if n, ok := reply.Lookup("nModified").AsInt64OK(); ok {
			l.NModified = &n
		}
	}
	if array, ok := reply.Lookup("upserted").ArrayOK(); ok {
		values, _ := array.Values()
		l.NUpserted = len(values)
	}
	if array, ok := reply.Lookup("writeErrors").ArrayOK(); ok {
		values, _ := array.Values()
		for _, value := range values {
			code, _ := value.Document().Lookup("code").AsInt64OK()
			l.WriteErrors = append(l.WriteErrors, int32(code))
		}
	}
}

func (r *recorder) ended(e event.CommandFinishedEvent, outcome string, fill func(*line)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	l := r.started[e.RequestID]
	delete(r.started, e.RequestID)
	l.Micros, l.Outcome = e.Duration.Microseconds(), outcome
	// The driver's connection id is "HOST:PORT[-NUMBER]".
	l.Server, _, _ = strings.Cut(e.ConnectionID, "[-")
	fill(&l)
	_ = r.encoder.Encode(l)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "go driver:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 3 {
		return errors.New("usage: go URI OUTPUT [SUFFIX]")
	}
	uri, suffix := os.Args[1], strings.Join(os.Args[3:], "")
	output, err := os.Create(os.Args[2])
	if err != nil {
		return err
	}
	defer output.Close()
	r := &recorder{started: map[int64]line{}, encoder: json.NewEncoder(output)}

	ctx := context.Background()
	with := func(app string, pool uint64, body func(context.Context, *mongo.Database) error) error {
		client, err := mongo.Connect(options.Client().ApplyURI(uri).SetAppName(app).SetMaxPoolSize(pool).
			SetRetryWrites(false).SetMonitor(r.monitor(app)))
		if err != nil {
			return err
		}
		return errors.Join(body(ctx, client.Database("lab_go"+suffix)), client.Disconnect(ctx))
	}
	return errors.Join(
		with("go-main", 10, func(ctx context.Context, db *mongo.Database) error {
			for _, part := range []func(context.Context, *mongo.Database) error{
				func(ctx context.Context, db *mongo.Database) error { return db.Drop(ctx) },
				basics, writes, mistakes, cursors,
			} {
				if err := part(ctx, db); err != nil {
					return err
				}
			}
			return nil
		}),
		with("go-silent", 1, func(ctx context.Context, db *mongo.Database) error {
			return with("go-witness", 1, func(ctx context.Context, witness *mongo.Database) error {
				return unacknowledged(ctx, db, witness)
			})
		}),
		with("go-pool", 4, pool),
	)
}

type d = bson.D

func one(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

func all(ctx context.Context, cursor *mongo.Cursor, err error) error {
	if err != nil {
		return err
	}
	var documents []bson.Raw
	return cursor.All(ctx, &documents)
}

func basics(ctx context.Context, db *mongo.Database) error {
	items := db.Collection("items")
	if _, err := items.InsertOne(ctx, d{{Key: "_id", Value: 0}, {Key: "kind", Value: "single"}}); err != nil {
		return err
	}
	var many, large []any
	for i := 1; i <= 150; i++ {
		many = append(many, d{{Key: "_id", Value: i}, {Key: "n", Value: i % 7}, {Key: "tag", Value: fmt.Sprint("t", i%5)},
			{Key: "sub", Value: d{{Key: "x", Value: i}, {Key: "y", Value: bson.A{i, i + 1}}}}})
	}
	for i := range 8 {
		large = append(large, d{{Key: "_id", Value: 1000 + i}, {Key: "pad", Value: strings.Repeat("x", 400_000)}})
	}
	if _, err := items.InsertMany(ctx, many); err != nil {
		return err
	}
	// In a collection of their own: the server reads whole collections, so they would slow down everything else.
	if _, err := db.Collection("large").InsertMany(ctx, large); err != nil {
		return err
	}
	var ids bson.A
	for i := range 40 {
		ids = append(ids, i)
	}
	gte2 := one("$gte", 2)
	for _, query := range []struct {
		filter  d
		options *options.FindOptionsBuilder
	}{
		{one("n", 3), options.Find()},
		{one("n", 3), options.Find().SetProjection(one("tag", 1)).SetSort(one("_id", -1)).SetSkip(2).SetLimit(5)},
		{d{{Key: "n", Value: gte2}, {Key: "tag", Value: "t1"}}, options.Find()},
		{d{{Key: "tag", Value: "t1"}, {Key: "n", Value: gte2}}, options.Find()},
		{one("_id", one("$lt", 100)), options.Find().SetBatchSize(30)},
		{one("_id", one("$in", ids[:1])), options.Find()},
		{one("_id", one("$in", ids[:5])), options.Find()},
		{one("_id", one("$in", ids)), options.Find()},
		{one("$or", bson.A{one("n", 1), one("tag", "t2")}), options.Find()},
		{one("tag", bson.Regex{Pattern: "^t[12]"}), options.Find()},
		{one("_id", "absent"), options.Find()},
	} {
		cursor, err := items.Find(ctx, query.filter, query.options)
		if err := all(ctx, cursor, err); err != nil {
			return err
		}
	}
	cursor, err := db.Collection("large").Find(ctx, one("_id", one("$gte", 1000)))
	if err := all(ctx, cursor, err); err != nil {
		return err
	}
	if _, err := items.CountDocuments(ctx, one("n", 2)); err != nil {
		return err
	}
	if _, err := items.EstimatedDocumentCount(ctx); err != nil {
		return err
	}
	if err := items.Distinct(ctx, "tag", one("n", one("$lt", 5))).Err(); err != nil {
		return err
	}
	cursor, err = items.Aggregate(ctx, bson.A{one("$match", one("n", one("$gt", 1))),
		one("$group", d{{Key: "_id", Value: "$tag"}, {Key: "c", Value: one("$sum", "$n")}}), one("$sort", one("_id", 1))})
	if err := all(ctx, cursor, err); err != nil {
		return err
	}
	if _, err := items.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: d{{Key: "n", Value: 1}, {Key: "tag", Value: -1}}}); err != nil {
		return err
	}
	_, err = db.ListCollectionNames(ctx, d{})
	return err
}

func writes(ctx context.Context, db *mongo.Database) error {
	items := db.Collection("items")
	set := func(key string, value any) d { return one("$set", one(key, value)) }
	steps := []func() error{
		func() error { _, err := items.UpdateOne(ctx, one("_id", 5), set("n", 99)); return err },
		func() error { _, err := items.UpdateOne(ctx, one("_id", 5), set("n", 99)); return err },
		func() error { _, err := items.UpdateMany(ctx, one("tag", "t3"), set("seen", true)); return err },
		func() error {
			_, err := items.ReplaceOne(ctx, one("_id", "new"), one("kind", "replaced"), options.Replace().SetUpsert(true))
			return err
		},
		func() error { return items.FindOneAndUpdate(ctx, one("_id", 6), one("$inc", one("n", 1))).Err() },
		func() error { return items.FindOneAndDelete(ctx, one("_id", 8)).Err() },
		func() error { _, err := items.DeleteOne(ctx, one("_id", 9)); return err },
		func() error { _, err := items.DeleteMany(ctx, one("n", 4)); return err },
		func() error {
			_, err := items.BulkWrite(ctx, []mongo.WriteModel{
				mongo.NewInsertOneModel().SetDocument(one("_id", "b1")),
				mongo.NewInsertOneModel().SetDocument(one("_id", "b2")),
				mongo.NewUpdateOneModel().SetFilter(one("_id", "b1")).SetUpdate(set("a", 1)),
				mongo.NewUpdateManyModel().SetFilter(one("n", 1)).SetUpdate(one("$inc", one("k", 1))),
				mongo.NewReplaceOneModel().SetFilter(one("_id", "b2")).SetReplacement(one("a", 2)),
				mongo.NewDeleteOneModel().SetFilter(one("_id", "b1")),
				mongo.NewDeleteManyModel().SetFilter(one("_id", "b2")),
				mongo.NewInsertOneModel().SetDocument(one("_id", "b3")),
			})
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mistakes are meant to fail: that they do, or not, is the server's affair and stands in the record.
func mistakes(ctx context.Context, db *mongo.Database) error {
	items := db.Collection("items")
	_, _ = items.InsertOne(ctx, one("_id", 1))
	_, _ = items.InsertMany(ctx, []any{one("_id", "b4"), one("_id", 1), one("_id", 2)}, options.InsertMany().SetOrdered(false))
	_ = db.RunCommand(ctx, one("noSuchCommand", 1)).Err()
	_, _ = items.UpdateOne(ctx, one("_id", 2), one("$noSuchOperator", one("a", 1)))
	cursor, err := items.Aggregate(ctx, bson.A{one("$noSuchStage", d{})})
	_ = all(ctx, cursor, err)
	return nil
}

func cursors(ctx context.Context, db *mongo.Database) error {
	cursor, err := db.Collection("items").Find(ctx, d{}, options.Find().SetBatchSize(10))
	if err != nil {
		return err
	}
	for range 15 {
		cursor.Next(ctx)
	}
	return cursor.Close(ctx)
}

// unacknowledged writes without asking for an answer. FerretDB answers nevertheless, so nothing may be read on
// this connection afterwards. A client that closes with unread answers resets the connection, so another one sees first
// that all of them have arrived.
func unacknowledged(ctx context.Context, db, witness *mongo.Database) error {
	silent := db.Collection("silent", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	if _, err := silent.InsertOne(ctx, one("_id", 1)); err != nil {
		return err
	}
	if _, err := silent.DeleteOne(ctx, one("_id", 1)); err != nil {
		return err
	}
	if _, err := silent.InsertOne(ctx, one("_id", "last")); err != nil {
		return err
	}
	for {
		err := witness.Collection("silent").FindOne(ctx, one("_id", "last")).Err()
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func pool(ctx context.Context, db *mongo.Database) error {
	pool := db.Collection("pool")
	failures := make([]error, 6)
	var group sync.WaitGroup
	for worker := range failures {
		group.Add(1)
		go func() {
			defer group.Done()
			for turn := range 18 {
				_, inserting := pool.InsertOne(ctx, d{{Key: "w", Value: worker}, {Key: "t", Value: turn}})
				cursor, err := pool.Find(ctx, d{{Key: "w", Value: worker}, {Key: "t", Value: one("$lte", turn)}},
					options.Find().SetBatchSize(10))
				finding := all(ctx, cursor, err)
				_, updating := pool.UpdateOne(ctx, d{{Key: "w", Value: worker}, {Key: "t", Value: turn}},
					one("$set", one("done", true)))
				if err := errors.Join(inserting, finding, updating); err != nil {
					failures[worker] = err
					return
				}
			}
		}()
	}
	group.Wait()
	return errors.Join(failures...)
}
