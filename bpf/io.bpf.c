// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses to files of chosen processes.
//
// There are two ways to see an access, and user space loads the programs of one of them:
// - at the functions of the VFS (fentry and fexit), where the kernel lets them be attached: nothing that
//   is no access costs anything, and page faults have a latency;
// - at the raw tracepoints of all system calls, not one for each: they want neither tracefs nor kprobes,
//   and a call that is of no interest costs a comparison.
// io_uring has tracepoints of its own, for both ways.
//
// Between two reads a server runs through more memory than the nearest caches hold, so that what a program
// costs is the lines of memory that it touches. What begins an access therefore notes the time and no more;
// what it is about is found out at its end, when the kernel has just used the same structures. What a thread
// needs for the files that it reads lies in a slot of its own, and no table is searched for them again.
//
// An access is either handed on (`io record`) or added to the figures of its file (`io live`). Which files
// are of interest is decided here too, by a map that user space fills as files appear.
//
// Processes that start under the name that user space gave are followed from their first access on, and
// forgotten when they exit; user space learns of both by a record.
//
// Structures of the kernel are declared with the fields that are used; CO-RE finds where they are on the
// running kernel.

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#define CORE __attribute__((preserve_access_index))

// Numbers of system calls, as the architecture has them.
#if defined(__TARGET_ARCH_x86)
enum {
    CALL_READ = 0,
    CALL_WRITE = 1,
    CALL_PREAD = 17,
    CALL_PWRITE = 18,
    CALL_READV = 19,
    CALL_WRITEV = 20,
    CALL_MSYNC = 26,
    CALL_FSYNC = 74,
    CALL_FDATASYNC = 75,
    CALL_PREADV = 295,
    CALL_PWRITEV = 296,
    CALL_PREADV2 = 327,
    CALL_PWRITEV2 = 328,
};
struct pt_regs {
    unsigned long di, si, dx, r10, orig_ax;
} CORE;
#define CALL(r) ((r)->orig_ax)
#define ARG1(r) ((r)->di)
#define ARG1_OF(r) BPF_CORE_READ(r, di)
#define CALL_OF(r) BPF_CORE_READ(r, orig_ax)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->r10)
#elif defined(__TARGET_ARCH_arm64)
enum {
    CALL_READ = 63,
    CALL_WRITE = 64,
    CALL_READV = 65,
    CALL_WRITEV = 66,
    CALL_PREAD = 67,
    CALL_PWRITE = 68,
    CALL_PREADV = 69,
    CALL_PWRITEV = 70,
    CALL_FSYNC = 82,
    CALL_FDATASYNC = 83,
    CALL_MSYNC = 227,
    CALL_PREADV2 = 286,
    CALL_PWRITEV2 = 287,
};
// The first argument is overwritten by the result, so it is kept apart.
struct pt_regs {
    unsigned long regs[31];
    unsigned long orig_x0;
    int syscallno;
} CORE;
#define CALL(r) ((r)->syscallno)
#define ARG1(r) ((r)->orig_x0)
#define ARG1_OF(r) BPF_CORE_READ(r, orig_x0)
#define CALL_OF(r) BPF_CORE_READ(r, syscallno)
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#define ARG4(r) ((r)->regs[3])
#else
#error "this architecture is not supported"
#endif
enum { CALL_IO_URING_ENTER = 426 };

