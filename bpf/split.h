// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// How the time of one thread is divided: a state machine of plain C, which knows neither maps nor helpers.
//
// `split.bpf.c` feeds it in the kernel.
//
// Time is charged when a thread returns to a processor, leaves one, or begins or ends an operation. Each nanosecond
// goes to exactly one part, so the parts of an operation add up to its time:
//
//   on a processor                                            CPU
//   left a processor although it could run, or was woken      RUN_QUEUE (YIELD if it asked for that)
//   blocked                                                   by the system call: READ, FUTEX, POLL, ...
//
// An operation begins when the whole request has been received and ends when its whole reply has been sent. If the thread
// had to wait for a processor until it could receive the end of the request, the operation begins with that wait.
//
// On an encrypted connection the request has been received when the TLS library has handed over its last byte, and the
// reply has been sent when the bytes of its last record were.
#pragma once

#include "addresses.h"
#include "tls_thread.h"

// sonar-core/src/time_split/mod.rs has the same order.
enum part {
    PART_CPU,
    PART_RUN_QUEUE,
    PART_YIELD,
    PART_READ,
    PART_FAULT,
    PART_WRITE,
    PART_FLUSH,
    PART_FUTEX,
    PART_POLL,
    PART_BACKOFF,
    PART_SLEEP,
    PART_SEND,
    PART_PEER,
    PART_OTHER,
    // Waiting for the next request: never part of an operation.
    PART_IDLE,
    PARTS = 16,
};

// What a system call is to us.
enum call_kind {
    KIND_NONE, // not in a call
    KIND_OTHER,
    KIND_READ,
    KIND_WRITE,
    KIND_FLUSH,
    KIND_FUTEX,
    KIND_POLL,
    KIND_BACKOFF,
    KIND_SLEEP,
    KIND_RECEIVE,
    KIND_SEND,
    KIND_YIELD,
};

enum { ON_PROCESSOR, RUNNABLE, BLOCKED };

enum {
    PHASE_NONE,      // no request was seen yet
    PHASE_BETWEEN,   // the next bytes received are a header
    PHASE_RECEIVING, // the rest of a request
    PHASE_RUNNING,
    PHASE_SENDING, // the rest of a reply
};

// Bits of an operation.
enum {
    OPERATION_EXHAUST = 1,     // it continues a reply; no request was received
    OPERATION_NO_REPLY = 2,    // it ended when the thread received again
    OPERATION_PIPELINED = 4,   // its request arrived with the beginning of the next one
    OPERATION_FILES_CUT = 8,   // it read more files than fit
    OPERATION_WAKERS_CUT = 16, // more threads ended its waits than fit
    OPERATION_WOKE = 32,       // it ended a wait of another thread
};

enum { SPLIT_FILES = 4, SPLIT_PLACES = 4, SPLIT_WAKERS = 4, HEADER = 16, HEADER_AND_FLAGS = 20 };

#define LONGEST_MESSAGE (48000000 + 16 * 1024)
#define MORE_TO_COME 2
#define OP_REPLY 1
#define OP_COMMAND 2010
#define OP_COMMANDREPLY 2011
#define OP_COMPRESSED 2012
#define OP_MSG 2013

struct message_header {
    __s32 length;
    __s32 request;
    __s32 response_to;
    __s32 opcode;
    __u32 flags; // of OP_MSG
};

// What an operation waited for in a file.
struct split_file {
    __u64 inode;
    __u64 wait_ns;
    __u64 bytes;
    __u32 device;
    __u32 reads;
    __u32 in_order; // of `reads`, those that began where the read before had ended
    __u32 unused;
};

// Where a thread last read in a file.
struct split_place {
    __u64 end;
    __u32 fd; // plus 1; 0: nowhere
    __u32 unused;
};

// Who ended waits of an operation: a thread, and the operation that it executed then.
struct split_waker {
    __u64 wait_ns;
    __u64 start; // of that operation; 0 if the thread executed none
    __u32 thread;
    __u32 count;
};

// An operation. Times are nanoseconds of the monotonic clock. A record without files and wakers ends before them.
struct split_operation {
    __u64 received_from; // when the first bytes of the request were received
    __u64 start;
    __u64 end;
    __u64
        preempted; // when the thread last lost its processor between the operation before and this one; 0 if it did not
    __u64 resumed; // when it got one again
    __u64 parts[PARTS];
    __u64 read_bytes;   // from files, by system calls
    __u64 device_bytes; // that the thread caused to be read from devices
    __u64 write_bytes;
    __u32 switches; // how often it blocked, or lost the processor
    __u32 reads;
    __u32 faults; // that read from a device
    __s32 request;
    __s32 opcode;
    __u32 request_bytes;
    __u32 reply_bytes;
    __u32 flags;
    struct socket_addresses addresses;
    __u32 thread;
    __u32 process;
    __u8 name[16]; // of the thread
    struct split_file files[SPLIT_FILES];
    struct split_waker wakers[SPLIT_WAKERS];
};

