// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Connections whose plaintext is read, called sessions, and how what passes on them reaches user space.
#pragma once

#include "kernel.h"

#include "socket.h"
#include "tls.h"
#include "tls_call.h"

// User space gives `tls_sessions` less where it has less room.
enum { TLS_PROCESSES = 64, TLS_SESSIONS = 65536, TLS_RING_BYTES = 16 << 20 };
enum {
    TLS_LOST_RING_FULL,
    TLS_LOST_SESSIONS_FULL,
    TLS_LOST_UNREADABLE,
    TLS_LOST_UNMAPPED,  // calls of sessions whose socket is not known
    TLS_LOST_UNSYNCED,  // calls of sessions in which no message has begun yet
    TLS_LOST_PIPELINED, // calls with more messages than one call is read for
    TLS_LOSSES,
};

// Written by user space at any time; see `control` of state.h. As it is static, no process can map it and write it without
// its descriptor.
struct tls_control {
    __u64 some[4];
};
static volatile struct tls_control tls_control SEC(".data.control") = {};

// Set by user space before loading: sessions are connections, and what passes through their sockets is read.
const volatile bool from_sockets = 0;
// The same: how many bytes are passed on of the beginning of a reply.
const volatile __u32 tls_cap = 16384;
// The same of a request.
enum { TLS_REQUEST = 256 << 10 };

// The most calls of a session that are passed on while its socket is not known.
enum { TLS_WAITING = 64 };

struct tls_key {
    __u64 ssl;
    __u32 process;
    __u32 unused;
};

struct tls_session {
    __u64 id;
    __u64 sock;     // 0: not known
    __u64 fresh;    // it has been followed from its beginning, and nothing was passed on yet, or lost
    __u64 moved_ns; // when, by the monotonic clock, what it read last arrived, or it was last called to write
    __u64 waiting;  // calls so far of which its socket was not known
    __u16 version;  // as the server has chosen them; 0 if that was not seen
    __u16 cipher;
    __u32 unused;
    struct socket_addresses addresses;
    struct tls_half halves[2]; // read, written
};

// What a thread is doing with which session.
struct tls_thread {
    struct tls_call call;
    struct tls_search search;
    __u64 ns;      // when it called
    __u64 nested;  // the socket that the library used during the call
    __u64 arrived; // when what it last received arrived; 0 if that is not known
    __u64 arrived_on;
    __u64 wrote; // the session that wrote last
    __u32 wrote_bytes;
    __u32 unused;
};

enum { TLS_SMALL = 256, TLS_MIDDLE = 2048, TLS_LARGE = TLS_PIECE };

// What a record is, apart from the bytes of a call.
enum { TLS_END = TLS_WRITE + 1, TLS_BOUND };

// A part of the stream of a session, its end, or that its socket is known now. `bytes` follow.
struct tls_record {
    __u64 session;
    __u64 ns;     // when, by the monotonic clock
    __u64 offset; // in its stream, of the first byte
    __u64 other;  // in the stream of the other direction, of the next byte
    struct socket_addresses addresses;
    __u32 process;
    __u32 kind;
    __u32 copied;
    __u32 skipped;
    __u32 begins;
    __u16 version;
    __u16 cipher;
};
struct tls_small {
    struct tls_record record;
    __u8 bytes[TLS_HEADER + TLS_SMALL];
};
struct tls_middle {
    struct tls_record record;
    __u8 bytes[TLS_HEADER + TLS_MIDDLE];
};
struct tls_large {
    struct tls_record record;
    __u8 bytes[TLS_HEADER + TLS_LARGE];
};

// Puts the record into the type information, from which the skeleton is generated.
const struct tls_record *tls_record_types;

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, TLS_PROCESSES);
    __type(key, __u32);
    __type(value, __u32);
} tls_processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct tls_thread);
} tls_threads SEC(".maps");

// When data last arrived at a socket from which a thread receives for a session. Only where the kernel reports it.
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, __u64);
} tls_arrivals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, TLS_SESSIONS);
    __type(key, struct tls_key);
    __type(value, struct tls_session);
} tls_sessions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, TLS_RING_BYTES);
} tls_ring SEC(".maps");

// Sessions so far; their numbers.
__u64 tls_session_count = 0;
// A thread of a followed process has used TLS. Until then, system calls cost next to nothing.
__u32 tls_active = 0;
// By reason. User space reads them in its own memory.
__u64 tls_losses[TLS_LOSSES] = {};

static __always_inline void tls_lost(__u32 reason) {
    __sync_fetch_and_add(&tls_losses[reason], 1);
}