struct super_block {
    __u32 s_dev;
    unsigned long s_magic;
} CORE;
struct inode {
    __u16 i_mode;
    unsigned long i_ino;
    struct super_block *i_sb;
    __u32 i_generation;
} CORE;
struct address_space {
    struct inode *host;
} CORE;
struct qstr {
    const unsigned char *name;
} CORE;
struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
} CORE;
struct path {
    struct dentry *dentry;
} CORE;
struct file {
    struct inode *f_inode;
    long long f_pos;
    struct path f_path;
} CORE;
// Stands for whatever begins with an address.
struct list_head {
    struct list_head *next;
} CORE;
struct fdtable {
    unsigned int max_fds;
    struct file **fd;
} CORE;
struct files_struct {
    struct fdtable *fdt;
} CORE;
struct task_io_accounting {
    __u64 read_bytes;
} CORE;
typedef struct {
    int counter;
} atomic_t;
struct signal_struct {
    atomic_t live;
} CORE;
struct task_struct {
    int pid;
    int tgid;
    char comm[16];
    struct files_struct *files;
    struct signal_struct *signal;
    struct task_io_accounting ioac;
} CORE;
struct linux_binprm {
    struct file *file;
} CORE;
struct folio {
    struct address_space *mapping;
    unsigned long index;
    unsigned int _nr_pages;       // since 6.14
    unsigned int _folio_nr_pages; // 6.1 to 6.13
} CORE;
enum pageflags { PG_head };
struct vm_area_struct {
    struct file *vm_file;
} CORE;
enum fault_flag { FAULT_FLAG_USER = 0x40 };
struct vm_fault {
    struct vm_area_struct *vma;
    unsigned long pgoff;
    enum fault_flag flags; // for CO-RE an enum is no number
} CORE;
// On older kernels.
struct vm_fault___number {
    unsigned int flags;
} CORE;
struct kiocb {
    long long ki_pos;
} CORE;
struct io_rw {
    struct kiocb kiocb;
    __u64 addr;
    __u32 len;
} CORE;
struct io_sync {
    int flags;
} CORE;
struct io_cqe {
    __s32 res;
    __s32 fd;
} CORE;
struct io_kiocb {
    struct file *file;
    __u8 opcode;
    struct io_cqe cqe;
} CORE;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

// Helpers that this kernel has (bpf_task_pt_regs since 5.15).
enum bpf_func_id { BPF_FUNC_task_pt_regs = 175 };

// Since 6.2: fields of what was found by its address are read without a helper.
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// A field of a structure that was found by its address; the verifier of older kernels takes only a copy.
#define FIELD(object, type, field)                                                                           \
    (bpf_ksym_exists(bpf_rdonly_cast)                                                                        \
         ? ((struct type *)bpf_rdonly_cast((object), bpf_core_type_id_kernel(struct type)))->field           \
         : BPF_CORE_READ((struct type *)(object), field))

#define S_IFMT 0170000
#define S_IFREG 0100000
#define MAX_SEGMENTS 64
#define RING_BYTES (16 << 20)
#define NEAR (1ULL << 20)
#define UNKNOWN (~0ULL)
#define GOLDEN 0x9e3779b97f4a7c15ULL

enum { READ, WRITE, SYNC, DATASYNC, FAULT, PAGE_IN };
enum { RING_FULL, STARTS_FULL, FILES_FULL, UNREADABLE, NOT_FOLLOWED, ENDS_UNSEEN, LOSSES };
enum { RECORD_ACCESS, RECORD_FILE, RECORD_THREAD, RECORD_PROCESS };
enum { PROCESS_STARTED, PROCESS_ENDED, PROCESS_REFUSED };
// How a call gives its place and length; bits over the kind.
enum { KIND = 3, AT_OFFSET = 4, VECTOR = 8, URING = 16, NO_CALL = 32 };
enum { BUCKETS = 256, PLACES = 256, STREAMS = 16, MAX_FILES = 65536, MAX_USAGES = 16384, SLOTS = 4096 };
enum { NAME = 96, PARENTS = 6, PARENT_NAME = 32, PROGRAM_NAME = 16 };
// Numbers of a file that is left out: at the request of user space, or because there is no room to report it.
#define IGNORED (~0U)
#define UNREPORTED (~1U)

// Set by user space before loading.
const volatile bool live = 0;        // add up instead of handing on
const volatile bool uring_seen = 0;  // io_uring is followed by its own tracepoints
const volatile bool pseudo_seen = 0; // files of /proc, /sys and their like are of interest too
const volatile __u32 page_shift = 12;
// Processes of this name, or whose program has it, are followed as soon as they start; empty where only those
// are that user space names.
const volatile char program_name[PROGRAM_NAME] = {};

// Written by user space at any time. What a thread remembers of a process or a file holds as long as the
// generation is the same. Of the processes that are followed there is a bit each, by the last digits of their
// ids, so that others cost one look.
struct control {
    __u64 some[4];
    __u32 generation;
    __u32 unused;
};
volatile struct control control SEC(".data.control") = {};
// The same bits of processes that were followed here, which user space never writes.
__u64 started[4] SEC(".data.started") = {};

// The number that the next new file gets where none was given back.
__u32 next_file = 0;

// An inode's number is given again soon after the file is deleted; its generation is another one then.
struct file_key {
    __u64 inode;
    __u64 device;
    __u32 generation;
    __u32 unused;
};

