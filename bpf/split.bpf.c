// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Divides the time of operations of a MongoDB server: which thread serves which request, and what it does or waits for
// until the reply has been sent.
//
//   a system call ends, a thread leaves or gets a processor, somebody wakes it
//     -> is its process followed?              thread_of(); `split_processes` decides
//     -> where its time goes                   split.h, the state machine
//     -> headers of messages, sockets, files   here: read from the thread's memory and the kernel's
//     -> an operation has ended: a record      the ring
//
// No program runs when a system call begins, because there are many and few of them block. When a thread leaves its
// processor, its registers show which call it is blocked in.
//
// On encrypted connections, headers are read where the TLS library hands bytes over: see tls_call.h and tls_thread.h.
//
// Threads that serve no connection only add up their time, in `split_thread.outside`, which user space reads.
//
// What is copied of a thread's memory is for user space to read, so user space must not choose the thread at will: the
// process that reads the rings can write no map by which threads are chosen. `split_processes`, `split_control` and
// `split_skipped` are written through descriptors that only a helper process keeps, and `split_threads` by these programs
// alone.

#include "kernel.h"
#include "socket.h"
#include "split.h"
#include "stack.h"
#include "tls_call.h"

// User space gives `split_ring` less where it has less room.
enum { MOST_THREADS = 8192, MOST_PROCESSES = 64, SPLIT_RING_BYTES = 16 << 20, STACKS_RING_BYTES = 4 << 20 };
enum {
    SPLIT_LOST_RING_FULL,
    SPLIT_LOST_THREADS_FULL,
    SPLIT_LOST_UNREADABLE,
    SPLIT_LOST_FOREIGN_REPLY,
    SPLIT_LOST_SWITCH, // a thread got or left a processor unseen
    SPLIT_LOST_STACK,  // a long wait without a stack: too many of them
    SPLIT_LOSSES,
};

// Written by user space at any time; see `control` of state.h. It is static so that libbpf does not map its memory into
// the process that loads these programs: then it takes the map to write it.
struct split_control {
    __u64 some[4];
    __u32 generation;
    __u32 unused;
};
static volatile struct split_control split_control SEC(".data.control") = {};

// Set by user space before loading. Waits of at least `stack_after_ns` are reported with their stack, at most
// `stacks_a_second` in a second.
const volatile __u64 stack_after_ns = 1000000;
const volatile __u32 stacks_a_second = 200;
// The period of the timers that sample threads on processors.
const volatile __u64 sample_period_ns = 0;
// Follows one connection in this many.
const volatile __u32 sample_every = 1;

// A long wait, with the thread's registers and stack at the end of the system call that blocked it; or a sample of a
// thread on a processor, which stands for `ns` of its time there.
struct split_wait {
    __u64 start; // of the operation
    __u64 ns;
    __u64 ip, sp, fp, lr;
    __s64 call;
    __u32 thread;
    __u32 process;
    __u32 part;
    __u32 length; // of the stack
    __u8 stack[STACK_BYTES];
};

// Puts the records into the type information, from which the skeleton is generated.
const struct split_operation *split_record_types;
const struct split_wait *split_wait_types;
const struct split_control *split_control_types;

// The processes that are followed, with the generation from which on; 0 if one is only watched, until it is proven to be
// what it was chosen for. A process is removed here when it ends or executes another program.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_PROCESSES);
    __type(key, __u32);
    __type(value, __u32);
} split_processes SEC(".maps");

// The state of threads, by the low bits of their ids. No process can write it.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_RDONLY);
    __uint(max_entries, MOST_THREADS);
    __type(key, __u32);
    __type(value, struct split_thread);
} split_threads SEC(".maps");

// A thread that serves a connection outside of the sample. Most events of a busy server are of such threads, so their
// entries lie close together, by the low bits of their ids: the states of threads are too large to stay in a cache.
struct skipped {
    __u32 thread;       // 0: none
    __u32 fd : 24;      // of the connection
    __u32 receives : 8; // how often it may receive until its connection is checked again
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST_THREADS);
    __type(key, __u32);
    __type(value, struct skipped);
} split_skipped SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_RDONLY);
    __uint(max_entries, SPLIT_LOSSES);
    __type(key, __u32);
    __type(value, __u64);
} split_losses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, SPLIT_RING_BYTES);
} split_ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, STACKS_RING_BYTES);
} split_stacks SEC(".maps");

