// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Feeds `split.h` with events from standard input, one a line, and prints what it makes of them. What `split.bpf.c` does
// around the state machine is done here in the same order; what that asks the kernel is in the events.
//
//   THREAD NS out RUNNABLE KIND FD QUEUED ARRIVED   leaves its processor (in such a call); what the scheduler knows
//   THREAD NS in                                    gets a processor
//   THREAD NS wake WAKER                            is woken by a thread, or by none (0)
//   THREAD NS receive FD RESULT HEADER              a call has ended; HEADER: the bytes that came, at most 20, in hex
//   THREAD NS send FD RESULT HEADER
//   THREAD NS file KIND RESULT INODE DEVICE [FD OFFSET]
//   THREAD NS call QUEUED ARRIVED [RESULT]          any other
//   THREAD NS encrypted BYTES SENT HEADER           a TLS library has encrypted bytes of a reply; SENT: and sent them
//   THREAD NS records BYTES                         records were sent
//   THREAD NS got FD BYTES                          records were received
//   THREAD NS handshake SESSION FIRST               a session of a TLS library shakes hands
//   THREAD NS read SESSION BYTES                    a read of a session has found bytes, or nothing (0)
//
// Output: `operation …` as in `report`, `missed THREAD`, `refused THREAD`, `foreign THREAD`, `socket THREAD FD` for each
// `read`, and at the end `outside THREAD PARTS…`.
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#include "split.h"

enum { MOST_THREADS = 256 };

static struct split_thread threads[MOST_THREADS];

static struct split_thread *thread_of(__u32 id) {
    for (int i = 0; i < MOST_THREADS; i++) {
        if (!threads[i].owner) {
            threads[i].owner = id;
            threads[i].fd = -1;
        }
        if (threads[i].owner == id)
            return &threads[i];
    }
    fprintf(stderr, "too many threads\n");
    exit(1);
}

static void ended(struct split_thread *thread) {
    const struct split_operation *operation = &thread->operation;
    printf("operation %u %d %llu %llu %llu %u %u %u %u %llu %llu", thread->owner, operation->request,
           operation->received_from, operation->start, operation->end, operation->flags,
           operation->request_bytes, operation->reply_bytes, operation->switches, operation->preempted,
           operation->resumed);
    for (int part = 0; part < PARTS; part++)
        printf(" %llu", operation->parts[part]);
    printf(" files");
    for (int i = 0; i < SPLIT_FILES && operation->files[i].reads; i++)
        printf(" %llu:%u:%llu:%llu:%u", operation->files[i].inode, operation->files[i].reads,
               operation->files[i].bytes, operation->files[i].wait_ns, operation->files[i].in_order);
    printf(" wakers");
    for (int i = 0; i < SPLIT_WAKERS && operation->wakers[i].thread; i++)
        printf(" %u:%llu:%u:%llu", operation->wakers[i].thread, operation->wakers[i].start,
               operation->wakers[i].count, operation->wakers[i].wait_ns);
    printf("\n");
}

static void runs(struct split_thread *thread, __u64 now, struct scheduled scheduled) {
    if (thread->state == ON_PROCESSOR)
        return;
    split_missed(thread, now, scheduled);
    printf("missed %u\n", thread->owner);
}

static void leaves(struct split_thread *thread, __u64 now, const char *words) {
    unsigned runnable, kind;
    int fd;
    struct scheduled scheduled;
    if (sscanf(words, "%u %u %d %llu %llu", &runnable, &kind, &fd, &scheduled.queued, &scheduled.arrived) !=
        5)
        exit(1);
    runs(thread, now, scheduled);
    split_leaves(thread, scheduled);
    if (runnable) {
        if (kind == KIND_YIELD)
            thread->kind = kind;
    } else {
        thread->kind = kind;
        if (kind == KIND_RECEIVE || kind == KIND_SEND) {
            thread->own_socket = fd == thread->fd;
            if (kind == KIND_RECEIVE && thread->own_socket && thread->phase == PHASE_RUNNING) {
                split_receives_again(thread, now);
                ended(thread);
            }
        }
    }
    split_switch_out(thread, now, runnable);
}

// The bytes of a text in hex; returns how many.
static unsigned bytes_of(const char *hex, __u8 *bytes) {
    unsigned length = 0;
    for (unsigned byte; length < HEADER_AND_FLAGS && sscanf(hex, "%2x", &byte) == 1; hex += 2)
        bytes[length++] = byte;
    return length;
}

static void received(struct split_thread *thread, __u64 now, int fd, int result, const __u8 *bytes) {
    if (thread->phase != PHASE_RECEIVING) {
        if (fd != thread->fd)
            thread->received = 0;
        __u32 at = thread->received & (HEADER - 1), wanted = HEADER - at;
        memcpy(thread->incoming + at, bytes, wanted > (__u32)result ? (__u32)result : wanted);
    }
    if (split_received(thread, now, fd, result) & SPLIT_REFUSED)
        printf("refused %u\n", thread->owner);
}