// The state of a thread. What each event looks at comes first, close together.
struct split_thread {
    __u32 owner; // the thread whose state this is
    __u32 generation;
    __u32 process;
    __u8 state;
    __u8 phase;
    __u8 kind;       // enum call_kind: what it left its processor in last, until that call ends
    __u8 own_socket; // that call uses the socket of the requests
    __u8 slices_kind;
    __u8 unused[3];
    __s32 fd;          // of the requests
    __u64 since;       // until when its time has been charged
    __u64 woken;       // when it was woken, if it has waited for a processor since; 0 otherwise
    __u64 wait_ns;     // blocked during the current call
    __u64 arrived;     // when it was seen getting its processor; 0 otherwise
    __u32 part;        // what it left its processor for
    __u32 waker;       // the thread that woke this one on purpose
    __u64 waker_start; // of the operation of `waker`
    __u64
        woken_for_request; // when it was woken while it waited for a request, if it has kept its processor since; 0 otherwise
    __u64 ran_for_request; // when it got its processor then
    __u64 slices_ns;       // waited by this operation in slices that nobody ended
    __u64
        preempted; // when it last lost its processor outside of operations, without waiting for a request since; 0 otherwise
    __u64 resumed;        // when it got one again
    __u64 clock_offset;   // from the scheduler's clock to the monotonic one; 0: unknown
    __u64 queued_before;  // total wait for processors when it left its last one
    __u64 outside[PARTS]; // time that belongs to no operation
    __s32 left;           // bytes of the request or reply that are still to come
    __u32 received;       // bytes of the request so far, until its header is complete
    __u64 session;        // of the TLS library, whose requests the thread serves; 0: none
    __s32 session_fd;     // its socket
    __u32 unsent;         // bytes of the reply that were encrypted and are still to be sent
    __u64 nested;         // the socket that the library used itself during its call, plus 1; 0: none
    struct split_place places[SPLIT_PLACES]; // by the low bits of the descriptor
    struct tls_call call;
    struct tls_search search;
    union {
        struct message_header header;
        __u8 incoming[3 * HEADER]; // room for the verifier's worst case
    };
    struct split_operation operation;
};

// The part to which the time of a blocked thread belongs.
static __always_inline __u32 split_blocked_part(const struct split_thread *thread) {
    switch (thread->kind) {
    case KIND_NONE:
        return PART_FAULT;
    case KIND_READ:
        return PART_READ;
    case KIND_WRITE:
        return PART_WRITE;
    case KIND_FLUSH:
        return PART_FLUSH;
    case KIND_FUTEX:
        return PART_FUTEX;
    case KIND_POLL:
        return PART_POLL;
    case KIND_BACKOFF:
        return PART_BACKOFF;
    case KIND_SLEEP:
        return PART_SLEEP;
    case KIND_SEND:
        return thread->own_socket ? PART_SEND : PART_PEER;
    case KIND_RECEIVE:
        return thread->phase <= PHASE_RECEIVING ? PART_IDLE : PART_PEER;
    }
    return PART_OTHER;
}

static __always_inline __u32 split_part(const struct split_thread *thread) {
    if (thread->state == ON_PROCESSOR)
        return PART_CPU;
    if (thread->state == RUNNABLE)
        return thread->kind == KIND_YIELD ? PART_YIELD : PART_RUN_QUEUE;
    return split_blocked_part(thread);
}

static __always_inline bool in_operation(const struct split_thread *thread) {
    return thread->phase >= PHASE_RUNNING;
}

// Charges the time until `now` to the part that the thread is in.
static __always_inline void split_charge(struct split_thread *thread, __u64 now) {
    __u64 since = thread->since;
    thread->since = now;
    if (!since || now <= since)
        return;
    __u32 part = split_part(thread) & (PARTS - 1);
    if (thread->state == BLOCKED && thread->kind != KIND_NONE)
        thread->wait_ns += now - since;
    if (in_operation(thread))
        thread->operation.parts[part] += now - since;
    else
        thread->outside[part] += now - since;
}

