// Command proxy stands before a MongoDB-wire server that does not compress and compresses for it, so that a
// real driver can be driven with OP_COMPRESSED.
//
// It answers the "compression" list of a client's hello with the compressor it was started with, sends
// requests on as they are after taking the compression off, and compresses the replies to requests that
// came compressed. It prints "ready HOST:PORT" once it accepts connections, and ends on SIGINT or SIGTERM.
package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/bson"
)

const (
	headerLength = 16
	maxMessage   = 48_000_000

	opReply      = 1
	opQuery      = 2004
	opCompressed = 2012
	opMsg        = 2013
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on, `HOST:PORT`")
	server := flag.String("server", "", "address of the server, `HOST:PORT`")
	name := flag.String("compressor", "snappy", "`snappy`, zlib or zstd")
	flag.Parse()
	compressor, ok := compressors[*name]
	if !ok {
		return fmt.Errorf("no such compressor: %q", *name)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	fmt.Println("ready", listener.Addr())
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			upstream, err := net.Dial("tcp", *server)
			if err != nil {
				fmt.Fprintln(os.Stderr, "proxy:", err)
				return
			}
			defer upstream.Close()
			connection := &connection{compressor: compressor, compressed: map[uint32]bool{}, hello: map[uint32]bool{}}
			ended := make(chan error, 2)
			go func() { ended <- connection.requests(client, upstream) }()
			go func() { ended <- connection.replies(upstream, client) }()
			if err := <-ended; err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				fmt.Fprintln(os.Stderr, "proxy:", err)
			}
		}()
	}
}

type compressor struct {
	name       string
	id         byte
	compress   func([]byte) []byte
	decompress func([]byte, int) ([]byte, error)
}

var (
	// A frame that tells its content size, which decompressors of drivers ask for.
	zstdEncoder, _ = zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	zstdDecoder, _ = zstd.NewReader(nil)
	compressors    = map[string]compressor{
		"snappy": {"snappy", 1,
			func(plain []byte) []byte { return snappy.Encode(nil, plain) },
			func(packed []byte, _ int) ([]byte, error) { return snappy.Decode(nil, packed) }},
		"zlib": {"zlib", 2,
			func(plain []byte) []byte {
				var packed bytes.Buffer
				writer := zlib.NewWriter(&packed)
				_, _ = writer.Write(plain) // a bytes.Buffer takes everything
				_ = writer.Close()
				return packed.Bytes()
			},
			func(packed []byte, size int) ([]byte, error) {
				reader, err := zlib.NewReader(bytes.NewReader(packed))
				if err != nil {
					return nil, err
				}
				return io.ReadAll(io.LimitReader(reader, int64(size)+1))
			}},
		"zstd": {"zstd", 3,
			func(plain []byte) []byte { return zstdEncoder.EncodeAll(plain, nil) },
			func(packed []byte, _ int) ([]byte, error) { return zstdDecoder.DecodeAll(packed, nil) }},
	}
)

// connection is one client's, with what its replies need to know of its requests.
type connection struct {
	compressor compressor
	mutex      sync.Mutex
	compressed map[uint32]bool // requests that came compressed
	hello      map[uint32]bool // requests whose reply is to name the compressor
}

type message struct {
	requestID, responseTo, opcode uint32
	body                          []byte
}

func read(from io.Reader) (message, error) {
	var header [headerLength]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return message{}, err
	}
	field := func(i int) uint32 { return binary.LittleEndian.Uint32(header[4*i:]) }
	length := field(0)
	if length < headerLength || length > maxMessage {
		return message{}, fmt.Errorf("message length %d is out of range", length)
	}
	body := make([]byte, length-headerLength)
	_, err := io.ReadFull(from, body)
	return message{field(1), field(2), field(3), body}, err
}

func (m message) write(to io.Writer) error {
	bytes := make([]byte, 0, headerLength+len(m.body))
	for _, field := range []uint32{uint32(headerLength + len(m.body)), m.requestID, m.responseTo, m.opcode} {
		bytes = binary.LittleEndian.AppendUint32(bytes, field)
	}
	_, err := to.Write(append(bytes, m.body...))
	return err
}