// Stacks of the current second.
struct stack_budget {
    __u64 second;
    __u64 used;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct stack_budget);
} split_stack_budget SEC(".maps");

static __always_inline void split_lost(__u32 reason) {
    __u64 *count = bpf_map_lookup_elem(&split_losses, &reason);
    if (count)
        __sync_fetch_and_add(count, 1);
}

#define PF_EXITING 4

static __always_inline bool maybe_split(__u32 process) {
    return split_control.some[process >> 6 & 3] >> (process & 63) & 1;
}

// How many slots are tried for a thread, and how far apart: threads that begin together have ids in a row, so the slots
// next to one that is taken are taken, too. Any odd step reaches all slots.
enum { SLOT_TRIES = 12, SLOT_STEP = 2503 };

static __always_inline struct split_thread *slot_at(__u32 id, __u32 try) {
    __u32 number = (id + try * SLOT_STEP) & (MOST_THREADS - 1);
    return bpf_map_lookup_elem(&split_threads, &number);
}

// Takes a free slot for a thread that has none. Its state is as if it had begun to run just now.
static __always_inline struct split_thread *new_slot(__u32 id) {
    for (__u32 try = 0; try < SLOT_TRIES; try++) {
        struct split_thread *slot = slot_at(id, try);
        if (!slot || slot->owner || __sync_val_compare_and_swap(&slot->owner, 0, id))
            continue;
        enum { BEGIN = __builtin_offsetof(struct split_thread, generation) };
        __builtin_memset(&slot->generation, 0, __builtin_offsetof(struct split_thread, header) - BEGIN);
        slot->fd = slot->session_fd = -1;
        return slot;
    }
    split_lost(SPLIT_LOST_THREADS_FULL);
    return 0;
}

// The slot of a thread; 0 if it has none.
static __always_inline struct split_thread *slot_of(__u32 id) {
    for (__u32 try = 0; try < SLOT_TRIES; try++) {
        struct split_thread *slot = slot_at(id, try);
        if (slot && slot->owner == id)
            return slot;
    }
    return 0;
}

// From which generation on a process is followed, by the kernel's id of it; 0 if it is not.
static __always_inline __u32 followed_since(__u32 process) {
    __u32 *since = bpf_map_lookup_elem(&split_processes, &process);
    return since ? *since : 0;
}

// The state of a thread whose process is followed; a new one if it has none. Call `maybe_split` and `skipped_of` first.
static __always_inline struct split_thread *followed_thread(struct task_struct *task) {
    __u32 process = task->tgid, generation = split_control.generation;
    struct split_thread *thread = slot_of(task->pid);
    // Its process was found to be followed in this generation.
    if (likely(thread && thread->generation == generation && thread->process == process))
        return thread;
    __u32 since = followed_since(process);
    // What is left of an earlier process, or of an earlier time in which this one was followed, is forgotten.
    if (thread && (!since || thread->process != process || thread->generation < since)) {
        thread->owner = 0;
        thread = 0;
    }
    // A thread that exits leaves its processor once more after its slot was given back.
    if (!thread && since && !(task->flags & PF_EXITING))
        thread = new_slot(task->pid);
    if (!thread)
        return 0;
    thread->generation = generation;
    thread->process = process;
    return thread;
}

// The entry at the place of a thread in `split_skipped`, which may be that of another one.
static __always_inline struct skipped *skip_entry(__u32 id) {
    __u32 number = id & (MOST_THREADS - 1);
    return bpf_map_lookup_elem(&split_skipped, &number);
}

// Its entry, if a thread is skipped.
static __always_inline struct skipped *skipped_of(struct task_struct *task) {
    if (sample_every <= 1)
        return 0;
    __u32 id = task->pid;
    struct skipped *entry = skip_entry(id);
    return entry && entry->thread == id ? entry : 0;
}

// The state of a thread that is followed.
static __always_inline struct split_thread *thread_of(struct task_struct *task) {
    if (!maybe_split(task->tgid) || skipped_of(task))
        return 0;
    return followed_thread(task);
}