static __always_inline bool is_followed(__u32 process) {
    return tls_control.some[process / 64 % 4] >> (process % 64) & 1 &&
           bpf_map_lookup_elem(&tls_processes, &process);
}

static __always_inline void describe(struct tls_record *record, const struct tls_session *session, __u32 kind,
                                     __u64 ns) {
    __u32 other = kind == TLS_READ;
    record->session = session->id;
    record->ns = ns;
    record->other = session->halves[other].offset;
    record->addresses = session->addresses;
    record->process = bpf_get_current_pid_tgid() >> 32;
    record->kind = kind;
    record->begins = 0;
    record->version = session->version;
    record->cipher = session->cipher;
}

// Passes one piece on, whose bytes begin at `from`. The reader looks by itself: waking it costs more than all else.
#define PASS_ON(type, most)                                                                                  \
    do {                                                                                                     \
        struct type *event = bpf_ringbuf_reserve(&tls_ring, sizeof(*event), 0);                              \
        if (!event) {                                                                                        \
            tls_lost(TLS_LOST_RING_FULL);                                                                    \
            return;                                                                                          \
        }                                                                                                    \
        describe(&event->record, session, kind, ns);                                                         \
        event->record.offset = offset - held;                                                                \
        event->record.begins = piece->begins;                                                                \
        event->record.skipped = piece->skipped;                                                              \
        __u32 copied = piece->copied;                                                                        \
        if (copied > (most))                                                                                 \
            copied = (most);                                                                                 \
        event->record.copied = copied + held;                                                                \
        if (held)                                                                                            \
            __builtin_memcpy(event->bytes, half->header, TLS_HEADER);                                        \
        if (held ? bpf_probe_read_user(event->bytes + TLS_HEADER, copied, (const void *)from)                \
                 : bpf_probe_read_user(event->bytes, copied, (const void *)from)) {                          \
            tls_lost(TLS_LOST_UNREADABLE);                                                                   \
            bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);                                                    \
            return;                                                                                          \
        }                                                                                                    \
        bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);                                                         \
    } while (0)

static __noinline void pass_on(const struct tls_session *session, __u32 kind, __u64 offset, __u64 from,
                               const struct tls_piece *piece) {
    __u64 ns = session->moved_ns;
    const struct tls_half *half = &session->halves[kind == TLS_WRITE];
    __u32 held = half->held ? TLS_HEADER : 0;
    if (piece->copied <= TLS_SMALL)
        PASS_ON(tls_small, TLS_SMALL);
    else if (piece->copied <= TLS_MIDDLE)
        PASS_ON(tls_middle, TLS_MIDDLE);
    else
        PASS_ON(tls_large, TLS_LARGE);
}