// What a thread remembers of a file: where it lies in the kernel, its number, and where the thread's last read
// of it ended.
struct stream {
    __u64 at;
    __u64 super_block;
    __u64 inode;
    __u64 end;
    __u32 inode_generation;
    __u32 generation;
    __u32 file;
    __u32 unused[5]; // a line of memory each
};

// What is kept of a thread. Files share the places of `streams` by their inode: a thread reads few at a
// time, and where two meet, a distance is not known.
struct thread {
    // The access under way.
    __u64 ns;
    __u64 device_bytes;
    __u64 file;   // at the VFS: which
    __u64 frame;  // at the VFS: where on the thread's stack; what is called from within lies below
    __u64 offset; // of a page fault: where
    __u32 stream; // of a page fault: which
    __u32 owner;  // the thread whose slot this is
    __u8 pending;
    __u8 kind;
    __u8 followed;
    __u8 reported; // user space knows its name
    __u32 generation;
    __u32 count;
    __u32 unused;
    struct stream streams[STREAMS];
};

// Read by user space; see sonar-sys/src/ebpf.rs.
struct access_record {
    __u32 record;
    __u32 kind;
    __u32 file;
    __u32 thread;
    __u64 ns;
    __u64 latency_ns;
    __u64 offset;
    __u64 asked;
    __s64 result;
    __u64 device_bytes;
};

struct file_record {
    __u32 record;
    __s32 fd;
    struct file_key key;
    __u32 file;
    __u32 process;
    char name[NAME];
    // Of a pseudo file system, whose files are often closed before their path can be looked up: the magic
    // number of the file system, and the folders above, the nearest first, up to an empty name.
    __u64 magic;
    char parents[PARENTS][PARENT_NAME];
};

struct process_record {
    __u32 record;
    __u32 process;
    __u32 what;
    __u32 unused;
};

struct thread_record {
    __u32 record;
    __u32 thread;
    __u32 process;
    __u32 unused;
    char name[16];
};

// The figures of a file; see sonar-sys/src/ebpf.rs. What a read from the page cache adds to comes first.
struct usage {
    __u64 reads, read_bytes, read_ns;
    __u64 contiguous, near, ahead, back;
    // Reads that fetched from the device, and what.
    __u64 fetches, device_bytes;
    // Reads of which it is not known what came from the device, and their bytes.
    __u64 unknown, unknown_bytes;
    __u64 faults, errors;
    __u64 writes, write_bytes, write_ns;
    __u64 syncs, sync_ns;
    // Latencies of reads: eight buckets for each power of two.
    __u32 latency[BUCKETS];
    // A sketch of how many different 4 KiB blocks reads began at (HyperLogLog).
    __u8 places[PLACES];
};

_Static_assert(sizeof(struct access_record) == 64 && sizeof(struct file_record) == 336, "read by user space");
_Static_assert(sizeof(struct process_record) == 16 && sizeof(struct file_key) == 24, "read by user space");
_Static_assert(sizeof(struct stream) == 64 && sizeof(struct thread) == 64 * 17, "whole lines of memory");
_Static_assert(sizeof(struct thread_record) == 32 && sizeof(struct usage) == 1424, "read by user space");
_Static_assert(sizeof(struct control) == 40, "written by user space");

struct uring_start {
    __u64 ns;
    __u64 offset;
    __u64 asked;
    __s32 fd;
    __u32 kind;
    __u32 thread;
    __u32 unused;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

// Files that were seen, to their number.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MAX_FILES);
    __type(key, struct file_key);
    __type(value, __u32);
} files SEC(".maps");

// Numbers of files that user space gave back.
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, MAX_FILES);
    __type(value, __u32);
} free_numbers SEC(".maps");

// By the number of the file; user space makes it small where nothing is added up.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MAX_USAGES);
    __type(key, __u32);
    __type(value, struct usage);
} usages SEC(".maps");

// What is kept of threads, by the last digits of their ids: finding a thread's own storage costs more than all
// the rest of what begins an access.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SLOTS);
    __type(key, __u32);
    __type(value, struct thread);
} slots SEC(".maps");

// Of threads whose slot is another's.
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

// Requests of io_uring under way, by their address.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, __u64);
    __type(value, struct uring_start);
} uring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, LOSSES);
    __type(key, __u32);
    __type(value, __u64);
} losses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, RING_BYTES);
} ring SEC(".maps");

#define add(counter, much) __sync_fetch_and_add(&(counter), much)

