// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Where the threads of one process are: registers and the top of the stack, without stopping it.
//
// An iterator walks the tasks of the machine and writes a record for each thread of the process. The registers are
// those with which the thread entered the kernel. A thread that runs on a processor has entered it at some earlier
// time, so its registers are out of date: `on_processor` samples such threads, by a timer that user space enables
// around each walk.
//
// A process that ends or executes another program is sampled no longer: whoever chose it did not choose the program of
// another user, or the next process with its number.
//
// User space loads `threads` where the kernel can read another process's memory in an iterator (since 5.18), else
// `threads_without_memory`, and then reads the stacks itself. sonar-sys/src/stacks.rs reads the records.

#include "kernel.h"
#include "stack.h"

// A walk hands its records on in buffers of 32 KiB, and each record has to fit into one.
enum { CHUNK = 4096, CHUNKS = 7, MAX_BYTES = CHUNK * CHUNKS, SAMPLES_BYTES = 2 << 20 };

// Set by user space before loading.
const volatile __u32 process = 0;

struct thread_head {
    __u32 thread;
    __u32 state;
    __s64 call; // the number of the system call; -1 if the thread is in none
    __u64 ip, sp, fp, lr;
    __u64 ns;             // when, by the monotonic clock
    __u64 switches;       // context switches of the thread so far
    __u64 switches_after; // the same when the stack had been copied
    __u32 on_cpu;
    __u32 length; // of the stack that follows, from `sp` on
    char comm[16];
};

struct walked {
    struct thread_head head;
    __u8 stack[MAX_BYTES];
};
struct sampled {
    struct thread_head head;
    __u8 stack[STACK_BYTES];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct walked);
} scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, SAMPLES_BYTES);
} samples SEC(".maps");

// Samples that did not fit into the ring.
__u64 samples_lost = 0;
// The process has ended or executes another program.
volatile __u32 has_ended = 0;

struct seq_file;
struct bpf_iter_meta {
    struct seq_file *seq;
} CORE;
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
} CORE;

static __always_inline bool is_sampled(struct task_struct *task) {
    return task->tgid == process && !has_ended;
}

static __always_inline __u64 switches_of(struct task_struct *task) {
    return task->nvcsw + task->nivcsw;
}

static __always_inline void fill(struct thread_head *head, struct task_struct *task, struct pt_regs *regs) {
    head->thread = task->pid;
    head->state = task->__state;
    head->call = (long)CALL(regs);
    head->ip = REGS_IP(regs);
    head->sp = REGS_SP(regs);
    head->fp = REGS_FP(regs);
    head->lr = REGS_LR(regs);
    head->ns = bpf_ktime_get_ns();
    head->switches = switches_of(task);
    head->switches_after = head->switches;
    head->on_cpu = bpf_core_field_exists(task->on_cpu) ? task->on_cpu : 0;
    head->length = 0;
    bpf_probe_read_kernel(head->comm, sizeof(head->comm), task->comm);
}

SEC("iter.s/task")
int threads(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    __u32 zero = 0;
    struct walked *walked = bpf_map_lookup_elem(&scratch, &zero);
    if (!task || !walked || !is_sampled(task))
        return 0;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    fill(&walked->head, task, regs);
    __u64 at = walked->head.sp;
    __u32 length = 0;
    for (int i = 0; i < CHUNKS; i++) {
        // Up to the end of the page: the next one may be none of the stack.
        __u32 size = CHUNK - (at & (CHUNK - 1));
        if (length > MAX_BYTES - CHUNK || size > CHUNK)
            break;
        if (bpf_copy_from_user_task(walked->stack + length, size, (void *)at, task, 0))
            break;
        length += size;
        at += size;
    }
    walked->head.length = length;
    walked->head.switches_after = switches_of(task);
    // What was copied may be of the next program.
    if (length <= MAX_BYTES && !has_ended)
        bpf_seq_write(ctx->meta->seq, walked, sizeof(walked->head) + length);
    return 0;
}

SEC("iter/task")
int threads_without_memory(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    if (!task || !is_sampled(task))
        return 0;
    struct thread_head head = {};
    fill(&head, task, (struct pt_regs *)bpf_task_pt_regs(task));
    bpf_seq_write(ctx->meta->seq, &head, sizeof(head));
    return 0;
}

SEC("perf_event")
int on_processor(void *ctx) {
    struct task_struct *task = bpf_get_current_task_btf();
    if (!is_sampled(task))
        return 0;
    struct sampled *sampled = bpf_ringbuf_reserve(&samples, sizeof(*sampled), 0);
    if (!sampled) {
        __sync_fetch_and_add(&samples_lost, 1);
        return 0;
    }
    fill(&sampled->head, task, (struct pt_regs *)bpf_task_pt_regs(task));
    sampled->head.length = copy_stack(sampled->stack, sampled->head.sp);
    bpf_ringbuf_submit(sampled, BPF_RB_NO_WAKEUP);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_executes, struct task_struct *task) {
    if (task->tgid == process)
        has_ended = 1;
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exits, struct task_struct *task) {
    if (task->tgid == process && !task->signal->live.counter)
        has_ended = 1;
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
