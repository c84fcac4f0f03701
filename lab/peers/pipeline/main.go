// Command pipeline is the straightforward way to count operations in a capture file, written with the
// usual Go libraries: pcapgo reads, gopacket decodes, its reassembly package orders the streams, and the
// official bson package decodes every document in full. It counts operations and sums latencies by command
// and collection, and prints seconds and counts as JSON. It is what our own pipeline is measured beside.
//
// It knows OP_MSG and, to be fair on mixed files, OP_COMPRESSED with zlib (the standard library's);
// everything else is counted and left.
package main

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/google/gopacket/reassembly"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	opMsg        = 2013
	opCompressed = 2012
	headerLen    = 16
	maxMessage   = 48_000_000
	zlibID       = 2
)

// figures are what is known of one command on one collection.
type figures struct {
	Calls     int   `json:"calls"`
	Answered  int   `json:"answered"`
	LatencyNS int64 `json:"latency_ns"`
}

type totals struct {
	File      string              `json:"file"`
	Seconds   float64             `json:"seconds"`
	Frames    int                 `json:"frames"`
	Segments  int                 `json:"segments"`
	Messages  int                 `json:"messages"`
	Documents int                 `json:"documents"`
	Other     int                 `json:"other_messages"`
	Calls     map[string]*figures `json:"calls"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: pipeline FILE")
	}
	start := time.Now()
	totals, err := run(os.Args[1])
	if err != nil {
		fail(err)
	}
	totals.Seconds = time.Since(start).Seconds()
	_ = json.NewEncoder(os.Stdout).Encode(totals)
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "pipeline:", why)
	os.Exit(1)
}

func run(path string) (*totals, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := pcapgo.NewReader(bufio.NewReaderSize(file, 1<<20))
	if err != nil {
		return nil, err
	}
	totals := &totals{File: path, Calls: map[string]*figures{}}
	assembler := reassembly.NewAssembler(reassembly.NewStreamPool(&factory{totals}))
	for {
		data, info, err := reader.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		totals.Frames++
		packet := gopacket.NewPacket(data, reader.LinkType(), gopacket.DecodeOptions{NoCopy: true})
		tcp, ok := packet.TransportLayer().(*layers.TCP)
		if !ok {
			continue
		}
		totals.Segments++
		assembler.AssembleWithContext(packet.NetworkLayer().NetworkFlow(), tcp, &context{info})
	}
	assembler.FlushAll()
	return totals, nil
}

type context struct{ info gopacket.CaptureInfo }

func (c *context) GetCaptureInfo() gopacket.CaptureInfo { return c.info }

type factory struct{ totals *totals }

func (f *factory) New(_, _ gopacket.Flow, _ *layers.TCP, _ reassembly.AssemblerContext) reassembly.Stream {
	return &stream{totals: f.totals, waiting: map[int32]request{}}
}

type request struct {
	figures *figures
	at      time.Time
}

// stream is one connection: two halves of bytes, and the requests that wait for their reply.
type stream struct {
	totals  *totals
	halves  [2][]byte
	waiting map[int32]request
}

func (s *stream) Accept(
	_ *layers.TCP, _ gopacket.CaptureInfo, _ reassembly.TCPFlowDirection, _ reassembly.Sequence,
	start *bool, _ reassembly.AssemblerContext,
) bool {
	*start = true // connections that were there before the capture count too
	return true
}

func (s *stream) ReassembledSG(sg reassembly.ScatterGather, context reassembly.AssemblerContext) {
	direction, _, _, skip := sg.Info()
	half := 0
	if direction == reassembly.TCPDirServerToClient {
		half = 1
	}
	length, _ := sg.Lengths()
	if skip > 0 {
		s.halves[half] = nil
	}
	s.halves[half] = s.messages(append(s.halves[half], sg.Fetch(length)...), context.GetCaptureInfo().Timestamp)
}

func (s *stream) ReassemblyComplete(reassembly.AssemblerContext) bool { return true }

// messages takes every whole message off the front and gives what is left.
func (s *stream) messages(data []byte, at time.Time) []byte {
	for len(data) >= headerLen {
		length := binary.LittleEndian.Uint32(data)
		if length < headerLen || length > maxMessage {
			return nil
		}
		if len(data) < int(length) {
			break
		}
		s.message(data[:length], at)
		data = data[length:]
	}
	return data
}

func (s *stream) message(message []byte, at time.Time) {
	s.totals.Messages++
	requestID := int32(binary.LittleEndian.Uint32(message[4:]))
	responseTo := int32(binary.LittleEndian.Uint32(message[8:]))
	opcode := binary.LittleEndian.Uint32(message[12:])
	body := message[headerLen:]
	if opcode == opCompressed && len(body) > 9 && body[8] == zlibID {
		opcode = binary.LittleEndian.Uint32(body)
		inflater, err := zlib.NewReader(bytes.NewReader(body[9:]))
		if err != nil {
			return
		}
		if body, err = io.ReadAll(io.LimitReader(inflater, maxMessage)); err != nil {
			return
		}
	}
	if opcode != opMsg || len(body) < 5 {
		s.totals.Other++
		return
	}
	command, ok := s.sections(body)
	if !ok {
		return
	}
	if waiting, ok := s.waiting[responseTo]; ok {
		delete(s.waiting, responseTo)
		waiting.figures.Answered++
		waiting.figures.LatencyNS += at.Sub(waiting.at).Nanoseconds()
		return
	}
	if responseTo != 0 || len(command) == 0 {
		return
	}
	collection, _ := command[0].Value.(string)
	key := command[0].Key + " " + collection
	of := s.totals.Calls[key]
	if of == nil {
		of = &figures{}
		s.totals.Calls[key] = of
	}
	of.Calls++
	s.waiting[requestID] = request{of, at}
}

// sections decodes every document of an OP_MSG and gives the one of kind 0.
func (s *stream) sections(body []byte) (command bson.D, ok bool) {
	flags := binary.LittleEndian.Uint32(body)
	body = body[4:]
	if flags&1 != 0 && len(body) >= 4 {
		body = body[:len(body)-4]
	}
	for len(body) > 0 {
		kind := body[0]
		body = body[1:]
		switch kind {
		case 0:
			document, rest, ok := s.document(body)
			if !ok {
				return nil, false
			}
			command, body = document, rest
		case 1:
			if len(body) < 4 {
				return nil, false
			}
			size := binary.LittleEndian.Uint32(body)
			if size < 5 || int(size) > len(body) {
				return nil, false
			}
			sequence := body[4:size]
			body = body[size:]
			end := bytes.IndexByte(sequence, 0)
			if end < 0 {
				return nil, false
			}
			for sequence = sequence[end+1:]; len(sequence) > 0; {
				if _, sequence, ok = s.document(sequence); !ok {
					return nil, false
				}
			}
		default:
			return nil, false
		}
	}
	return command, true
}

func (s *stream) document(data []byte) (document bson.D, rest []byte, ok bool) {
	if len(data) < 5 {
		return nil, nil, false
	}
	length := binary.LittleEndian.Uint32(data)
	if length < 5 || int(length) > len(data) {
		return nil, nil, false
	}
	if err := bson.Unmarshal(data[:length], &document); err != nil {
		return nil, nil, false
	}
	s.totals.Documents++
	return document, data[length:], true
}
