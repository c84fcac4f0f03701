// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Requests of io_uring.
#pragma once

#include "access.h"

// What an opcode of io_uring does, as `call` describes it; -1 if it is of no interest.
static __always_inline int uring_call(__u8 opcode) {
    switch (opcode) {
    case 1: // READV
        return READ | VECTOR;
    case 2: // WRITEV
        return WRITE | VECTOR;
    case 3: // FSYNC
        return SYNC;
    case 4:  // READ_FIXED
    case 22: // READ
        return READ;
    case 5:  // WRITE_FIXED
    case 23: // WRITE
        return WRITE;
    }
    return -1;
}

static __always_inline int submitted(struct io_kiocb *request) {
    int call = uring_call(request->opcode);
    if (call < 0)
        return 0;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    if (!thread)
        return 0;
    report_thread(thread);
    struct uring_start start = {.kind = call & KIND, .thread = task->pid, .fd = request->cqe.fd};
    // The first bytes of a request depend on its kind.
    if (start.kind == SYNC) {
        struct io_sync *sync = (void *)request;
        if (BPF_CORE_READ(sync, flags) & 1)
            start.kind = DATASYNC;
    } else {
        struct io_rw *rw = (void *)request;
        __u32 length = BPF_CORE_READ(rw, len);
        start.asked = call & VECTOR ? segments(BPF_CORE_READ(rw, addr), length) : length;
        start.offset = BPF_CORE_READ(rw, kiocb.ki_pos);
    }
    start.ns = bpf_ktime_get_ns();
    __u64 key = (__u64)request;
    if (bpf_map_update_elem(&uring, &key, &start, 0))
        lost(STARTS_FULL);
    return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit_req, struct io_kiocb *request) {
    return submitted(request);
}

// The same before 6.3.
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(uring_submit_sqe, struct io_kiocb *request) {
    return submitted(request);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *context, void *of) {
    __u64 key = (__u64)of;
    struct uring_start *start = bpf_map_lookup_elem(&uring, &key);
    if (!start)
        return 0;
    struct io_kiocb *request = of;
    struct file *file = BPF_CORE_READ(request, file);
    struct inode *inode = file ? BPF_CORE_READ(file, f_inode) : 0;
    struct access access = {.file = inode && is_regular(inode) ? number_of(inode, file, start->fd) : IGNORED};
    if (access.file < UNREPORTED) {
        access.ns = start->ns;
        access.latency_ns = bpf_ktime_get_ns() - start->ns;
        access.offset = start->offset;
        access.asked = start->asked;
        access.device_bytes = UNKNOWN;
        access.thread = start->thread;
        access.result = BPF_CORE_READ(request, cqe.res);
        access.kind = start->kind;
        if (access.offset == UNKNOWN) {
            // It used the position of the file, which has advanced by the bytes transferred.
            struct io_rw *rw = (void *)request;
            access.offset = BPF_CORE_READ(rw, kiocb.ki_pos) - (access.result > 0 ? access.result : 0);
        }
        ended(0, &access, 1);
    }
    bpf_map_delete_elem(&uring, &key);
    return 0;
}