// Something happens to a session as a whole.
static __always_inline void tell(const struct tls_session *session, __u32 kind) {
    if (!session->sock && !session->waiting)
        return;
    struct tls_record *record = bpf_ringbuf_reserve(&tls_ring, sizeof(*record), 0);
    if (!record) {
        tls_lost(TLS_LOST_RING_FULL);
        return;
    }
    describe(record, session, kind, bpf_ktime_get_ns());
    record->offset = session->halves[1].offset;
    record->other = session->halves[0].offset;
    record->copied = record->skipped = 0;
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void bind(struct tls_session *session, __u64 sock) {
    // An object at the same address is for another connection, or too much has passed.
    if (session->sock || session->waiting >= TLS_WAITING) {
        tell(session, TLS_END);
        __builtin_memset(session->halves, 0, sizeof(session->halves));
        session->id = __sync_fetch_and_add(&tls_session_count, 1);
        session->fresh = 0;
        session->waiting = 0;
    }
    session->sock = sock;
    addresses_of((struct sock *)sock, &session->addresses);
    if (session->waiting)
        tell(session, TLS_BOUND);
}

// The next message, or a part of it, of `bytes` that a session has read or written at `from`. Not static, so that the
// verifier looks at it once. Returns how many bytes it took; 0 if it could use none of them.
__noinline int take_one(struct tls_session *session, __u32 kind, __u64 from, __u32 bytes) {
    if (!session)
        return 0;
    struct tls_half *half = &session->halves[kind == TLS_WRITE];
    __u32 start[2 * TLS_HEADER / 4] = {};
    if (!half->synced || half->have < TLS_LENGTH) {
        __u32 size = bytes < TLS_HEADER ? bytes : TLS_HEADER;
        // The compiler knows that it is at most 16, and would leave out what shows that to the verifier.
        barrier_var(size);
        size &= 2 * TLS_HEADER - 1;
        if (bpf_probe_read_user(start, size, (const void *)from)) {
            tls_lost(TLS_LOST_UNREADABLE);
            half->synced = 0;
            return 0;
        }
    }
    if (!half->synced) {
        if (bytes < TLS_HEADER || !tls_is_header(start)) {
            // Encrypted bytes of a socket are read elsewhere.
            if (!from_sockets || !tls_is_record(start))
                tls_lost(TLS_LOST_UNSYNCED);
            return 0;
        }
        half->synced = 1;
        half->held = 0;
        half->passed = half->length = 0;
        half->have = 0;
    }
    if (!half->have)
        half->reply = bytes >= TLS_HEADER && start[2];
    struct tls_piece piece;
    __u64 offset = half->offset;
    __u32 cap = half->reply ? tls_cap : TLS_REQUEST;
    __u32 taken = tls_take(half, bytes, (const __u8 *)start, cap, &piece);
    if (!taken) {
        tls_lost(TLS_LOST_UNSYNCED);
        return 0;
    }
    if (piece.copied == TLS_HEADER && half->passed == TLS_HEADER) {
        // Servers read it alone, before the rest.
        __builtin_memcpy(half->header, start, TLS_HEADER);
        half->held = 1;
    } else if (piece.copied) {
        piece.begins = session->fresh;
        session->fresh = 0;
        pass_on(session, kind, offset, from, &piece);
        half->held = 0;
    }
    return taken;
}

enum { MESSAGES_A_CALL = 32 };

// Bytes of a session at `from`, which it has read or written.
static __always_inline void moved(struct tls_session *session, __u32 kind, __u64 from, __u32 bytes) {
    struct tls_half *half = &session->halves[kind == TLS_WRITE];
    for (int i = 0; i < MESSAGES_A_CALL && bytes; i++) {
        __u32 taken = take_one(session, kind, from, bytes);
        if (!taken) {
            half->offset += bytes;
            return;
        }
        from += taken;
        bytes -= taken;
    }
    if (bytes) {
        tls_lost(TLS_LOST_PIPELINED);
        half->offset += bytes;
        half->synced = 0;
    }
}

// Not on the stack, which is short.
const volatile struct tls_session no_session = {};

static __always_inline struct tls_session *session_of(const struct tls_key *key, bool create, bool fresh) {
    struct tls_session *session = bpf_map_lookup_elem(&tls_sessions, key);
    if (session || !create)
        return session;
    if (bpf_map_update_elem(&tls_sessions, key, (const void *)&no_session, BPF_NOEXIST))
        tls_lost(TLS_LOST_SESSIONS_FULL);
    session = bpf_map_lookup_elem(&tls_sessions, key);
    if (!session)
        return 0;
    session->id = __sync_fetch_and_add(&tls_session_count, 1);
    session->fresh = fresh;
    // The first bytes are those of a message.
    session->halves[0].synced = session->halves[1].synced = fresh;
    return session;
}

// The state of the current thread, if its process is followed; `create` makes it if there is none.
static __always_inline struct tls_thread *thread_of(bool create) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct tls_thread *thread = bpf_task_storage_get(&tls_threads, task, 0, 0);
    if ((!thread && !create) || !is_followed(task->tgid))
        return 0;
    return thread ? thread : bpf_task_storage_get(&tls_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

enum { SYSCALL_NONE, SYSCALL_RECEIVE, SYSCALL_SEND };

static __always_inline __u32 direction_of(long number, struct pt_regs *regs) {
    switch (number) {
    case CALL_RECVMSG:
        return ARG3(regs) & MSG_PEEK ? SYSCALL_NONE : SYSCALL_RECEIVE;
    case CALL_RECVFROM:
        return ARG4(regs) & MSG_PEEK ? SYSCALL_NONE : SYSCALL_RECEIVE;
    case CALL_READ:
    case CALL_READV:
        return SYSCALL_RECEIVE;
    case CALL_SENDMSG:
    case CALL_SENDTO:
    case CALL_WRITE:
    case CALL_WRITEV:
        return SYSCALL_SEND;
    }
    return SYSCALL_NONE;
}

// Notes when what a thread has received from a socket arrived there.
static __always_inline void note_arrival(struct tls_thread *thread, struct sock *sock) {
    __u64 *arrived = bpf_sk_storage_get(&tls_arrivals, sock, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    thread->arrived = arrived ? *arrived : 0;
    thread->arrived_on = (__u64)sock;
}