// Another thread ended a wait of this one.
static __always_inline void split_count_waker(struct split_thread *thread, __u64 ns) {
    struct split_waker *wakers = thread->operation.wakers;
    for (int i = 0; i < SPLIT_WAKERS; i++) {
        if (!wakers[i].thread) {
            wakers[i].thread = thread->waker;
            wakers[i].start = thread->waker_start;
        }
        if (wakers[i].thread == thread->waker && wakers[i].start == thread->waker_start) {
            wakers[i].wait_ns += ns;
            wakers[i].count++;
            return;
        }
    }
    thread->operation.flags |= OPERATION_WAKERS_CUT;
}

// Servers wait for locks and tickets in slices of 500 ms, until another thread ends the last one.
#define SLICE_LEAST_NS (400 * 1000000ull)
enum { TIMED_OUT = -110 };

// The time of the slices before a wait that another thread ended.
static __always_inline __u64 split_take_slices(struct split_thread *thread) {
    __u64 ns = thread->slices_kind == thread->kind ? thread->slices_ns : 0;
    thread->slices_ns = 0;
    return ns;
}

// A system call ends, after what it has led to.
static __always_inline void split_call_ended(struct split_thread *thread, long result) {
    bool ran_out =
        (thread->kind == KIND_FUTEX && result == TIMED_OUT) || (thread->kind == KIND_POLL && !result);
    if (ran_out && in_operation(thread) && thread->wait_ns >= SLICE_LEAST_NS) {
        if (thread->slices_kind != thread->kind)
            thread->slices_ns = 0;
        thread->slices_kind = thread->kind;
        thread->slices_ns += thread->wait_ns;
    }
    thread->kind = KIND_NONE;
    thread->wait_ns = 0;
}

// The thread leaves its processor.
static __always_inline void split_switch_out(struct split_thread *thread, __u64 now, bool runnable) {
    split_charge(thread, now);
    thread->woken = 0;
    thread->waker = 0;
    thread->woken_for_request = 0;
    thread->state = runnable ? RUNNABLE : BLOCKED;
    thread->part = split_part(thread) & (PARTS - 1);
    if (in_operation(thread))
        thread->operation.switches++;
}

// The thread was woken. It charges the time itself when it runs, since only it changes its figures. `waker` is the
// thread that woke it, 0 for an interrupt or a thread of another process; `its_state` is 0 if that thread is skipped.
static __always_inline void split_waking(struct split_thread *thread, __u64 now, __u32 waker,
                                         struct split_thread *its_state) {
    if (thread->state != BLOCKED || thread->woken)
        return;
    // No thread ends a sleep or a read: an interrupt did, during whatever ran.
    if (waker && (thread->kind == KIND_FUTEX || thread->kind == KIND_POLL)) {
        thread->waker = waker;
        thread->waker_start = 0;
        if (its_state && in_operation(its_state)) {
            thread->waker_start = its_state->operation.start;
            its_state->operation.flags |= OPERATION_WOKE;
        }
    }
    thread->woken = now;
}

// The thread gets a processor. Returns whether it was seen leaving one.
static __always_inline bool split_switch_in(struct split_thread *thread, __u64 now) {
    __u64 since = thread->since, woken = thread->woken;
    if (thread->state == ON_PROCESSOR && since) {
        // Nobody saw it leave its processor, so where this time went is unknown.
        thread->since = now;
        thread->arrived = now;
        thread->woken_for_request = 0;
        return 0;
    }
    if (thread->state == BLOCKED) {
        // If nobody saw the wake-up, all of it was waiting.
        __u64 until = woken > since && woken < now ? woken : now;
        split_charge(thread, until);
        if (thread->waker && in_operation(thread) && since && until > since)
            split_count_waker(thread, until - since + split_take_slices(thread));
        bool waited_for_request = thread->kind == KIND_RECEIVE || thread->kind == KIND_POLL;
        if (waited_for_request && !in_operation(thread)) {
            thread->woken_for_request = until;
            thread->ran_for_request = now;
        }
        thread->state = RUNNABLE;
        thread->preempted = 0;
    } else if (!in_operation(thread)) {
        thread->preempted = since;
        thread->resumed = now;
    }
    split_charge(thread, now);
    thread->state = ON_PROCESSOR;
    thread->woken = 0;
    thread->arrived = now;
    return 1;
}

// What the scheduler knows of a thread.
struct scheduled {
    __u64 queued;  // total time it has waited for processors
    __u64 arrived; // when it got its processor, by the scheduler's clock
};

// Notes what `split_missed` needs: the difference of the two clocks, and the time spent waiting for processors.
static __always_inline void split_leaves(struct split_thread *thread, struct scheduled scheduled) {
    if (thread->arrived && scheduled.arrived)
        thread->clock_offset = thread->arrived - scheduled.arrived;
    thread->arrived = 0;
    thread->queued_before = scheduled.queued;
}