static __always_inline void lost(__u32 reason) {
    __u64 *count = bpf_map_lookup_elem(&losses, &reason);
    if (count)
        add(*count, 1);
}

static __always_inline bool maybe_followed(__u32 process) {
    __u32 word = process >> 6 & 3;
    return (control.some[word] | started[word]) >> (process & 63) & 1;
}

// What is kept of a thread that has not the slot of its number so far; 0 where nothing is.
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

// What is kept of a thread; `create` where nothing is yet.
static __always_inline struct thread *state_of(struct task_struct *task, bool create) {
    __u32 id = task->pid, number = id & (SLOTS - 1);
    struct thread *slot = bpf_map_lookup_elem(&slots, &number);
    return likely(slot && slot->owner == id) ? slot : without_slot(task, slot, create);
}

// What is kept of the current thread, where its process is followed.
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

// The same, where an access of it is under way.
static __always_inline struct thread *under_way(struct task_struct *task) {
    if (!maybe_followed(task->tgid))
        return 0;
    struct thread *thread = state_of(task, 0);
    return thread && thread->pending ? thread : 0;
}

static __always_inline __u64 device_bytes(struct task_struct *task) {
    // Not known where the kernel does not account (no CONFIG_TASK_IO_ACCOUNTING).
    if (!bpf_core_field_exists(task->ioac.read_bytes))
        return UNKNOWN;
    return task->ioac.read_bytes;
}

// Whether a file system holds what the kernel makes up as it is read: no device is behind its files.
static __always_inline bool is_pseudo(__u64 magic) {
    switch (magic) {
    case 0x9fa0:     // proc
    case 0x62656572: // sysfs
    case 0x27e0eb:   // cgroup
    case 0x63677270: // cgroup2
    case 0x64626720: // debugfs
    case 0x74726163: // tracefs
    case 0x73636673: // securityfs
    case 0xf97cff8c: // selinuxfs
    case 0x62656570: // configfs
    case 0x6165676c: // pstore
    case 0xde5e81e4: // efivarfs
    case 0xcafe4a11: // bpf
    case 0x7655821:  // resctrl
        return 1;
    }
    return 0;
}

static __always_inline void name_of(struct dentry *dentry, char *name, __u32 size) {
    const unsigned char *from = BPF_CORE_READ(dentry, d_name.name);
    if (bpf_probe_read_kernel_str(name, size, from) < 0)
        name[0] = 0;
}

// Gives a number back.
static __always_inline void unused_number(__u32 number) {
    bpf_map_push_elem(&free_numbers, &number, 0);
}

// Reports a file that was not seen before to user space, which decides whether it is of interest; gives its
// number, or UNREPORTED.
static __always_inline __u32 new_file(const struct file_key *key, struct file *file, __s32 fd, __u64 magic) {
    struct file_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record) {
        lost(RING_FULL);
        return UNREPORTED;
    }
    __u32 number = 0;
    if (bpf_map_pop_elem(&free_numbers, &number))
        number = __sync_fetch_and_add(&next_file, 1);
    long error = bpf_map_update_elem(&files, key, &number, BPF_NOEXIST);
    if (error) {
        bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
        unused_number(number);
        __u32 *first = bpf_map_lookup_elem(&files, key); // another thread was first
        if (first)
            return *first;
        lost(FILES_FULL);
        return UNREPORTED;
    }
    record->record = RECORD_FILE;
    record->fd = fd;
    record->key = *key;
    record->file = number;
    record->process = bpf_get_current_pid_tgid() >> 32;
    record->name[0] = 0;
    record->magic = magic;
    for (int i = 0; i < PARENTS; i++)
        record->parents[i][0] = 0;
    if (file) {
        struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
        name_of(dentry, record->name, NAME);
        for (int i = 0; magic && i < PARENTS; i++) {
            struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
            // The root of a file system is its own parent.
            if (!parent || parent == dentry || BPF_CORE_READ(parent, d_parent) == parent)
                break;
            dentry = parent;
            name_of(dentry, record->parents[i], PARENT_NAME);
        }
    }
    // While it is open its path can be found out.
    bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
    return number;
}