// What a system call is to us, by its number.
static __always_inline __u32 kind_of(long number) {
    switch (number) {
    case CALL_READ:
    case CALL_READV:
    case CALL_PREAD:
    case CALL_PREADV:
    case CALL_PREADV2:
        return KIND_READ;
    case CALL_WRITE:
    case CALL_WRITEV:
    case CALL_PWRITE:
    case CALL_PWRITEV:
    case CALL_PWRITEV2:
        return KIND_WRITE;
    case CALL_FSYNC:
    case CALL_FDATASYNC:
    case CALL_MSYNC:
    case CALL_SYNC_FILE_RANGE:
        return KIND_FLUSH;
    case CALL_FUTEX:
        return KIND_FUTEX;
    case CALL_PPOLL:
    case CALL_EPOLL_PWAIT:
    case CALL_EPOLL_PWAIT2:
#if defined(__TARGET_ARCH_x86)
    case CALL_POLL:
    case CALL_EPOLL_WAIT:
#endif
        return KIND_POLL;
    case CALL_PSELECT6:
#if defined(__TARGET_ARCH_x86)
    case CALL_SELECT:
#endif
        return KIND_BACKOFF;
    case CALL_NANOSLEEP:
    case CALL_CLOCK_NANOSLEEP:
        return KIND_SLEEP;
    case CALL_RECVMSG:
    case CALL_RECVFROM:
        return KIND_RECEIVE;
    case CALL_SENDMSG:
    case CALL_SENDTO:
        return KIND_SEND;
    case CALL_SCHED_YIELD:
        return KIND_YIELD;
    }
    return KIND_OTHER;
}

// read(2) and its like serve files, sockets and everything else.
static __always_inline __u32 kind_by_file(struct task_struct *task, __u32 kind, __u32 fd) {
    struct file *file = file_of(task, fd);
    __u32 type = file ? type_of(file) : 0;
    if (type == S_IFREG)
        return kind;
    if (type == S_IFSOCK)
        return kind == KIND_READ ? KIND_RECEIVE : KIND_SEND;
    return KIND_OTHER;
}

// The kind of a call, by its number and, where that matters, its file.
static __always_inline __u32 kind_of_call(struct task_struct *task, long number, __u32 fd) {
    __u32 kind = kind_of(number);
    if (number == CALL_READ || number == CALL_READV || number == CALL_WRITE || number == CALL_WRITEV)
        return kind_by_file(task, kind, fd);
    return kind;
}

#define EINTR 4
#define EAGAIN 11
// The range of results of a call that a signal interrupted and that the kernel restarts.
#define ERESTARTSYS 512
#define ERESTART_RESTARTBLOCK 516

// Whether a call on a socket shows that its connection has ended.
static __always_inline bool is_end(long result) {
    bool begins_again = result <= -ERESTARTSYS && result >= -ERESTART_RESTARTBLOCK;
    return result <= 0 && result != -EAGAIN && result != -EINTR && !begins_again;
}

// How often a thread whose connection is outside of the sample may receive until that is checked again.
enum { SKIPPED_RECEIVES = 255 };

// A system call of a thread that is skipped has ended. Returns whether it still is: not if its connection has ended, or
// it receives on another one.
static __always_inline bool stays_skipped(struct skipped *skipped, struct pt_regs *regs, long result) {
    long number = CALL(regs);
    bool is_receive = number == CALL_RECVMSG || number == CALL_RECVFROM;
    if (!is_receive && number != CALL_READ && number != CALL_READV)
        return 1;
    bool has_changed = ARG1(regs) == skipped->fd ? is_end(result) : is_receive;
    if (!has_changed && --skipped->receives)
        return 1;
    skipped->thread = 0;
    return 0;
}

static __always_inline struct scheduled scheduled_of(struct task_struct *task) {
    struct scheduled scheduled = {};
    if (bpf_core_field_exists(task->sched_info.run_delay)) {
        scheduled.queued = task->sched_info.run_delay;
        scheduled.arrived = task->sched_info.last_arrival;
    }
    return scheduled;
}

// The thread runs. Now and then the kernel loses a switch, above all in virtual machines.
static __always_inline void runs(struct split_thread *thread, struct task_struct *task) {
    if (likely(thread->state == ON_PROCESSOR))
        return;
    split_missed(thread, bpf_ktime_get_ns(), scheduled_of(task));
    split_lost(SPLIT_LOST_SWITCH);
}