// The thread runs, but nobody saw it get its processor. The scheduler knows when that was, and how long it had waited.
static __always_inline void split_missed(struct split_thread *thread, __u64 now, struct scheduled scheduled) {
    __u64 arrived = now;
    if (thread->clock_offset) {
        arrived = scheduled.arrived + thread->clock_offset;
        if (arrived > now)
            arrived = now;
        if (arrived < thread->since)
            arrived = thread->since;
    }
    __u64 queued = scheduled.queued - thread->queued_before;
    if (!thread->woken && queued < arrived - thread->since)
        thread->woken = arrived - queued;
    split_switch_in(thread, arrived);
    thread->arrived = 0;
}

// Whether these bytes can be the header of a request.
static __always_inline bool is_request(const struct message_header *header) {
    if (header->length < HEADER || header->length > LONGEST_MESSAGE || header->response_to)
        return 0;
    return header->opcode == OP_MSG || header->opcode == OP_COMPRESSED || header->opcode == OP_COMMAND ||
           (header->opcode >= 2001 && header->opcode <= 2007);
}

// Begins an operation; its figures are zero.
static __always_inline void split_begin(struct split_thread *thread, __u64 now, __u32 flags) {
    split_charge(thread, now);
    struct split_operation *operation = &thread->operation;
    __u64 received_from = operation->received_from;
    __builtin_memset(operation, 0, __builtin_offsetof(struct split_operation, addresses));
    // Most operations have none.
    if (operation->files[0].reads)
        __builtin_memset(operation->files, 0, sizeof(operation->files));
    if (operation->wakers[0].thread)
        __builtin_memset(operation->wakers, 0, sizeof(operation->wakers));
    operation->received_from = flags & OPERATION_EXHAUST ? now : received_from;
    operation->start = now;
    operation->request = thread->header.request;
    operation->opcode = thread->header.opcode;
    operation->request_bytes = flags & OPERATION_EXHAUST ? 0 : thread->header.length;
    operation->reply_bytes = 0;
    operation->flags = flags;
    if (!(flags & OPERATION_EXHAUST)) {
        operation->preempted = thread->preempted;
        operation->resumed = thread->resumed;
    }
    thread->preempted = 0;
    if (thread->woken_for_request && !flags && thread->ran_for_request <= now) {
        __u64 queued = thread->ran_for_request - thread->woken_for_request,
              ran = now - thread->ran_for_request;
        operation->start = thread->woken_for_request;
        if (operation->received_from > operation->start)
            operation->received_from = operation->start;
        operation->parts[PART_RUN_QUEUE] = queued;
        operation->parts[PART_CPU] = ran;
        thread->outside[PART_RUN_QUEUE] -= queued;
        thread->outside[PART_CPU] -= ran;
    }
    thread->woken_for_request = 0;
    thread->slices_ns = 0;
    thread->phase = PHASE_RUNNING;
    thread->left = 0;
    thread->received = 0;
}

// Whether an operation has files or wakers.
static __always_inline bool is_long(const struct split_operation *operation) {
    return operation->files[0].reads || operation->wakers[0].thread;
}

static __always_inline void split_end(struct split_thread *thread, __u64 now) {
    split_charge(thread, now);
    thread->operation.end = now;
    thread->phase = PHASE_BETWEEN;
    thread->left = 0;
    thread->received = 0;
}

// Forgets what the thread receives or executes: its connection broke, or it does not do what was assumed.
static __always_inline void split_forget(struct split_thread *thread, __u64 now) {
    split_charge(thread, now);
    thread->phase = PHASE_NONE;
    thread->left = 0;
    thread->received = 0;
}

// Whether a connection is in the sample of one in `every`. `time_split::ConnectionSample` has the same rule.
static __always_inline bool is_sampled(__u16 client_port, __u32 every) {
    __u32 mixed = client_port * 0x9e3779b1u;
    return every <= 1 || (mixed >> 16) % every == 0;
}

// What a call on a socket has led to; bits.
enum { SPLIT_BEGUN = 1, SPLIT_ENDED = 2, SPLIT_REFUSED = 4, SPLIT_FOREIGN_REPLY = 8 };

// Bytes were received. Until a header is complete, the caller has copied what came to `thread->header`.
static __always_inline __u32 split_received(struct split_thread *thread, __u64 now, __s32 fd, __s32 bytes) {
    if (thread->phase == PHASE_RECEIVING) {
        if (fd != thread->fd)
            return 0;
        thread->left -= bytes;
    } else {
        if (!thread->received)
            thread->operation.received_from = now;
        thread->fd = fd;
        thread->received += bytes;
        if (thread->received < HEADER)
            return 0;
        if (!is_request(&thread->header)) {
            thread->phase = PHASE_NONE;
            thread->received = 0;
            return SPLIT_REFUSED;
        }
        thread->left = thread->header.length - (__s32)thread->received;
    }
    if (thread->left > 0) {
        thread->phase = PHASE_RECEIVING;
        return 0;
    }
    split_begin(thread, now, thread->left < 0 ? OPERATION_PIPELINED : 0);
    return SPLIT_BEGUN;
}

