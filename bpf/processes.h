// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Processes that start with the requested name, and processes that exit.
#pragma once

#include "thread.h"

// Whether user space wants processes with this name; `name` has PROGRAM_NAME bytes.
static __always_inline bool is_asked_for(const __u8 *name) {
    for (int i = 0; i < PROGRAM_NAME; i++) {
        if (name[i] != program_name[i])
            return 0;
        if (!name[i])
            return i > 0;
    }
    return 1;
}

// Whether a name in the kernel's memory is the requested one.
static __always_inline bool is_named(const void *from) {
    __u8 name[PROGRAM_NAME] = {};
    return bpf_probe_read_kernel_str(name, sizeof(name), from) > 0 && is_asked_for(name);
}

static __always_inline void report_process(__u32 process, __u32 what) {
    struct process_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record) {
        lost(RING_FULL);
        return;
    }
    record->record = RECORD_PROCESS;
    record->process = process;
    record->what = what;
    record->unused = 0;
    // User space can inspect it while it runs.
    bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

// Follows a process from now on; `task` is one of its threads. `again` also reports a process that is followed already.
static __always_inline void start(struct task_struct *task, bool again) {
    __u32 process = task->tgid, one = 1;
    if (bpf_map_lookup_elem(&processes, &process)) {
        if (again)
            report_process(process, PROCESS_STARTED);
        return;
    }
    if (bpf_map_update_elem(&processes, &process, &one, 0)) {
        report_process(process, PROCESS_REFUSED);
        return;
    }
    __sync_fetch_and_or(&started[process >> 6 & 3], 1ULL << (process & 63));
    // The thread may remember that its process is not followed.
    struct thread *thread = state_of(task, 0);
    if (thread)
        thread->generation = 0;
    report_process(process, PROCESS_STARTED);
}

static __always_inline void end(__u32 process) {
    if (!bpf_map_delete_elem(&processes, &process))
        report_process(process, PROCESS_ENDED);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *program) {
    if (!program_name[0])
        return 0;
    const void *name = BPF_CORE_READ(program, file, f_path.dentry, d_name.name);
    if (is_named(task->comm) || is_named(name)) {
        // It got its name during exec, before it had a command line.
        start(task, 1);
    } else {
        end(task->tgid);
        struct thread *thread = state_of(task, 0);
        if (thread)
            thread->generation = 0;
    }
    return 0;
}

// A child inherits its parent's name.
SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child) {
    __u32 process = parent->tgid;
    if (program_name[0] && child->pid == child->tgid && maybe_followed(process) &&
        bpf_map_lookup_elem(&processes, &process))
        start(child, 0);
    return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *name) {
    if (program_name[0] && task->pid == task->tgid && is_named(name))
        start(task, 0);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task) {
    __u32 process = task->tgid, id = task->pid, number = id & (SLOTS - 1);
    if (!maybe_followed(process))
        return 0;
    struct thread *slot = bpf_map_lookup_elem(&slots, &number);
    if (slot && slot->owner == id) {
        slot->pending = 0;
        slot->owner = 0;
    }
    if (!task->signal->live.counter)
        end(process);
    return 0;
}