static __always_inline bool is_peek(struct pt_regs *regs, long number) {
    return (number == CALL_RECVMSG && ARG3(regs) & MSG_PEEK) ||
           (number == CALL_RECVFROM && ARG4(regs) & MSG_PEEK);
}

enum { SHORT_RECORD = __builtin_offsetof(struct split_operation, files) };

static __always_inline void report(struct split_thread *thread) {
    struct split_operation *operation = &thread->operation;
    void *record;
    if (is_long(operation)) {
        record = bpf_ringbuf_reserve(&split_ring, sizeof(*operation), 0);
        if (record)
            __builtin_memcpy(record, operation, sizeof(*operation));
    } else {
        record = bpf_ringbuf_reserve(&split_ring, SHORT_RECORD, 0);
        if (record)
            __builtin_memcpy(record, operation, SHORT_RECORD);
    }
    // Waking the reader for each would cost more than everything else; it looks by itself.
    if (record)
        bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    else
        split_lost(SPLIT_LOST_RING_FULL);
}

// Whether the connection of a socket is followed. Checked first, so that other connections cost little.
static __always_inline bool is_chosen(struct task_struct *task, __u32 fd) {
    if (sample_every <= 1)
        return 1;
    struct sock *sock = socket_of(task, fd);
    return sock && is_sampled(__builtin_bswap16(FIELD(sock, sock, __sk_common.skc_dport)), sample_every);
}

// A thread has received `bytes` on a connection outside of the sample, or a TLS library has decrypted them. If they
// begin with the header of a request, the thread is skipped, so that it costs next to nothing. Returns whether it has no
// state any more.
static __always_inline bool skip_if_requested(struct split_thread *thread, struct task_struct *task, __u32 fd,
                                              __u64 from, __s64 bytes) {
    struct message_header header = {};
    if (in_operation(thread) || bytes < HEADER || !from)
        return 0;
    if (bpf_probe_read_user(&header, HEADER, (const void *)from) || !is_request(&header))
        return 0;
    struct skipped *skipped = skip_entry(task->pid);
    // A place that another thread has is left to it. If both take it at once, the descriptor may be that of the other
    // one; the next receive corrects that.
    if (!skipped || skipped->thread) {
        split_forget(thread, bpf_ktime_get_ns());
        return 0;
    }
    skipped->fd = fd;
    skipped->receives = SKIPPED_RECEIVES;
    skipped->thread = task->pid;
    // Another thread may take its slot at once.
    thread->owner = 0;
    return 1;
}

// What an operation cannot know from the calls: its connection, its thread, the counters of the thread so far.
static __always_inline void begun(struct split_thread *thread, struct task_struct *task) {
    struct split_operation *operation = &thread->operation;
    operation->thread = task->pid;
    operation->process = task->tgid;
    bpf_get_current_comm(operation->name, sizeof(operation->name));
    operation->device_bytes = task->ioac.read_bytes;
    operation->faults = task->maj_flt;
    operation->addresses.family = 0;
    struct sock *sock = socket_of(task, thread->fd);
    if (sock)
        addresses_of(sock, &operation->addresses);
}

static __always_inline void ended(struct split_thread *thread, struct task_struct *task) {
    struct split_operation *operation = &thread->operation;
    operation->device_bytes = task->ioac.read_bytes - operation->device_bytes;
    operation->faults = task->maj_flt - operation->faults;
    report(thread);
}

// An operation without a reply ends here: from now on the thread waits for the next request.
static __always_inline void receives_again(struct split_thread *thread, struct task_struct *task, __u64 now) {
    split_receives_again(thread, now);
    ended(thread, task);
}