static void reply_went_on(struct split_thread *thread, __u64 now, __u32 led_to) {
    if (led_to & SPLIT_FOREIGN_REPLY)
        printf("foreign %u\n", thread->owner);
    if (!(led_to & SPLIT_ENDED))
        return;
    ended(thread);
    if (continues(thread))
        split_begin(thread, now, OPERATION_EXHAUST);
}

static void sent(struct split_thread *thread, __u64 now, int result, const __u8 *bytes) {
    struct message_header header;
    memcpy(&header, bytes, sizeof(header));
    reply_went_on(thread, now, split_sent(thread, now, result, &header));
}

// Something has happened to an encrypted connection. Returns whether it was that.
static bool used_tls(struct split_thread *thread, __u64 now, const char *verb, const char *words) {
    unsigned first = 0, second = 0;
    char hex[2 * HEADER_AND_FLAGS + 1] = "";
    struct message_header header = {};
    sscanf(words, "%u %u %40s", &first, &second, hex);
    if (!strcmp(verb, "encrypted")) {
        bytes_of(hex, (__u8 *)&header);
        reply_went_on(thread, now, split_encrypted(thread, now, first, &header, second));
    } else if (!strcmp(verb, "records"))
        reply_went_on(thread, now, split_records_sent(thread, now, first));
    else if (!strcmp(verb, "got"))
        tls_search_received(&thread->search, first, second);
    else if (!strcmp(verb, "handshake"))
        tls_search_handshake(&thread->search, first, second);
    else if (!strcmp(verb, "read"))
        printf("socket %u %llu\n", thread->owner, tls_search_read(&thread->search, first, second));
    else
        return false;
    return true;
}

static void used_socket(struct split_thread *thread, __u64 now, bool is_receive, const char *words) {
    int fd, result;
    char hex[2 * HEADER_AND_FLAGS + 1] = "";
    __u8 bytes[HEADER_AND_FLAGS] = {};
    if (sscanf(words, "%d %d %40s", &fd, &result, hex) < 2)
        exit(1);
    bytes_of(hex, bytes);
    if (fd == thread->fd) {
        if (is_receive && thread->phase == PHASE_RUNNING) {
            split_receives_again(thread, now);
            ended(thread);
        }
        if (result == 0)
            split_forget(thread, now);
    }
    if (result <= 0)
        return;
    if (is_receive && !in_operation(thread))
        received(thread, now, fd, result, bytes);
    else if (!is_receive && in_operation(thread) && fd == thread->fd)
        sent(thread, now, result, bytes);
}

static void call_ended(struct split_thread *thread, __u64 now, const char *verb, const char *words) {
    struct scheduled scheduled = {};
    long ended_with = 1;
    if (!strcmp(verb, "call") &&
        sscanf(words, "%llu %llu %ld", &scheduled.queued, &scheduled.arrived, &ended_with) < 2)
        exit(1);
    runs(thread, now, scheduled);
    if (!strcmp(verb, "receive") || !strcmp(verb, "send")) {
        used_socket(thread, now, !strcmp(verb, "receive"), words);
    } else if (!strcmp(verb, "file")) {
        unsigned kind;
        long long result;
        struct split_read read = {};
        if (sscanf(words, "%u %lld %llu %u %u %llu", &kind, &result, &read.inode, &read.device, &read.fd,
                   &read.offset) < 4)
            exit(1);
        read.bytes = result;
        if (in_operation(thread) && kind == KIND_READ && result > 0) {
            bool is_in_order = split_is_in_order(thread, &read);
            if (thread->wait_ns)
                split_file(thread, &read, is_in_order);
        }
    }
    if (thread->kind)
        split_call_ended(thread, ended_with);
}

int main(void) {
    char line[256], verb[16];
    while (fgets(line, sizeof(line), stdin)) {
        unsigned id, waker = 0;
        __u64 now;
        int words = 0;
        if (sscanf(line, "%u %llu %15s %n", &id, &now, verb, &words) < 3)
            return 1;
        struct split_thread *thread = thread_of(id);
        if (!strcmp(verb, "out")) {
            leaves(thread, now, line + words);
        } else if (!strcmp(verb, "in")) {
            if (!split_switch_in(thread, now))
                printf("missed %u\n", id);
        } else if (!strcmp(verb, "wake")) {
            if (sscanf(line + words, "%u", &waker) != 1)
                return 1;
            split_waking(thread, now, waker, waker ? thread_of(waker) : 0);
        } else if (!used_tls(thread, now, verb, line + words)) {
            call_ended(thread, now, verb, line + words);
        }
    }
    for (int i = 0; i < MOST_THREADS && threads[i].owner; i++) {
        printf("outside %u", threads[i].owner);
        for (int part = 0; part < PARTS; part++)
            printf(" %llu", threads[i].outside[part]);
        printf("\n");
    }
    return 0;
}
