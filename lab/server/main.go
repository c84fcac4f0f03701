// Command server is the lab's MongoDB-wire server: FerretDB with its SQLite back end, embedded.
//
// It prints "ready HOST:PORT" on standard output once it accepts connections, and ends on SIGINT or
// SIGTERM. With --demo it also serves itself a small varied workload, so that there is something to see
// on a host where no MongoDB runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run() error {
	// The database is small, and collecting its garbage takes a quarter of the processor time otherwise.
	debug.SetGCPercent(800)
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on, `HOST:PORT`; port 0 takes a free one")
	dir := flag.String("dir", "", "`directory` of the database files; without it a temporary one that is removed at the end")
	demo := flag.Bool("demo", false, "run a small varied workload against this server until it is stopped")
	slower := flag.Int("slower", 1, "how many times slower than usual the workload runs, for an emulator")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}

	if *dir == "" {
		temporary, err := os.MkdirTemp("", "mongosonar-lab-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		*dir = temporary
	} else if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	absolute, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *listen},
		Handler:   "sqlite",
		SQLiteURL: "file:" + absolute + "/",
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()

	// Waits until the listener is up.
	uri := server.MongoDBURI()
	address, err := url.Parse(uri)
	if err != nil {
		return err
	}
	fmt.Println("ready", address.Host)

	if *demo {
		if err := workload(ctx, uri, *slower); err != nil && !errors.Is(err, context.Canceled) {
			stop()
			<-ended
			return fmt.Errorf("demo workload: %w", err)
		}
	}
	return <-ended
}