// Bytes of requests have come to `buffer`.
static __always_inline void received(struct split_thread *thread, struct task_struct *task, __u32 fd,
                                     const struct buffer *buffer, __s32 bytes) {
    if (thread->phase != PHASE_RECEIVING) {
        if (fd != (__u32)thread->fd)
            thread->received = 0;
        __u32 at = thread->received & (HEADER - 1), wanted = HEADER - at;
        if (wanted > (__u32)bytes)
            wanted = bytes;
        // Before the first request it may be the middle of a message: a header is read by itself.
        if (thread->phase == PHASE_NONE && !at && bytes < HEADER && buffer->length != HEADER)
            return;
        // The compiler knows that it is at most 16, and would leave out what shows that to the verifier.
        barrier_var(wanted);
        wanted &= 2 * HEADER - 1;
        const void *from = (const void *)buffer->at;
        if (!from || bpf_probe_read_user(thread->incoming + at, wanted, from)) {
            split_lost(SPLIT_LOST_UNREADABLE);
            thread->received = 0;
            return;
        }
    }
    if (split_received(thread, bpf_ktime_get_ns(), fd, bytes) & SPLIT_BEGUN)
        begun(thread, task);
}

// The header of a reply, which begins at `from`. Without it, the operation is forgotten.
static __always_inline bool reply_header(struct split_thread *thread, __u64 from,
                                         struct message_header *header) {
    if (from && !bpf_probe_read_user(header, sizeof(*header), (const void *)from))
        return 1;
    split_lost(SPLIT_LOST_UNREADABLE);
    split_forget(thread, bpf_ktime_get_ns());
    return 0;
}

// What sending a part of a reply has led to.
static __always_inline void reply_went_on(struct split_thread *thread, struct task_struct *task, __u64 now,
                                          __u32 led_to) {
    if (led_to & SPLIT_FOREIGN_REPLY)
        split_lost(SPLIT_LOST_FOREIGN_REPLY);
    if (!(led_to & SPLIT_ENDED))
        return;
    ended(thread, task);
    if (continues(thread)) {
        split_begin(thread, now, OPERATION_EXHAUST);
        begun(thread, task);
    }
}

static __always_inline void sent(struct split_thread *thread, struct task_struct *task, struct pt_regs *regs,
                                 long number, __s32 bytes) {
    if (thread->phase < PHASE_RUNNING || ARG1(regs) != (__u32)thread->fd)
        return;
    struct message_header header = {};
    if (thread->phase == PHASE_RUNNING && !reply_header(thread, buffer_of(regs, number).at, &header))
        return;
    __u64 now = bpf_ktime_get_ns();
    reply_went_on(thread, task, now, split_sent(thread, now, bytes, &header));
}

// ---- Encrypted connections ----

// Whether a socket is that of the session whose requests the thread serves.
static __always_inline bool is_encrypted(const struct split_thread *thread, __u32 fd) {
    return thread->session && fd == (__u32)thread->session_fd;
}

// The thread has received or sent on a socket.
static __always_inline void used_encrypted(struct split_thread *thread, struct task_struct *task, __u32 fd,
                                           bool is_receive, __s32 bytes) {
    if (thread->call.kind != TLS_NONE) {
        thread->nested = fd + 1;
    } else if (is_receive) {
        tls_search_received(&thread->search, fd + 1, bytes);
    } else if (is_encrypted(thread, fd)) {
        __u64 now = bpf_ktime_get_ns();
        reply_went_on(thread, task, now, split_records_sent(thread, now, bytes));
    }
}

// The library has handed over bytes that a session received.
static __always_inline void decrypted(struct split_thread *thread, struct task_struct *task, __u32 bytes) {
    __u64 session = thread->call.ssl, socket = tls_search_read(&thread->search, session, bytes);
    if (thread->nested)
        socket = thread->nested;
    if (!bytes || (in_operation(thread) && session != thread->session))
        return;
    if (in_operation(thread) && thread->phase == PHASE_RUNNING) {
        // The next request was there already: the thread did not need to receive it.
        receives_again(thread, task, bpf_ktime_get_ns());
    } else if (in_operation(thread)) {
        split_lost(SPLIT_LOST_FOREIGN_REPLY);
        split_forget(thread, bpf_ktime_get_ns());
    }
    if (socket && !is_chosen(task, socket - 1)) {
        skip_if_requested(thread, task, socket - 1, thread->call.buffer, bytes);
        return;
    }
    if (socket) {
        thread->session = session;
        thread->session_fd = socket - 1;
    } else if (session != thread->session)
        return;
    struct buffer buffer = {.at = thread->call.buffer, .length = thread->call.asked};
    received(thread, task, thread->session_fd, &buffer, bytes);
}

