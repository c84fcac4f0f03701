// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses, seen at the functions of the VFS.
#pragma once

#include "access.h"

// Whether the current thread is in a system call that flushes.
static __always_inline bool is_flushing(struct task_struct *task) {
    if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
        return 0;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    __u64 number = CALL_OF(regs);
    return number == CALL_FSYNC || number == CALL_FDATASYNC || number == CALL_MSYNC;
}

// Whether the access that begins now is part of the current one: a write that is flushed at once, a flush of the file
// below an overlay, a fault of the buffer. If not, the end of the current one was missed.
static __always_inline bool is_within(struct thread *thread, struct task_struct *task, __u32 kind,
                                      __u64 frame) {
    if (kind == READ || kind == WRITE || frame >= thread->frame)
        return 0;
    if (kind == FAULT)
        return 1;
    switch (thread->kind) {
    case WRITE:
        return !is_flushing(task);
    case SYNC:
    case DATASYNC:
        return 1;
    }
    return 0;
}

// Whether an access that begins counts. One whose end was missed is dropped.
static __always_inline bool counts(struct thread *thread, struct task_struct *task, __u32 kind, __u64 frame) {
    if (unlikely(thread->pending)) {
        if (is_within(thread, task, kind, frame))
            return 0;
        lost(ENDS_UNSEEN);
    }
    thread->frame = frame;
    return 1;
}

static __always_inline void enter(void *context, struct file *file, __u32 kind) {
    if (!is_regular(file->f_inode))
        return;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    if (!thread || !counts(thread, task, kind, (__u64)context))
        return;
    thread->file = (__u64)file;
    begin(thread, task, kind);
}

// Ends what `enter` began; sets `stream` if the access counts.
static __always_inline struct thread *leave(struct task_struct *task, struct file *file, __u32 kind,
                                            __u64 *now, struct stream **stream) {
    struct thread *thread = under_way(task);
    if (!thread || thread->kind != kind || thread->file != (__u64)file)
        return 0;
    thread->pending = 0;
    *now = bpf_ktime_get_ns();
    *stream = stream_of(thread, file->f_inode, file, -1);
    return *stream ? thread : 0;
}

// Offset of an access that left the file at `pos`.
static __always_inline __u64 place(struct file *file, long long *pos, long result) {
    // Both by the helper: the verifier does not let one instruction read either the stack or the file.
    __u64 offset = 0;
    if (!pos || bpf_probe_read_kernel(&offset, sizeof(offset), pos))
        offset = BPF_CORE_READ(file, f_pos);
    return offset - (result > 0 ? result : 0);
}

static __always_inline void transferred(struct file *file, __u32 kind, long long *pos, const void *vector,
                                        __u64 count, long result) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct stream *stream;
    __u64 now;
    struct thread *thread = leave(task, file, kind, &now, &stream);
    if (!thread)
        return;
    __u64 asked = vector ? segments((__u64)vector, count) : count;
    finish(thread, task, stream, kind, now, place(file, pos, result), asked, result);
}

SEC("fentry/vfs_read")
int BPF_PROG(read_enter, struct file *file) {
    enter(ctx, file, READ);
    return 0;
}

SEC("fexit/vfs_read")
int BPF_PROG(read_leave, struct file *file, char *buffer, unsigned long count, long long *pos, long result) {
    transferred(file, READ, pos, 0, count, result);
    return 0;
}

SEC("fentry/vfs_write")
int BPF_PROG(write_enter, struct file *file) {
    enter(ctx, file, WRITE);
    return 0;
}

SEC("fexit/vfs_write")
int BPF_PROG(write_leave, struct file *file, char *buffer, unsigned long count, long long *pos, long result) {
    transferred(file, WRITE, pos, 0, count, result);
    return 0;
}

SEC("fentry/vfs_readv")
int BPF_PROG(readv_enter, struct file *file) {
    enter(ctx, file, READ);
    return 0;
}

SEC("fexit/vfs_readv")
int BPF_PROG(readv_leave, struct file *file, void *vector, unsigned long count, long long *pos, int flags,
             long result) {
    transferred(file, READ, pos, vector, count, result);
    return 0;
}

SEC("fentry/vfs_writev")
int BPF_PROG(writev_enter, struct file *file) {
    enter(ctx, file, WRITE);
    return 0;
}

SEC("fexit/vfs_writev")
int BPF_PROG(writev_leave, struct file *file, void *vector, unsigned long count, long long *pos, int flags,
             long result) {
    transferred(file, WRITE, pos, vector, count, result);
    return 0;
}

SEC("fentry/vfs_fsync_range")
int BPF_PROG(sync_enter, struct file *file, long long from, long long to, int data) {
    enter(ctx, file, data ? DATASYNC : SYNC);
    return 0;
}

SEC("fexit/vfs_fsync_range")
int BPF_PROG(sync_leave, struct file *file, long long from, long long to, int data, int result) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct stream *stream;
    __u64 now;
    __u32 kind = data ? DATASYNC : SYNC;
    struct thread *thread = leave(task, file, kind, &now, &stream);
    if (thread)
        finish(thread, task, stream, kind, now, 0, 0, result);
    return 0;
}

// Whether user space needed the page, not the kernel within a system call.
static __always_inline bool is_of_user_space(struct vm_fault *fault) {
    struct vm_fault___number *older = (void *)fault;
    __u32 flags = bpf_core_field_exists(fault->flags) ? fault->flags : older->flags;
    return flags & FAULT_FLAG_USER;
}

SEC("fentry/filemap_fault")
int BPF_PROG(fault_enter, struct vm_fault *fault) {
    struct file *file = fault->vma->vm_file;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    if (!thread)
        return 0;
    // A fault of user space is not within a system call, so the end of the current access was missed.
    if (unlikely(thread->pending && is_of_user_space(fault))) {
        lost(ENDS_UNSEEN);
        thread->pending = 0;
    }
    if (!counts(thread, task, FAULT, (__u64)ctx))
        return 0;
    thread->pending = 0;
    // Looked up now: when the fault has ended, the mapping may be gone.
    struct inode *inode = file->f_inode;
    if (!stream_of(thread, inode, file, -1))
        return 0;
    thread->stream = stream_at(inode->i_ino);
    thread->offset = (__u64)fault->pgoff << page_shift;
    begin(thread, task, FAULT);
    return 0;
}

SEC("fexit/filemap_fault")
int BPF_PROG(fault_leave, struct vm_fault *fault, int result) {
    enum { FAILED = 0x2 | 0x4, RETRY = 0x400 };
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = under_way(task);
    if (!thread || thread->kind != FAULT)
        return 0;
    thread->pending = 0;
    // A fault that has to be retried comes again, when the page is there.
    __u64 page = 1ULL << page_shift;
    __s64 given = result & FAILED ? -5 : result & RETRY ? 0 : page;
    struct stream *stream = &thread->streams[thread->stream & (STREAMS - 1)];
    finish(thread, task, stream, FAULT, bpf_ktime_get_ns(), thread->offset, page, given);
    return 0;
}
