// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses, seen at the system calls.
#pragma once

#include "access.h"

// What a call does.
static __always_inline __u32 call(long number) {
    switch (number) {
    case CALL_PREAD:
        return READ | AT_OFFSET;
    case CALL_PWRITE:
        return WRITE | AT_OFFSET;
    case CALL_READ:
        return READ;
    case CALL_WRITE:
        return WRITE;
    case CALL_READV:
        return READ | VECTOR;
    case CALL_WRITEV:
        return WRITE | VECTOR;
    case CALL_FSYNC:
        return SYNC;
    case CALL_FDATASYNC:
        return DATASYNC;
    case CALL_PREADV:
    case CALL_PREADV2:
        return READ | VECTOR | AT_OFFSET;
    case CALL_PWRITEV:
    case CALL_PWRITEV2:
        return WRITE | VECTOR | AT_OFFSET;
    case CALL_IO_URING_ENTER:
        return URING;
    }
    return NO_CALL;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number) {
    __u32 what = call(number);
    if (what == NO_CALL || (what == URING && uring_seen))
        return 0;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    if (!thread)
        return 0;
    if (what == URING) {
        lost(NOT_FOLLOWED);
        return 0;
    }
    if (unlikely(thread->pending))
        lost(ENDS_UNSEEN);
    begin(thread, task, what);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result) {
    __u32 what = call(CALL(regs));
    if (what == NO_CALL || what == URING)
        return 0;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = under_way(task);
    if (!thread)
        return 0;
    thread->pending = 0;
    __u64 now = bpf_ktime_get_ns();
    __u32 fd = ARG1(regs);
    struct fdtable *table = task->files->fdt;
    struct file *file = 0;
    if (fd < table->max_fds)
        file = (struct file *)FIELD((void *)(table->fd + fd), list_head, next);
    if (unlikely(!file)) {
        // It was never open, or another thread closed it during the call.
        if (result != -9)
            lost(UNREADABLE);
        return 0;
    }
    struct stream *stream = stream_of(thread, FIELD(file, file, f_inode), file, fd);
    if (!stream)
        return 0;
    __u32 kind = what & KIND;
    __u64 asked = 0, offset = 0;
    if (kind == READ || kind == WRITE) {
        asked = unlikely(what & VECTOR) ? segments(ARG2(regs), ARG3(regs)) : ARG3(regs);
        offset = what & AT_OFFSET ? ARG4(regs) : UNKNOWN;
        // preadv2 with -1, and calls without an offset: the position of the file now, less the bytes transferred.
        if (offset == UNKNOWN)
            offset = FIELD(file, file, f_pos) - (result > 0 ? result : 0);
    }
    finish(thread, task, stream, kind, now, offset, asked, result);
    return 0;
}

// A fault that the page cache did not answer at once. Its end cannot be seen here, so its latency is 0: unknown.
SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(fault_tracepoint, struct address_space *mapping, unsigned long index) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    if (!thread)
        return 0;
    struct stream *stream = stream_of(thread, mapping->host, 0, -1);
    if (!stream)
        return 0;
    struct access access = {
        .file = stream->file,
        .ns = bpf_ktime_get_ns(),
        .offset = (__u64)index << page_shift,
        .asked = 1ULL << page_shift,
        .result = 1ULL << page_shift,
        .device_bytes = UNKNOWN,
        .thread = task->pid,
        .kind = FAULT,
    };
    report_thread(thread);
    ended(stream, &access, 1);
    return 0;
}