// The library has encrypted bytes of a session.
static __always_inline void encrypted(struct split_thread *thread, struct task_struct *task, __u32 bytes) {
    if (!bytes || !in_operation(thread) || thread->call.ssl != thread->session)
        return;
    struct message_header header = {};
    if (thread->phase == PHASE_RUNNING && !reply_header(thread, thread->call.buffer, &header))
        return;
    __u64 now = bpf_ktime_get_ns();
    bool is_sent = thread->nested;
    reply_went_on(thread, task, now, split_encrypted(thread, now, bytes, &header, is_sent));
}

static __always_inline int tls_called(struct pt_regs *regs, __u32 call) {
    struct split_thread *thread = thread_of(bpf_get_current_task_btf());
    if (!thread)
        return 0;
    tls_call_begins(&thread->call, regs, call);
    thread->nested = 0;
    return 0;
}

static __always_inline int tls_returned(struct pt_regs *regs, __u32 call) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct split_thread *thread = thread_of(task);
    if (!thread || thread->call.kind != call)
        return 0;
    __s64 bytes = tls_call_ends(&thread->call, regs);
    if (bytes < 0) {
        split_lost(SPLIT_LOST_UNREADABLE);
        return 0;
    }
    runs(thread, task);
    if (call == TLS_READ)
        decrypted(thread, task, bytes);
    else
        encrypted(thread, task, bytes);
    return 0;
}

SEC("uprobe")
int split_tls_read_called(struct pt_regs *regs) {
    return tls_called(regs, TLS_READ);
}

SEC("uprobe")
int split_tls_read_returned(struct pt_regs *regs) {
    return tls_returned(regs, TLS_READ);
}

SEC("uprobe")
int split_tls_write_called(struct pt_regs *regs) {
    return tls_called(regs, TLS_WRITE);
}

SEC("uprobe")
int split_tls_write_returned(struct pt_regs *regs) {
    return tls_returned(regs, TLS_WRITE);
}

SEC("uprobe")
int split_tls_begun(struct pt_regs *regs) {
    struct split_thread *thread = thread_of(bpf_get_current_task_btf());
    if (thread)
        tls_search_handshake(&thread->search, CALLED_ARG1(regs), !thread->search.wanting);
    return 0;
}

SEC("uprobe")
int split_tls_freed(struct pt_regs *regs) {
    __u64 ssl = CALLED_ARG1(regs);
    struct split_thread *thread = thread_of(bpf_get_current_task_btf());
    if (!thread)
        return 0;
    if (thread->search.wanting == ssl)
        thread->search.wanting = 0;
    if (thread->session == ssl)
        thread->session = 0;
    return 0;
}

// Where a read began; -1: where the one before had ended.
static __always_inline __u64 offset_of(struct pt_regs *regs, long number) {
    return number == CALL_READ || number == CALL_READV ? (__u64)-1 : ARG4(regs);
}

// The operation has read a file.
static __always_inline void read_file(struct split_thread *thread, struct task_struct *task,
                                      struct pt_regs *regs, __s64 bytes) {
    struct split_operation *operation = &thread->operation;
    struct split_read read = {.offset = offset_of(regs, CALL(regs)), .bytes = bytes, .fd = ARG1(regs)};
    operation->reads++;
    operation->read_bytes += bytes;
    bool is_in_order = split_is_in_order(thread, &read);
    struct file *file = thread->wait_ns ? file_of(task, read.fd) : 0;
    if (!file)
        return;
    struct inode *inode = FIELD(file, file, f_inode);
    struct super_block *super_block = FIELD(inode, inode, i_sb);
    read.inode = FIELD(inode, inode, i_ino);
    read.device = FIELD(super_block, super_block, s_dev);
    split_file(thread, &read, is_in_order);
}

// Whether fewer than `most` stacks were taken in this second.
static __always_inline bool may_take_stack(__u64 most) {
    __u32 zero = 0;
    struct stack_budget *budget = bpf_map_lookup_elem(&split_stack_budget, &zero);
    __u64 second = bpf_ktime_get_ns() >> 30;
    if (!budget)
        return 0;
    if (budget->second != second) {
        budget->second = second;
        budget->used = 0;
    }
    return budget->used < most && __sync_fetch_and_add(&budget->used, 1) < most;
}

