// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// From the beginning of an access to its record in the ring, or to the figures of its file.
#pragma once

#include "file.h"

struct access {
    __u64 ns, latency_ns, offset, asked, device_bytes;
    __s64 result;
    __u32 file, kind, thread;
};

static __always_inline __u32 log2_of(__u64 value) {
    __u32 log = 0;
    if (value >> 32) {
        value >>= 32;
        log += 32;
    }
    if (value >> 16) {
        value >>= 16;
        log += 16;
    }
    if (value >> 8) {
        value >>= 8;
        log += 8;
    }
    if (value >> 4) {
        value >>= 4;
        log += 4;
    }
    if (value >> 2) {
        value >>= 2;
        log += 2;
    }
    return log + (value >> 1);
}

static __always_inline __u32 bucket(__u64 ns) {
    if (ns < 8)
        return ns;
    __u32 log = log2_of(ns);
    if (log > 33)
        return BUCKETS - 1;
    return (log - 2) * 8 + ((ns >> (log - 3)) & 7);
}

static __always_inline void distance(struct usage *usage, struct stream *stream,
                                     const struct access *access) {
    if (access->result < 0)
        return;
    __u64 end = stream->end;
    if (end != UNKNOWN) {
        if (access->offset == end)
            add(usage->contiguous, 1);
        else if (access->offset < end)
            add(usage->back, 1);
        else if (access->offset - end > NEAR)
            add(usage->ahead, 1);
        else
            add(usage->near, 1);
    }
    stream->end = access->offset + access->result;
}

// Adds an access to the figures of its file.
static __always_inline void add_up(struct stream *stream, const struct access *access) {
    __u32 file = access->file;
    struct usage *usage = bpf_map_lookup_elem(&usages, &file);
    if (unlikely(!usage)) {
        lost(FILES_FULL);
        return;
    }
    __u64 given = access->result > 0 ? access->result : 0;
    if (unlikely(access->result < 0))
        add(usage->errors, 1);
    if (unlikely(access->kind == WRITE)) {
        add(usage->writes, 1);
        add(usage->write_bytes, given);
        add(usage->write_ns, access->latency_ns);
        return;
    }
    if (unlikely(access->kind == SYNC || access->kind == DATASYNC)) {
        add(usage->syncs, 1);
        add(usage->sync_ns, access->latency_ns);
        return;
    }
    add(usage->reads, 1);
    add(usage->read_bytes, given);
    if (access->kind == FAULT)
        add(usage->faults, 1);
    if (access->kind != FAULT || access->latency_ns) {
        add(usage->read_ns, access->latency_ns);
        add(usage->latency[bucket(access->latency_ns) & (BUCKETS - 1)], 1);
    }
    if (unlikely(access->device_bytes == UNKNOWN)) {
        add(usage->unknown, 1);
        add(usage->unknown_bytes, given);
    } else if (access->device_bytes) {
        add(usage->fetches, 1);
        add(usage->device_bytes, access->device_bytes);
    }
    __u64 hash = (access->offset >> 12) * GOLDEN;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9ULL;
    // The number of leading zeros in the bits that do not choose the place, plus one.
    __u8 rank = 56 - log2_of((hash & ((1ULL << 56) - 1)) | 1);
    __u8 *place = &usage->places[hash >> 56];
    if (*place < rank)
        *place = rank;
    if (stream)
        distance(usage, stream, access);
}

// Reports an access that has ended, or adds it up; `look`: check whether to wake user space.
static __always_inline void ended(struct stream *stream, const struct access *access, bool look) {
    if (live) {
        add_up(stream, access);
        return;
    }
    struct access_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (unlikely(!record)) {
        lost(RING_FULL);
        return;
    }
    record->record = RECORD_ACCESS;
    record->kind = access->kind;
    record->file = access->file;
    record->thread = access->thread;
    record->ns = access->ns;
    record->latency_ns = access->latency_ns;
    record->offset = access->offset;
    record->asked = access->asked;
    record->result = access->result;
    record->device_bytes = access->device_bytes;
    // Waking costs more than all the rest: user space reads the ring ten times a second, and is woken only if the
    // ring fills faster than that.
    bool wake = look && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > RING_BYTES / 4;
    bpf_ringbuf_submit(record, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

// Reports the name of the current thread to user space, if accesses are reported one by one.
static __always_inline void report_thread(struct thread *thread) {
    if (live || thread->reported)
        return;
    struct thread_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record)
        return;
    __u64 id = bpf_get_current_pid_tgid();
    record->record = RECORD_THREAD;
    record->thread = (__u32)id;
    record->process = id >> 32;
    record->unused = 0;
    bpf_get_current_comm(record->name, sizeof(record->name));
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    thread->reported = 1;
}

static __always_inline __u64 device_bytes(struct task_struct *task) {
    // Unknown if the kernel does not account (no CONFIG_TASK_IO_ACCOUNTING).
    if (!bpf_core_field_exists(task->ioac.read_bytes))
        return UNKNOWN;
    return task->ioac.read_bytes;
}

static __always_inline void begin(struct thread *thread, struct task_struct *task, __u8 kind) {
    thread->kind = kind;
    thread->pending = 1;
    thread->device_bytes = device_bytes(task);
    thread->ns = bpf_ktime_get_ns();
}

static __always_inline void finish(struct thread *thread, struct task_struct *task, struct stream *stream,
                                   __u32 kind, __u64 ended_ns, __u64 offset, __u64 asked, __s64 result) {
    struct access access = {
        .file = stream->file,
        .ns = thread->ns,
        .latency_ns = ended_ns - thread->ns,
        .offset = offset,
        .asked = asked,
        .device_bytes = thread->device_bytes == UNKNOWN ? UNKNOWN : device_bytes(task) - thread->device_bytes,
        .thread = task->pid,
        .result = result,
        .kind = kind,
    };
    // Threads change their names with their work.
    __u32 count = thread->count++;
    if (unlikely(count % 1024 == 0))
        thread->reported = 0;
    report_thread(thread);
    ended(stream, &access, count % 64 == 0);
}

// Sum of the bytes of the segments of a vectored call.
static __always_inline __u64 segments(__u64 from, __u64 count) {
    __u64 sum = 0;
    if (count > MAX_SEGMENTS)
        lost(UNREADABLE);
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        __u64 segment[2];
        if (i >= count)
            break;
        if (bpf_probe_read_user(segment, sizeof(segment), (void *)(from + i * 16))) {
            lost(UNREADABLE);
            break;
        }
        sum += segment[1];
    }
    return sum;
}
