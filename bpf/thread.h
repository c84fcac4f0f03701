// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Whether the current thread is followed, and its state.
#pragma once

#include "state.h"

static __always_inline bool maybe_followed(__u32 process) {
    __u32 word = process >> 6 & 3;
    return (control.some[word] | started[word]) >> (process & 63) & 1;
}

// The state of a thread whose slot belongs to another one; 0 if there is none.
static __always_inline struct thread *without_slot(struct task_struct *task, struct thread *slot,
                                                   bool create) {
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread || !create)
        return thread;
    if (slot && !slot->owner && !__sync_val_compare_and_swap(&slot->owner, 0, (__u32)task->pid)) {
        slot->pending = slot->reported = 0;
        slot->generation = 0;
        for (int i = 0; i < STREAMS; i++)
            slot->streams[i].at = 0;
        return slot;
    }
    return bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

// The state of a thread; `create` makes it if there is none.
static __always_inline struct thread *state_of(struct task_struct *task, bool create) {
    __u32 id = task->pid, number = id & (SLOTS - 1);
    struct thread *slot = bpf_map_lookup_elem(&slots, &number);
    return likely(slot && slot->owner == id) ? slot : without_slot(task, slot, create);
}

// The state of the current thread, if its process is followed.
static __always_inline struct thread *followed(struct task_struct *task) {
    __u32 process = task->tgid;
    if (!maybe_followed(process))
        return 0;
    struct thread *thread = state_of(task, 1);
    if (unlikely(!thread)) {
        lost(STARTS_FULL);
        return 0;
    }
    __u32 generation = control.generation;
    if (unlikely(thread->generation != generation)) {
        thread->generation = generation;
        thread->followed = bpf_map_lookup_elem(&processes, &process) != 0;
    }
    return thread->followed ? thread : 0;
}

// The same, if the thread is within an access.
static __always_inline struct thread *under_way(struct task_struct *task) {
    if (!maybe_followed(task->tgid))
        return 0;
    struct thread *thread = state_of(task, 0);
    return thread && thread->pending ? thread : 0;
}