// Reports the stack of an operation that spent `ns` in `part`. `regs` are the registers with which its thread entered
// the kernel. Returns whether there was room for it.
static __always_inline bool report_stack(struct split_thread *thread, struct task_struct *task,
                                         struct pt_regs *regs, __u32 part, __u64 ns) {
    // Nothing else copies as much of a process's memory.
    if (!followed_since(task->tgid))
        return 0;
    // Samples of many processors leave half of the room to waits.
    __u64 most = part == PART_CPU ? stacks_a_second / 2 : stacks_a_second;
    struct split_wait *wait = may_take_stack(most) ? bpf_ringbuf_reserve(&split_stacks, sizeof(*wait), 0) : 0;
    if (!wait)
        return 0;
    wait->start = thread->operation.start;
    wait->ns = ns;
    wait->ip = REGS_IP(regs);
    wait->sp = REGS_SP(regs);
    wait->fp = REGS_FP(regs);
    wait->lr = REGS_LR(regs);
    wait->call = (long)CALL(regs);
    wait->thread = task->pid;
    wait->process = task->tgid;
    wait->part = part;
    wait->length = copy_stack(wait->stack, wait->sp);
    bpf_ringbuf_submit(wait, BPF_RB_NO_WAKEUP);
    return 1;
}

// A call on a socket has ended.
static __always_inline void used_socket(struct split_thread *thread, struct task_struct *task,
                                        struct pt_regs *regs, bool is_receive, long result) {
    long number = CALL(regs);
    bool is_own = ARG1(regs) == (__u32)thread->fd;
    if (is_own && !is_peek(regs, number)) {
        if (is_receive && thread->phase == PHASE_RUNNING)
            receives_again(thread, task, bpf_ktime_get_ns());
        // A peek that finds the end is not handled here: the server will stop the operation, which still runs.
        if (is_end(result)) {
            split_forget(thread, bpf_ktime_get_ns());
            thread->session = 0;
        }
    }
    if (result <= 0 || is_peek(regs, number))
        return;
    used_encrypted(thread, task, ARG1(regs), is_receive, result);
    if (thread->call.kind != TLS_NONE || is_encrypted(thread, ARG1(regs)))
        return;
    if (!is_receive) {
        sent(thread, task, regs, number, result);
    } else if (!in_operation(thread)) {
        struct buffer buffer = buffer_of(regs, number);
        received(thread, task, ARG1(regs), &buffer, result);
    }
}

// A thread has received on a socket outside of the sample, which may be that of a TLS session. Returns whether it has no
// state any more.
static __always_inline bool received_elsewhere(struct split_thread *thread, struct task_struct *task,
                                               struct pt_regs *regs, __s32 bytes) {
    __u32 fd = ARG1(regs);
    used_encrypted(thread, task, fd, 1, bytes);
    return skip_if_requested(thread, task, fd, buffer_of(regs, CALL(regs)).at, bytes);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(split_exit, struct pt_regs *regs, long result) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    if (!maybe_split(task->tgid))
        return 0;
    struct skipped *skipped = skipped_of(task);
    if (skipped && stays_skipped(skipped, regs, result))
        return 0;
    struct split_thread *thread = followed_thread(task);
    if (!thread)
        return 0;
    runs(thread, task);
    if (stacks_a_second && in_operation(thread) && thread->wait_ns >= stack_after_ns &&
        !report_stack(thread, task, regs, split_blocked_part(thread), thread->wait_ns))
        split_lost(SPLIT_LOST_STACK);
    __u32 kind = kind_of_call(task, CALL(regs), ARG1(regs));
    if (kind == KIND_RECEIVE || kind == KIND_SEND) {
        if (is_chosen(task, ARG1(regs)))
            used_socket(thread, task, regs, kind == KIND_RECEIVE, result);
        else if (kind == KIND_RECEIVE && result > 0 && !is_peek(regs, CALL(regs)) &&
                 received_elsewhere(thread, task, regs, result))
            return 0;
    } else if (kind == KIND_READ && result > 0 && in_operation(thread)) {
        read_file(thread, task, regs, result);
    } else if (kind == KIND_WRITE && result > 0 && in_operation(thread)) {
        thread->operation.write_bytes += result;
    }
    if (thread->kind)
        split_call_ended(thread, result);
    return 0;
}

