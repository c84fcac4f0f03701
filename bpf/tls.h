// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What happens to the plaintext of one TLS session: plain C, which knows neither maps nor helpers.
//
// A session is an SSL object of one process. Each of its directions is a stream of MongoDB messages. The beginning of
// each message is passed on and its last bytes, which have the outcome of a reply and the database of a request. What
// lies between is skipped by the length in its header, so that a long message costs no more than that.
#pragma once

// The end of a message that is passed on, and the most bytes of one piece.
enum { TLS_HEADER = 16, TLS_LENGTH = 4, TLS_TAIL = 2048, TLS_PIECE = 16384 };
#define TLS_LONGEST_MESSAGE (48000000 + 16 * 1024)

// One direction of a session.
struct tls_half {
    __u64 offset; // in the stream, of the next byte
    __u32 passed; // bytes of the current message so far
    __u32 length; // of the current message, as far as it is known
    __u8 have;    // bytes of that length
    __u8 synced;  // the beginning of a message was found
    __u8 reply;   // the message answers another one
    __u8 held;    // the header of the message is to be passed on with what follows it
    __u8 unused[4];
    __u32 header[TLS_HEADER / 4];
};

// A part of a stream: `copied` bytes that are passed on, then `skipped` bytes that will not be.
struct tls_piece {
    __u32 copied;
    __u32 skipped;
    __u32 begins; // it is the first one of a session that has been followed from its beginning
};

// Whether these are the first bytes of a message: its length, and the code of its operation.
static __always_inline bool tls_is_header(const __u32 *words) {
    __u32 opcode = words[3];
    return words[0] >= TLS_HEADER && words[0] <= TLS_LONGEST_MESSAGE &&
           (opcode == 1 || opcode == 2013 || opcode == 2012 || (opcode >= 2001 && opcode <= 2011));
}

// Whether they are the first bytes of a TLS record: its type and version.
static __always_inline bool tls_is_record(const __u32 *words) {
    __u32 type = words[0] & 0xff, major = words[0] >> 8 & 0xff;
    return type >= 0x14 && type <= 0x17 && major == 3;
}

// Takes the next bytes of a direction, at most `bytes` of them and those of one message only; `start` are the first
// four of them. `cap` is how long its beginning is. Returns how many it took; 0 if they are no message.
static __always_inline __u32 tls_take(struct tls_half *half, __u32 bytes, const __u8 *start, __u32 cap,
                                      struct tls_piece *piece) {
    __u32 taken = 0;
    for (int i = 0; i < TLS_LENGTH; i++) {
        if (half->have >= TLS_LENGTH || taken >= bytes)
            break;
        half->length |= (__u32)start[i] << 8 * half->have;
        half->have++;
        taken++;
        if (half->have < TLS_LENGTH)
            continue;
        if (half->length < TLS_HEADER || half->length > TLS_LONGEST_MESSAGE) {
            half->have = 0;
            half->length = 0;
            half->synced = 0;
            return 0;
        }
    }
    __u32 begin = half->passed, end = begin + bytes;
    piece->skipped = 0;
    if (half->have < TLS_LENGTH) {
        end = begin + taken;
        piece->copied = taken;
    } else {
        bool skips = half->length > cap + TLS_TAIL;
        __u32 head = skips ? cap : half->length, tail = skips ? half->length - TLS_TAIL : half->length;
        __u32 until = begin < head ? head : begin < tail ? tail : half->length;
        bool copies = begin < head || begin >= tail;
        if (copies && until > begin + TLS_PIECE)
            until = begin + TLS_PIECE;
        if (end > until)
            end = until;
        piece->copied = copies ? end - begin : 0;
        // What is skipped is reported before it comes.
        if (skips && copies && end == head)
            piece->skipped = tail - head;
    }
    taken = end - begin;
    half->passed = end;
    half->offset += taken;
    if (half->have == TLS_LENGTH && end == half->length) {
        half->passed = half->length = 0;
        half->have = 0;
    }
    return taken;
}