// The number of a file; IGNORED; or UNREPORTED: then it is reported with its next access.
static __always_inline __u32 number_of(struct inode *inode, struct file *file, __s32 fd) {
    struct super_block *super_block = FIELD(inode, inode, i_sb);
    __u64 magic = FIELD(super_block, super_block, s_magic);
    bool pseudo = is_pseudo(magic);
    if (pseudo && !pseudo_seen)
        return IGNORED;
    struct file_key key = {
        .inode = FIELD(inode, inode, i_ino),
        .device = FIELD(super_block, super_block, s_dev),
        .generation = FIELD(inode, inode, i_generation),
    };
    __u32 *known = bpf_map_lookup_elem(&files, &key);
    return known ? *known : new_file(&key, file, fd, pseudo ? magic : 0);
}

static __always_inline bool is_regular(struct inode *inode) {
    return (FIELD(inode, inode, i_mode) & S_IFMT) == S_IFREG;
}

static __always_inline __u32 stream_at(__u64 inode_number) {
    return inode_number * GOLDEN >> 60;
}

// What the thread remembers of a file, where accesses to it are of interest.
static __always_inline struct stream *stream_of(struct thread *thread, struct inode *inode, struct file *file,
                                                __s32 fd) {
    if (!is_regular(inode))
        return 0;
    __u64 super_block = (__u64)FIELD(inode, inode, i_sb), number = FIELD(inode, inode, i_ino);
    struct stream *stream = &thread->streams[stream_at(number)];
    __u32 generation = control.generation, inode_generation = FIELD(inode, inode, i_generation);
    bool same = stream->at == (__u64)inode && stream->super_block == super_block && stream->inode == number &&
                stream->inode_generation == inode_generation;
    if (unlikely(!same || stream->generation != generation)) {
        stream->file = number_of(inode, file, fd);
        stream->generation = stream->file == UNREPORTED ? 0 : generation;
        if (!same) {
            stream->at = (__u64)inode;
            stream->super_block = super_block;
            stream->inode = number;
            stream->inode_generation = inode_generation;
            stream->end = UNKNOWN;
        }
    }
    return stream->file < UNREPORTED ? stream : 0;
}

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

struct access {
    __u64 ns, latency_ns, offset, asked, device_bytes;
    __s64 result;
    __u32 file, kind, thread;
};

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
    // The zeros above the highest bit of what the place leaves, and one.
    __u8 rank = 56 - log2_of((hash & ((1ULL << 56) - 1)) | 1);
    __u8 *place = &usage->places[hash >> 56];
    if (*place < rank)
        *place = rank;
    if (stream)
        distance(usage, stream, access);
}

// An access has ended; `look` whether user space has to come for it.
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
    // Waking costs more than all the rest: user space comes by itself ten times a second, and is woken where
    // the ring fills quicker than that.
    bool wake = look && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > RING_BYTES / 4;
    bpf_ringbuf_submit(record, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

// Reports the name of the current thread to user space, where accesses are handed on.
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
    // Threads are given other names as they are given other work.
    __u32 count = thread->count++;
    if (unlikely(count % 1024 == 0))
        thread->reported = 0;
    report_thread(thread);
    ended(stream, &access, count % 64 == 0);
}

// Bytes that the segments of a vectored call come to.
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

// ---- at the system calls

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
        // Never open, or closed by another thread within the call.
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
        // preadv2 with -1, and all that give no place: it is where the file is now, less what has come of it.
        if (offset == UNKNOWN)
            offset = FIELD(file, file, f_pos) - (result > 0 ? result : 0);
    }
    finish(thread, task, stream, kind, now, offset, asked, result);
    return 0;
}

// A fault that the page cache did not answer at once. Its end cannot be seen here, so its latency is 0:
// not known.
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

// ---- on request: pages that are brought into the page cache

static __always_inline __u64 pages_of(struct folio *folio) {
    // The flags come first, whatever their type is called.
    unsigned long flags = 0;
    bpf_probe_read_kernel(&flags, sizeof(flags), folio);
    if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
        return 1;
    if (bpf_core_field_exists(folio->_nr_pages))
        return folio->_nr_pages;
    if (bpf_core_field_exists(folio->_folio_nr_pages))
        return folio->_folio_nr_pages;
    lost(UNREADABLE); // how many it has is known from its first page on
    return 1;
}