// Whether a thread that leaves its processor could go on.
static __always_inline bool is_runnable(struct task_struct *task) {
    if (bpf_core_field_exists(task->__state))
        return !task->__state;
    return !BPF_CORE_READ((struct task_struct___long *)task, state);
}

// The call that a thread is in, by the registers with which it entered the kernel. It is in none during a page fault or
// an interrupt, or after the call has ended, where a debugger may stop it.
static __always_inline __u32 kind_now(struct task_struct *task, struct pt_regs *regs) {
    return IN_CALL(regs) ? kind_of_call(task, CALL(regs), ARG1(regs)) : KIND_NONE;
}

// A thread leaves its processor; if it is `runnable`, it could have gone on.
static __always_inline void leaves(struct split_thread *thread, struct task_struct *task, bool runnable) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    __u64 now = bpf_ktime_get_ns();
    if (runnable) {
        if (IN_CALL(regs) && CALL(regs) == CALL_SCHED_YIELD)
            thread->kind = KIND_YIELD;
    } else {
        __u32 kind = kind_now(task, regs);
        thread->kind = kind;
        if (kind == KIND_RECEIVE || kind == KIND_SEND) {
            thread->own_socket = ARG1(regs) == (__u32)thread->fd;
            if (kind == KIND_RECEIVE && thread->own_socket && thread->phase == PHASE_RUNNING &&
                !is_peek(regs, CALL(regs)))
                receives_again(thread, task, now);
        }
    }
    split_switch_out(thread, now, runnable);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(split_switch, bool preempted, struct task_struct *from, struct task_struct *to) {
    // One thread after the other: the compiler would merge two checks into one that the verifier rejects.
    struct split_thread *thread = thread_of(from);
    if (thread) {
        runs(thread, from);
        split_leaves(thread, scheduled_of(from));
        leaves(thread, from, preempted || is_runnable(from));
    }
    thread = thread_of(to);
    if (thread && !split_switch_in(thread, bpf_ktime_get_ns()))
        split_lost(SPLIT_LOST_SWITCH);
    return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(split_wake, struct task_struct *task) {
    struct split_thread *thread = thread_of(task);
    if (!thread)
        return 0;
    // Interrupts wake threads, too, during whatever thread runs. A thread that wakes another on purpose is in a call.
    struct task_struct *current = (struct task_struct *)bpf_get_current_task_btf();
    __u32 waker = 0;
    struct split_thread *its_state = 0;
    if (current != task && maybe_split(current->tgid)) {
        __u32 kind = kind_now(current, (struct pt_regs *)bpf_task_pt_regs(current));
        bool on_purpose = kind == KIND_FUTEX || kind == KIND_OTHER || kind == KIND_SEND;
        bool is_skipped = skipped_of(current);
        if (on_purpose && !is_skipped)
            its_state = followed_thread(current);
        if (its_state || (on_purpose && is_skipped))
            waker = current->pid;
    }
    split_waking(thread, bpf_ktime_get_ns(), waker, its_state);
    return 0;
}

// Runs at each tick of a processor's timer.
SEC("perf_event")
int split_on_processor(void *ctx) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct split_thread *thread = thread_of(task);
    if (thread && in_operation(thread) && thread->state == ON_PROCESSOR)
        report_stack(thread, task, (struct pt_regs *)bpf_task_pt_regs(task), PART_CPU, sample_period_ns);
    return 0;
}

static __always_inline void forget_thread(__u32 id) {
    struct skipped *skipped = skip_entry(id);
    if (skipped && skipped->thread == id)
        skipped->thread = 0;
    struct split_thread *thread = slot_of(id);
    if (thread)
        thread->owner = 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(split_thread_exit, struct task_struct *task) {
    __u32 process = task->tgid;
    if (!maybe_split(process))
        return 0;
    forget_thread(task->pid);
    // Its last thread: another process may soon have its id.
    if (!task->signal->live.counter)
        bpf_map_delete_elem(&split_processes, &process);
    return 0;
}

// Who has become another program is another process to whoever chose it. Its other threads have exited.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(split_exec, struct task_struct *task, int old_id) {
    __u32 process = task->tgid;
    if (!maybe_split(process))
        return 0;
    bpf_map_delete_elem(&split_processes, &process);
    // The thread has the id of its process now.
    forget_thread(old_id);
    forget_thread(task->pid);
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
