// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What a thread does with a TLS library: plain C, which knows neither maps nor helpers.
//
// If the library has no socket (memory BIOs), a session uses the only socket from which the thread received between a
// read of the session that found nothing and the next one that found something.
#pragma once

enum { TLS_NONE, TLS_READ, TLS_WRITE };

// A call of SSL_read or SSL_write.
struct tls_call {
    __u64 ssl, buffer;
    __u64 out; // where the inner function puts how many bytes it has read or written
    __u32 asked;
    __u32 kind; // TLS_NONE: the thread is in none
};

// The smallest record is that much longer than its content.
enum { RECORD_LEAST = 21 };

// The search for the socket of a session. What a socket is named by is up to the caller; 0 is none.
struct tls_search {
    __u64 wanting;  // the session whose last read found nothing, or that shakes hands
    __u64 received; // the socket from which the thread received since then
    __u32 received_bytes;
    __u8 mixed; // it received from several sockets
    __u8 unused[3];
};

static __always_inline void tls_search_again(struct tls_search *search) {
    search->received = 0;
    search->received_bytes = 0;
    search->mixed = 0;
}

// The thread has received from a socket.
static __always_inline void tls_search_received(struct tls_search *search, __u64 socket, __u32 bytes) {
    if (search->wanting && search->received && search->received != socket)
        search->mixed = 1;
    search->received = socket;
    search->received_bytes += bytes;
}

// A session shakes hands. That wants bytes, as a read does. The last of them may have come together with the first
// message, so that no read finds nothing before. `first`: what the thread received before was for something else.
static __always_inline void tls_search_handshake(struct tls_search *search, __u64 session, bool first) {
    if (first)
        tls_search_again(search);
    else if (search->wanting != session)
        // The thread has done something else, so what it received may have been for that.
        search->mixed = 1;
    search->wanting = session;
}

// A read of a session has found so many bytes. Returns its socket; 0 if that cannot be told from it.
static __always_inline __u64 tls_search_read(struct tls_search *search, __u64 session, __u32 bytes) {
    bool is_wanting = search->wanting == session;
    __u64 socket = 0;
    if (is_wanting && bytes && !search->mixed && search->received_bytes >= bytes + RECORD_LEAST)
        socket = search->received;
    search->wanting = bytes ? 0 : session;
    // A record can take several pieces to arrive.
    if (bytes || !is_wanting || search->mixed)
        tls_search_again(search);
    return socket;
}