func (c *connection) requests(client, server net.Conn) error {
	for {
		m, err := read(client)
		if err != nil {
			return err
		}
		compressed := m.opcode == opCompressed
		if compressed {
			if m, err = c.unpack(m); err != nil {
				return err
			}
		}
		c.mutex.Lock()
		if compressed {
			c.compressed[m.requestID] = true
		}
		if c.offered(m) {
			c.hello[m.requestID] = true
		}
		c.mutex.Unlock()
		if err := m.write(server); err != nil {
			return err
		}
	}
}

func (c *connection) replies(server, client net.Conn) error {
	for {
		m, err := read(server)
		if err != nil {
			return err
		}
		c.mutex.Lock()
		compressed, hello := c.compressed[m.responseTo], c.hello[m.responseTo]
		delete(c.compressed, m.responseTo)
		delete(c.hello, m.responseTo)
		c.mutex.Unlock()
		if hello {
			if m, err = c.accept(m); err != nil {
				return err
			}
		}
		if compressed {
			m = c.pack(m)
		}
		if err := m.write(client); err != nil {
			return err
		}
	}
}

func (c *connection) unpack(m message) (message, error) {
	if len(m.body) < 9 {
		return m, errors.New("OP_COMPRESSED is shorter than its header")
	}
	opcode, size, id := binary.LittleEndian.Uint32(m.body), binary.LittleEndian.Uint32(m.body[4:]), m.body[8]
	if id != c.compressor.id || size > maxMessage {
		return m, fmt.Errorf("compressor %d with %d bytes was not agreed on", id, size)
	}
	plain, err := c.compressor.decompress(m.body[9:], int(size))
	if err != nil {
		return m, err
	}
	if len(plain) != int(size) {
		return m, fmt.Errorf("%d bytes inflated where %d were announced", len(plain), size)
	}
	return message{m.requestID, m.responseTo, opcode, plain}, nil
}

func (c *connection) pack(m message) message {
	body := binary.LittleEndian.AppendUint32(nil, m.opcode)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(m.body)))
	body = append(append(body, c.compressor.id), c.compressor.compress(m.body)...)
	return message{m.requestID, m.responseTo, opCompressed, body}
}

// document finds the command of a hello, or the document of its reply, and where it begins in the body.
func (m message) document() (bson.Raw, int) {
	start := -1
	switch m.opcode {
	case opMsg: // flags, then a section of kind 0; drivers send a hello in no other way
		if len(m.body) > 5 && m.body[4] == 0 {
			start = 5
		}
	case opQuery: // flags, namespace, two numbers
		if end := bytes.IndexByte(m.body[min(4, len(m.body)):], 0); end >= 0 {
			start = 4 + end + 1 + 8
		}
	case opReply:
		start = 20
	}
	if start < 0 || len(m.body) < start+5 {
		return nil, 0
	}
	length := binary.LittleEndian.Uint32(m.body[start:])
	if uint64(start)+uint64(length) > uint64(len(m.body)) {
		return nil, 0
	}
	return bson.Raw(m.body[start : start+int(length)]), start
}

// offered tells whether m is a hello that offers our compressor.
func (c *connection) offered(m message) bool {
	document, _ := m.document()
	first, err := document.IndexErr(0)
	if err != nil {
		return false
	}
	switch first.Key() {
	case "hello", "isMaster", "ismaster":
	default:
		return false
	}
	list, ok := document.Lookup("compression").ArrayOK()
	if !ok {
		return false
	}
	values, err := list.Values()
	for _, value := range values {
		if name, ok := value.StringValueOK(); ok && name == c.compressor.name {
			return err == nil
		}
	}
	return false
}

// accept writes our compressor into the reply to a hello.
func (c *connection) accept(m message) (message, error) {
	raw, start := m.document()
	var document bson.D
	if err := bson.Unmarshal(raw, &document); err != nil {
		return m, fmt.Errorf("reply to hello: %w", err)
	}
	document = append(document, bson.E{Key: "compression", Value: bson.A{c.compressor.name}})
	changed, err := bson.Marshal(document)
	if err != nil {
		return m, err
	}
	body := append(append([]byte{}, m.body[:start]...), changed...)
	m.body = append(body, m.body[start+len(raw):]...)
	return m, nil
}