// The thread is about to receive from the socket of its operation: that has ended without a reply.
static __always_inline __u32 split_receives_again(struct split_thread *thread, __u64 now) {
    thread->operation.flags |= OPERATION_NO_REPLY;
    split_end(thread, now);
    return SPLIT_ENDED;
}

// The reply begins, with this header. Returns 0, or SPLIT_FOREIGN_REPLY if it answers another request.
static __always_inline __u32 split_replies(struct split_thread *thread, __u64 now,
                                           const struct message_header *header) {
    if (header->response_to != thread->operation.request || header->length < HEADER ||
        header->length > LONGEST_MESSAGE) {
        split_forget(thread, now);
        return SPLIT_FOREIGN_REPLY;
    }
    thread->left = header->length;
    thread->unsent = 0;
    thread->operation.reply_bytes = header->length;
    thread->header = *header;
    thread->phase = PHASE_SENDING;
    return 0;
}

static __always_inline __u32 split_end_if_sent(struct split_thread *thread, __u64 now) {
    if (thread->phase != PHASE_SENDING || thread->left > 0 || thread->unsent)
        return 0;
    split_end(thread, now);
    return SPLIT_ENDED;
}

// Bytes were sent on the socket of the operation; `header` is the beginning of what was sent.
static __always_inline __u32 split_sent(struct split_thread *thread, __u64 now, __s32 bytes,
                                        const struct message_header *header) {
    if (thread->phase == PHASE_RUNNING && split_replies(thread, now, header))
        return SPLIT_FOREIGN_REPLY;
    thread->left -= bytes;
    return split_end_if_sent(thread, now);
}

// Bytes of a reply were encrypted; `header` is the beginning of them. `is_sent`: the library has sent them itself.
static __always_inline __u32 split_encrypted(struct split_thread *thread, __u64 now, __s32 bytes,
                                             const struct message_header *header, bool is_sent) {
    if (thread->phase == PHASE_RUNNING && split_replies(thread, now, header))
        return SPLIT_FOREIGN_REPLY;
    thread->left -= bytes;
    if (!is_sent)
        thread->unsent += bytes;
    return split_end_if_sent(thread, now);
}

// Records were sent. They are longer than what is in them, so what a thread sends at once it has sent whole.
static __always_inline __u32 split_records_sent(struct split_thread *thread, __u64 now, __u32 bytes) {
    thread->unsent -= bytes < thread->unsent ? bytes : thread->unsent;
    return split_end_if_sent(thread, now);
}

// Whether the reply that was just sent is followed by another one that no request asks for.
static __always_inline bool continues(const struct split_thread *thread) {
    return thread->header.opcode == OP_MSG && thread->header.flags & MORE_TO_COME;
}

// A read of a file.
struct split_read {
    __u64 inode;
    __u64 offset;
    __u64 bytes;
    __u32 device;
    __u32 fd;
};

// A read has begun at `offset`, or wherever the one before on this descriptor had ended if that is -1. Returns whether
// it began where the thread's last read had ended.
static __always_inline bool split_is_in_order(struct split_thread *thread, const struct split_read *read) {
    struct split_place *place = &thread->places[read->fd & (SPLIT_PLACES - 1)];
    bool is_same = place->fd == read->fd + 1;
    __u64 offset = read->offset == (__u64)-1 && is_same ? place->end : read->offset;
    bool is_in_order = is_same && place->end == offset;
    place->fd = read->fd + 1;
    place->end = offset + read->bytes;
    return is_in_order;
}

// The operation waited for a read.
static __always_inline void split_file(struct split_thread *thread, const struct split_read *read,
                                       bool is_in_order) {
    struct split_file *files = thread->operation.files;
    for (int i = 0; i < SPLIT_FILES; i++) {
        if (!files[i].reads) {
            files[i].inode = read->inode;
            files[i].device = read->device;
        }
        if (files[i].inode == read->inode && files[i].device == read->device) {
            files[i].reads++;
            files[i].in_order += is_in_order;
            files[i].bytes += read->bytes;
            files[i].wait_ns += thread->wait_ns;
            return;
        }
    }
    thread->operation.flags |= OPERATION_FILES_CUT;
}
