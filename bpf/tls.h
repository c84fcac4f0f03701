// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What happens to the plaintext of one TLS session: plain C, which knows neither maps nor helpers.
//
// A session is an SSL object of one process. Each of its directions is a stream of MongoDB messages. The beginning of
// each message is passed on, the rest is skipped by the length in its header, so that a long message costs no more than
// its beginning.
#pragma once

enum { TLS_HEADER = 16, TLS_LENGTH = 4 };
#define TLS_LONGEST_MESSAGE (48000000 + 16 * 1024)

// One direction of a session.
struct tls_half {
    __u64 offset;  // in the stream, of the next byte
    __u32 left;    // bytes of the current message that are still to come, beyond those of its length
    __u32 passed;  // bytes of the current message so far
    __u32 skipped; // bytes at the end of them that were not passed on, and not reported yet
    __u32 length;  // of the current message, as far as it is known
    __u8 have;     // bytes of that length
    __u8 synced;   // the beginning of a message was found
    __u16 unused;
};

// A part of a stream: `copied` bytes that are passed on, then `skipped` bytes that are not.
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

// Takes the next bytes of a direction, at most `bytes` of them and those of one message only; `start` are the first
// four of them. Returns how many it took; 0 if they are no message.
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
        half->left = half->length - TLS_LENGTH;
    }
    __u32 body = bytes - taken;
    if (half->have < TLS_LENGTH)
        body = 0;
    else if (body > half->left)
        body = half->left;
    half->left -= body;
    taken += body;
    __u32 room = half->passed < cap ? cap - half->passed : 0;
    piece->copied = taken < room ? taken : room;
    // What was skipped before has to be reported first, but a message is skipped to its end.
    half->skipped += taken - piece->copied;
    piece->skipped = 0;
    half->passed += taken;
    half->offset += taken;
    if (half->have == TLS_LENGTH && !half->left) {
        piece->skipped = half->skipped;
        half->skipped = half->passed = half->length = 0;
        half->have = 0;
    }
    return taken;
}
