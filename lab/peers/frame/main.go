// Command frame measures what gopacket's NewPacket takes for one frame of a capture file, beside our own
// decoder on the same frames. It prints nanoseconds a frame as JSON, the least of all rounds.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

const rounds = 5

func main() {
	if len(os.Args) != 2 {
		fail("usage: frame FILE")
	}
	frames, link, err := read(os.Args[1])
	if err != nil {
		fail(err)
	}
	lazy := gopacket.DecodeOptions{Lazy: true, NoCopy: true}
	eager := gopacket.DecodeOptions{NoCopy: true}
	result := map[string]any{
		"frames":                len(frames),
		"new_packet_ns":         measure(frames, newPacket(link, gopacket.Default)),
		"new_packet_no_copy_ns": measure(frames, newPacket(link, eager)),
		"new_packet_lazy_ns":    measure(frames, newPacket(link, lazy)),
		"decoding_layer_ns":     measure(frames, layerParser()),
		"gopacket":              "v1.1.19",
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "frame:", why)
	os.Exit(1)
}

func read(path string) (frames [][]byte, link layers.LinkType, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	reader, err := pcapgo.NewReader(file)
	if err != nil {
		return nil, 0, err
	}
	for {
		data, _, err := reader.ReadPacketData()
		if err == io.EOF {
			return frames, reader.LinkType(), nil
		}
		if err != nil {
			return nil, 0, err
		}
		frames = append(frames, data)
	}
}

// sink keeps the compiler from leaving out what is measured.
var sink int

// newPacket asks for the transport layer, so that a lazy packet is decoded as far as ours is.
func newPacket(link layers.LinkType, options gopacket.DecodeOptions) func([]byte) {
	return func(frame []byte) {
		packet := gopacket.NewPacket(frame, link, options)
		if tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
			sink += len(tcp.Payload)
		}
	}
}

// layerParser is gopacket's fastest way: Ethernet and the layers after it known beforehand, memory used
// again.
func layerParser() func([]byte) {
	var (
		ethernet layers.Ethernet
		tag      layers.Dot1Q
		ip4      layers.IPv4
		ip6      layers.IPv6
		tcp      layers.TCP
		payload  gopacket.Payload
		found    []gopacket.LayerType
	)
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &ethernet, &tag, &ip4, &ip6, &tcp, &payload)
	return func(frame []byte) {
		_ = parser.DecodeLayers(frame, &found)
		sink += len(tcp.Payload)
	}
}

func measure(frames [][]byte, decode func([]byte)) float64 {
	best := time.Duration(1<<63 - 1)
	for range rounds {
		start := time.Now()
		for _, frame := range frames {
			decode(frame)
		}
		best = min(best, time.Since(start))
	}
	return float64(best.Nanoseconds()) / float64(max(len(frames), 1))
}