// The file with this inode that the access under way is about, and its number, so that one that is seen for the first
// time here is reported with its name too; 0 and -1 where it is another, or none is known.
static __always_inline struct file *file_under_way(struct thread *thread, struct task_struct *task,
                                                   struct inode *inode, __s32 *fd) {
    if (!thread->pending)
        return 0;
    struct file *file = (struct file *)thread->file;
    if (!file) {
        struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
        __u32 number = ARG1_OF(regs);
        struct fdtable *table = task->files->fdt;
        if (number >= table->max_fds || bpf_probe_read_kernel(&file, sizeof(file), table->fd + number) ||
            !file)
            return 0;
        *fd = number;
    }
    if (FIELD(file, file, f_inode) == inode)
        return file;
    *fd = -1;
    return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_in, struct folio *folio) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = followed(task);
    // What is written comes into the page cache too, and from no device.
    if (!thread || (thread->pending && (thread->kind & KIND) == WRITE))
        return 0;
    struct inode *host = folio->mapping->host;
    if (!host)
        return 0;
    __s32 fd = -1;
    struct file *file = file_under_way(thread, task, host, &fd);
    struct stream *stream = stream_of(thread, host, file, fd);
    if (!stream)
        return 0;
    __u64 bytes = pages_of(folio) << page_shift;
    struct access access = {
        .file = stream->file,
        .ns = bpf_ktime_get_ns(),
        .offset = (__u64)folio->index << page_shift,
        .asked = bytes,
        .result = bytes,
        .device_bytes = UNKNOWN,
        .thread = task->pid,
        .kind = PAGE_IN,
    };
    report_thread(thread);
    ended(stream, &access, thread->count++ % 64 == 0);
    return 0;
}

// ---- at the functions of the VFS

// Whether the current thread is in a system call that flushes.
static __always_inline bool is_flushing(struct task_struct *task) {
    if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
        return 0;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    __u64 number = CALL_OF(regs);
    return number == CALL_FSYNC || number == CALL_FDATASYNC || number == CALL_MSYNC;
}

// Whether what begins now belongs to the access under way: a write that is flushed at once, a flush of what lies
// below an overlay, a fault of the buffer. If not, the end of that one was missed.
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

// Whether an access that begins counts. One whose end was never seen gives way.
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

// Ends what `enter` began; where it is one that counts, gives its place in `stream`.
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

// Where an access began that has left the file at `pos`.
static __always_inline __u64 place(struct file *file, long long *pos, long result) {
    // By the helper both times: the verifier lets no instruction read now the stack and now the file.
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
    // A fault of user space is in no system call, so that what is under way has ended unseen.
    if (unlikely(thread->pending && is_of_user_space(fault))) {
        lost(ENDS_UNSEEN);
        thread->pending = 0;
    }
    if (!counts(thread, task, FAULT, (__u64)ctx))
        return 0;
    thread->pending = 0;
    // Found out now: when the fault has ended, the mapping may have gone.
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
    // A fault that has to be tried again comes again, and the page is there then.
    __u64 page = 1ULL << page_shift;
    __s64 given = result & FAILED ? -5 : result & RETRY ? 0 : page;
    struct stream *stream = &thread->streams[thread->stream & (STREAMS - 1)];
    finish(thread, task, stream, FAULT, bpf_ktime_get_ns(), thread->offset, page, given);
    return 0;
}

// ---- io_uring

// What an opcode of io_uring does, as `calls` says it; -1 where it is of no interest.
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
    // What a request is about lies in its first bytes, laid out by its kind.
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
            // It was to go on where the file was, which has moved on by what it gave.
            struct io_rw *rw = (void *)request;
            access.offset = BPF_CORE_READ(rw, kiocb.ki_pos) - (access.result > 0 ? access.result : 0);
        }
        ended(0, &access, 1);
    }
    bpf_map_delete_elem(&uring, &key);
    return 0;
}

// ---- processes that start and end

// Whether user space asked for processes of this name; `name` has PROGRAM_NAME bytes.
static __always_inline bool is_asked_for(const char *name) {
    for (int i = 0; i < PROGRAM_NAME; i++) {
        if (name[i] != program_name[i])
            return 0;
        if (!name[i])
            return i > 0;
    }
    return 1;
}

// Whether a name in the kernel's memory is the one that was asked for.
static __always_inline bool is_named(const void *from) {
    char name[PROGRAM_NAME] = {};
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
    // While it runs, more can be found out about it.
    bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

// Follows a process from now on; `task` is a thread of it. `again` reports one that is followed already.
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
    // It may be remembered as one that is not followed.
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
        // It got its name within exec, when it had no command line yet.
        start(task, 1);
    } else {
        end(task->tgid);
        struct thread *thread = state_of(task, 0);
        if (thread)
            thread->generation = 0;
    }
    return 0;
}

// A child has its parent's name.
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
