package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

const (
	demoOrders = 300 // enough that a sort without an index is slow here, and little for the machine to do
	demoUsers  = 100
)

var (
	cities   = []string{"Berlin", "Kyoto", "Lagos", "Lima", "Oslo", "Quito"}
	statuses = []string{"new", "paid", "sent", "done"}
)

// application is one client of the demo: a name, a pause between two calls, and the calls it makes in turn.
type application struct {
	name  string
	pause time.Duration
	calls []func(context.Context, *mongo.Database) error
}

// workload loads the data and runs the applications at a gentle rate, or one that is so many times slower, until ctx
// ends. What a call answers does not matter here, errors included: some are wanted.
func workload(ctx context.Context, uri string, slower int) error {
	loader, err := connect(ctx, uri, "loader")
	if err != nil {
		return err
	}
	err = load(ctx, loader.Database("shop"))
	_ = loader.Disconnect(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}

	var group sync.WaitGroup
	for _, app := range applications() {
		client, err := connect(ctx, uri, app.name)
		if err != nil {
			return err
		}
		defer client.Disconnect(context.WithoutCancel(ctx))
		app.pause *= time.Duration(slower)
		group.Add(1)
		go func() {
			defer group.Done()
			app.run(ctx, client.Database("shop"))
		}()
	}
	group.Wait()
	return ctx.Err()
}

func connect(ctx context.Context, uri, name string) (*mongo.Client, error) {
	return mongo.Connect(ctx, options.Client().ApplyURI(uri).SetAppName(name).SetMaxPoolSize(4))
}

func load(ctx context.Context, db *mongo.Database) error {
	if err := db.Drop(ctx); err != nil {
		return err
	}
	index := mongo.IndexModel{Keys: bson.D{{Key: "user", Value: 1}}}
	if _, err := db.Collection("orders").Indexes().CreateOne(ctx, index); err != nil {
		return err
	}
	for _, part := range []struct {
		collection string
		count      int
		document   func(int) bson.D
	}{
		{"orders", demoOrders, order},
		{"users", demoUsers, func(id int) bson.D {
			return bson.D{{Key: "_id", Value: id}, {Key: "name", Value: fmt.Sprintf("user%03d", id)},
				{Key: "city", Value: cities[id%len(cities)]}, {Key: "age", Value: 18 + id%60}}
		}},
	} {
		for start := 0; start < part.count; start += 500 {
			var batch []any
			for id := start; id < min(start+500, part.count); id++ {
				batch = append(batch, part.document(id))
			}
			if _, err := db.Collection(part.collection).InsertMany(ctx, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func order(id int) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "user", Value: id % demoUsers},
		{Key: "status", Value: statuses[id%len(statuses)]}, {Key: "total", Value: float64(id*7919%10000) / 100},
		{Key: "items", Value: bson.A{bson.D{{Key: "sku", Value: id % 90}, {Key: "qty", Value: 1 + id%5}}}}}
}

func (app application) run(ctx context.Context, db *mongo.Database) {
	ticker := time.NewTicker(app.pause)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = app.calls[turn%len(app.calls)](ctx, db)
		}
	}
}

func applications() []application {
	return []application{
		{"shop-api", 150 * time.Millisecond, []func(context.Context, *mongo.Database) error{
			find("users", func() (any, *options.FindOptions) {
				return bson.D{{Key: "_id", Value: rand.Intn(demoUsers)}}, options.Find()
			}),
			find("orders", func() (any, *options.FindOptions) {
				return bson.D{{Key: "user", Value: rand.Intn(demoUsers)}, {Key: "status", Value: "paid"}},
					options.Find().SetLimit(10)
			}),
			find("orders", func() (any, *options.FindOptions) {
				ids := bson.A{}
				for range 1 + rand.Intn(8) {
					ids = append(ids, rand.Intn(demoOrders))
				}
				return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
					options.Find().SetProjection(bson.D{{Key: "total", Value: 1}})
			}),
			func(ctx context.Context, db *mongo.Database) error {
				_, err := db.Collection("orders").UpdateOne(ctx,
					bson.D{{Key: "_id", Value: rand.Intn(demoOrders)}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: statuses[rand.Intn(len(statuses))]}}}})
				return err
			},
		}},
		{"reporting", 3 * time.Second, []func(context.Context, *mongo.Database) error{
			// No index serves this sort: the slow one of the demo.
			find("orders", func() (any, *options.FindOptions) {
				return bson.D{{Key: "total", Value: bson.D{{Key: "$gt", Value: rand.Intn(50)}}}},
					options.Find().SetSort(bson.D{{Key: "total", Value: -1}}).SetBatchSize(101)
			}),
			func(ctx context.Context, db *mongo.Database) error {
				cursor, err := db.Collection("orders").Aggregate(ctx, bson.A{
					bson.D{{Key: "$match", Value: bson.D{{Key: "status", Value: "paid"}}}},
					bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$user"},
						{Key: "spent", Value: bson.D{{Key: "$sum", Value: "$total"}}}}}},
				})
				if err != nil {
					return err
				}
				return drain(ctx, cursor)
			},
			func(ctx context.Context, db *mongo.Database) error {
				_, err := db.Collection("users").Distinct(ctx, "city", bson.D{})
				return err
			},
		}},
		{"importer", 5 * time.Second, []func(context.Context, *mongo.Database) error{
			func(ctx context.Context, db *mongo.Database) error {
				var batch []any
				for range 40 {
					batch = append(batch, bson.D{{Key: "at", Value: time.Now()}, {Key: "kind", Value: "click"}})
				}
				_, err := db.Collection("events").InsertMany(ctx, batch)
				return err
			},
			// Keeps the collection small however long the demo runs.
			func(ctx context.Context, db *mongo.Database) error {
				_, err := db.Collection("events").DeleteMany(ctx, bson.D{{Key: "kind", Value: "click"}})
				return err
			},
		}},
		{"mobile", 700 * time.Millisecond, []func(context.Context, *mongo.Database) error{
			func(ctx context.Context, db *mongo.Database) error {
				_, err := db.Collection("users").CountDocuments(ctx, bson.D{{Key: "city", Value: "Oslo"}})
				return err
			},
			func(ctx context.Context, db *mongo.Database) error {
				return db.Collection("users").FindOneAndUpdate(ctx,
					bson.D{{Key: "_id", Value: rand.Intn(demoUsers)}},
					bson.D{{Key: "$inc", Value: bson.D{{Key: "visits", Value: 1}}}}).Err()
			},
			// A duplicate key, on purpose.
			func(ctx context.Context, db *mongo.Database) error {
				_, err := db.Collection("users").InsertOne(ctx, bson.D{{Key: "_id", Value: rand.Intn(demoUsers)}})
				return err
			},
		}},
	}
}

func find(collection string, query func() (any, *options.FindOptions)) func(context.Context, *mongo.Database) error {
	return func(ctx context.Context, db *mongo.Database) error {
		filter, opts := query()
		cursor, err := db.Collection(collection).Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		return drain(ctx, cursor)
	}
}

func drain(ctx context.Context, cursor *mongo.Cursor) error {
	for cursor.Next(ctx) {
	}
	return errors.Join(cursor.Err(), cursor.Close(ctx))
}
