// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses to files of chosen processes.
//
// There are two ways to see an access, and user space loads the programs of one of them:
// - at the functions of the VFS (fentry and fexit), where the kernel lets them be attached: nothing that
//   is no access costs anything, and page faults have a latency;
// - at the raw tracepoints of all system calls, not one for each: they want neither tracefs nor kprobes,
//   and a call that is of no interest costs a comparison and one look-up.
// io_uring has tracepoints of its own, for both ways.
//
// An access is either handed on (`io record`) or added to the figures of its file (`io live`). Which files
// are of interest is decided here too, by a map that user space fills as files appear.
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
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#define CORE __attribute__((preserve_access_index))

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long di, si, dx, r10;
} CORE;
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->r10)
#elif defined(__TARGET_ARCH_arm64)
// The first argument is overwritten by the result, so it is kept apart.
struct pt_regs {
    unsigned long regs[31];
    unsigned long orig_x0;
} CORE;
#define ARG1(r) ((r)->orig_x0)
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#define ARG4(r) ((r)->regs[3])
#else
#error "this architecture is not supported"
#endif

struct super_block {
    __u32 s_dev;
} CORE;
struct inode {
    __u16 i_mode;
    unsigned long i_ino;
    struct super_block *i_sb;
} CORE;
struct address_space {
    struct inode *host;
} CORE;
struct qstr {
    const unsigned char *name;
} CORE;
struct dentry {
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
struct task_struct {
    struct files_struct *files;
    struct task_io_accounting ioac;
    char comm[16];
} CORE;
struct vm_area_struct {
    struct file *vm_file;
} CORE;
struct vm_fault {
    struct vm_area_struct *vma;
    unsigned long pgoff;
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

// Since 6.2: fields of what was found by its address are read without a helper.
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define S_IFMT 0170000
#define S_IFREG 0100000
#define MAX_SEGMENTS 64
#define RING_BYTES (16 << 20)
#define NEAR (1ULL << 20)
#define UNKNOWN (~0ULL)

enum { READ, WRITE, SYNC, DATASYNC, FAULT };
enum { RING_FULL, STARTS_FULL, FILES_FULL, UNREADABLE, NOT_FOLLOWED, LOSSES };
enum { RECORD_ACCESS, RECORD_FILE };
enum { FILE_WANTED = 1, FILE_IGNORED = 2 };
// How a call gives its place and length; bits over the kind.
enum { KIND = 3, AT_OFFSET = 4, VECTOR = 8, URING = 16 };
enum { BUCKETS = 256, PLACES = 256, STREAMS = 16 };

// Set by user space before loading.
const volatile bool live = 0;       // add up instead of handing on
const volatile bool uring_seen = 0; // io_uring is followed by its own tracepoints
const volatile __u32 page_shift = 12;

struct file_key {
    __u64 inode;
    __u64 device;
};

// An access under way.
struct start {
    struct file_key file;
    __u64 ns;
    __u64 offset;
    __u64 asked;
    __u64 device_bytes;
    __u32 kind;
    __u32 pending;
};

// Where a thread's last read of a file ended.
struct stream {
    struct file_key file;
    __u64 end;
};

// What is kept of a thread. Files share the places of `streams` by their inode: a thread reads few at a
// time, and where two meet, a distance is not known.
struct thread {
    struct start start;
    struct stream streams[STREAMS];
};

// Read by user space; see sonar-sys/src/io.rs.
struct access_record {
    __u32 record;
    __u32 kind;
    struct file_key file;
    __u64 ns;
    __u64 latency_ns;
    __u64 offset;
    __u64 asked;
    __s64 result;
    __u64 device_bytes;
    __u32 thread;
    __u32 process;
    char name[16];
};

struct file_record {
    __u32 record;
    __s32 fd;
    struct file_key file;
    __u32 process;
    __u32 thread;
    char name[96];
};

// The figures of a file; see sonar-sys/src/io.rs.
struct usage {
    __u64 reads, read_bytes, read_ns;
    // Reads of which it is known what came from the device; of them from the page cache; bytes.
    __u64 known, cached, known_bytes, device_bytes;
    __u64 contiguous, near, jumps, back;
    __u64 faults, errors;
    __u64 writes, write_bytes, write_ns;
    __u64 syncs, sync_ns;
    // Latencies of reads: eight buckets for each power of two.
    __u32 latency[BUCKETS];
    // A sketch of how many different 4 KiB blocks reads began at (HyperLogLog).
    __u8 places[PLACES];
};

struct uring_start {
    __u64 ns;
    __u64 offset;
    __u64 asked;
    __s32 fd;
    __u32 kind;
    __u64 id;
    char name[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

// Number of a system call to what it does.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 512);
    __type(key, __u32);
    __type(value, __u32);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, struct file_key);
    __type(value, __u32);
} files SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct file_key);
    __type(value, struct usage);
} usages SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct usage);
} nothing SEC(".maps");

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

static __always_inline void lost(__u32 reason)
{
    __u64 *count = bpf_map_lookup_elem(&losses, &reason);
    if (count)
        add(*count, 1);
}

static __always_inline bool followed(__u64 id)
{
    __u32 process = id >> 32;
    return bpf_map_lookup_elem(&processes, &process) != 0;
}

static __always_inline __u64 device_bytes(struct task_struct *task)
{
    // Not known where the kernel does not account (no CONFIG_TASK_IO_ACCOUNTING).
    if (!bpf_core_field_exists(task->ioac.read_bytes))
        return UNKNOWN;
    return task->ioac.read_bytes;
}

// Tells user space of a file that was not seen before; it decides whether the file is of interest.
static __always_inline void new_file(const struct file_key *key, struct file *file, __s32 fd, __u64 id)
{
    __u32 wanted = FILE_WANTED;
    long error = bpf_map_update_elem(&files, key, &wanted, BPF_NOEXIST);
    if (error == -17) // another thread was first
        return;
    if (error) {
        lost(FILES_FULL);
        return;
    }
    struct file_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record) {
        // Told of again with its next access.
        bpf_map_delete_elem(&files, key);
        lost(RING_FULL);
        return;
    }
    record->record = RECORD_FILE;
    record->fd = fd;
    record->file = *key;
    record->process = id >> 32;
    record->thread = (__u32)id;
    record->name[0] = 0;
    if (file) {
        const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
        if (bpf_probe_read_kernel_str(record->name, sizeof(record->name), name) < 0)
            record->name[0] = 0;
    }
    // While it is open its path can be found out.
    bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

// Whether accesses to this file are of interest; fills in the key.
static __always_inline bool wanted(struct inode *inode, struct file *file, __s32 fd, __u64 id,
                                   struct file_key *key)
{
    if (bpf_ksym_exists(bpf_rdonly_cast)) {
        struct inode *typed = bpf_rdonly_cast(inode, bpf_core_type_id_kernel(struct inode));
        if ((typed->i_mode & S_IFMT) != S_IFREG)
            return 0;
        key->inode = typed->i_ino;
        key->device = typed->i_sb->s_dev;
    } else {
        if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
            return 0;
        key->inode = BPF_CORE_READ(inode, i_ino);
        key->device = BPF_CORE_READ(inode, i_sb, s_dev);
    }
    __u32 *known = bpf_map_lookup_elem(&files, key);
    if (known)
        return *known == FILE_WANTED;
    new_file(key, file, fd, id);
    return 1;
}

static __always_inline __u32 log2_of(__u64 value)
{
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

static __always_inline __u32 bucket(__u64 ns)
{
    if (ns < 8)
        return ns;
    __u32 log = log2_of(ns);
    if (log > 33)
        return BUCKETS - 1;
    return (log - 2) * 8 + ((ns >> (log - 3)) & 7);
}

struct access {
    struct file_key file;
    __u64 ns, latency_ns, offset, asked, device_bytes, id;
    __s64 result;
    __u32 kind;
};

static __always_inline void distance(struct usage *usage, struct stream *stream, const struct access *access)
{
    if (access->result < 0)
        return;
    __u64 end = stream->end;
    if (stream->file.inode == access->file.inode && stream->file.device == access->file.device) {
        if (access->offset == end) {
            add(usage->contiguous, 1);
        } else if (access->offset < end) {
            add(usage->back, 1);
            add(usage->jumps, 1);
        } else if (access->offset - end > NEAR) {
            add(usage->jumps, 1);
        } else {
            add(usage->near, 1);
        }
    }
    stream->file = access->file;
    stream->end = access->offset + access->result;
}

// Adds an access to the figures of its file.
static __always_inline void add_up(struct thread *thread, const struct access *access)
{
    struct usage *usage = bpf_map_lookup_elem(&usages, &access->file);
    if (!usage) {
        __u32 zero = 0;
        struct usage *none = bpf_map_lookup_elem(&nothing, &zero);
        if (!none)
            return;
        bpf_map_update_elem(&usages, &access->file, none, BPF_NOEXIST);
        usage = bpf_map_lookup_elem(&usages, &access->file);
        if (!usage) {
            lost(FILES_FULL);
            return;
        }
    }
    __u64 given = access->result > 0 ? access->result : 0;
    if (access->result < 0)
        add(usage->errors, 1);
    if (access->kind == WRITE) {
        add(usage->writes, 1);
        add(usage->write_bytes, given);
        add(usage->write_ns, access->latency_ns);
        return;
    }
    if (access->kind == SYNC || access->kind == DATASYNC) {
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
    if (access->device_bytes != UNKNOWN) {
        add(usage->known, 1);
        add(usage->known_bytes, given);
        if (access->device_bytes)
            add(usage->device_bytes, access->device_bytes);
        else
            add(usage->cached, 1);
    }
    __u64 hash = (access->offset >> 12) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9ULL;
    // The zeros above the highest bit of what the place leaves, and one.
    __u8 rank = 56 - log2_of((hash & ((1ULL << 56) - 1)) | 1);
    __u8 *place = &usage->places[hash >> 56];
    if (*place < rank)
        *place = rank;
    if (thread)
        distance(usage, &thread->streams[(access->file.inode * 0x9e3779b97f4a7c15ULL) >> 60], access);
}

// An access has ended.
static __always_inline void ended(struct thread *thread, const struct access *access, const char *name)
{
    if (live) {
        add_up(thread, access);
        return;
    }
    struct access_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record) {
        lost(RING_FULL);
        return;
    }
    record->record = RECORD_ACCESS;
    record->kind = access->kind;
    record->file = access->file;
    record->ns = access->ns;
    record->latency_ns = access->latency_ns;
    record->offset = access->offset;
    record->asked = access->asked;
    record->result = access->result;
    record->device_bytes = access->device_bytes;
    record->thread = (__u32)access->id;
    record->process = access->id >> 32;
    if (name)
        __builtin_memcpy(record->name, name, sizeof(record->name));
    else
        bpf_get_current_comm(record->name, sizeof(record->name));
    // Waking costs more than all the rest: user space comes by itself ten times a second, and is woken where
    // the ring fills quicker than that.
    __u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
    bpf_ringbuf_submit(record, waiting > RING_BYTES / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!thread)
        lost(STARTS_FULL);
    return thread;
}

static __always_inline void begin(struct thread *thread, struct task_struct *task)
{
    thread->start.device_bytes = device_bytes(task);
    thread->start.pending = 1;
    thread->start.ns = bpf_ktime_get_ns();
}

static __always_inline void finish(struct thread *thread, struct task_struct *task, __s64 result)
{
    struct start *start = &thread->start;
    struct access access = {
        .file = start->file,
        .ns = start->ns,
        .latency_ns = bpf_ktime_get_ns() - start->ns,
        .offset = start->offset,
        .asked = start->asked,
        .device_bytes = start->device_bytes == UNKNOWN ? UNKNOWN : device_bytes(task) - start->device_bytes,
        .id = bpf_get_current_pid_tgid(),
        .result = result,
        .kind = start->kind,
    };
    start->pending = 0;
    ended(thread, &access, 0);
}

// Bytes that the segments of a vectored call come to.
static __always_inline __u64 segments(__u64 from, __u64 count)
{
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

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
    __u32 call = number;
    __u32 *what = bpf_map_lookup_elem(&calls, &call);
    if (!what || !*what)
        return 0;
    __u64 id = bpf_get_current_pid_tgid();
    if (!followed(id))
        return 0;
    __u32 flags = *what - 1;
    if (flags & URING) {
        if (!uring_seen)
            lost(NOT_FOLLOWED);
        return 0;
    }

    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    __u32 fd = ARG1(regs);
    struct fdtable *table = task->files->fdt;
    if (fd >= table->max_fds)
        return 0;
    struct file **slots = table->fd;
    struct file *file = 0;
    if (bpf_probe_read_kernel(&file, sizeof(file), slots + fd) || !file)
        return 0;
    struct file_key key = {};
    struct inode *inode;
    if (bpf_ksym_exists(bpf_rdonly_cast)) {
        struct file *typed = bpf_rdonly_cast(file, bpf_core_type_id_kernel(struct file));
        inode = typed->f_inode;
    } else {
        inode = BPF_CORE_READ(file, f_inode);
    }
    if (!wanted(inode, file, fd, id, &key))
        return 0;
    struct thread *thread = thread_of(task);
    if (!thread)
        return 0;
    __u32 kind = flags & KIND;
    __u64 asked = 0, offset = 0;
    if (kind == READ || kind == WRITE) {
        asked = flags & VECTOR ? segments(ARG2(regs), ARG3(regs)) : ARG3(regs);
        offset = flags & AT_OFFSET ? ARG4(regs) : UNKNOWN;
        // preadv2 with -1, and all that give no place.
        if (offset == UNKNOWN)
            offset = BPF_CORE_READ(file, f_pos);
    }
    thread->start.file = key;
    thread->start.kind = kind;
    thread->start.asked = asked;
    thread->start.offset = offset;
    begin(thread, task);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread && thread->start.pending)
        finish(thread, task, result);
    return 0;
}

// A fault that the page cache did not answer at once. Its end cannot be seen here, so its latency is 0:
// not known.
SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(fault_tracepoint, struct address_space *mapping, unsigned long index)
{
    __u64 id = bpf_get_current_pid_tgid();
    if (!followed(id))
        return 0;
    struct access access = {};
    if (!wanted(mapping->host, 0, -1, id, &access.file))
        return 0;
    struct thread *thread = live ? thread_of((struct task_struct *)bpf_get_current_task_btf()) : 0;
    access.ns = bpf_ktime_get_ns();
    access.offset = (__u64)index << page_shift;
    access.asked = access.result = 1ULL << page_shift;
    access.device_bytes = UNKNOWN;
    access.id = id;
    access.kind = FAULT;
    ended(thread, &access, 0);
    return 0;
}

// ---- at the functions of the VFS

static __always_inline void enter(struct file *file, __u32 kind, __u64 offset, __u64 asked)
{
    __u64 id = bpf_get_current_pid_tgid();
    if (!followed(id))
        return;
    struct file_key key = {};
    if (!wanted(file->f_inode, file, -1, id, &key))
        return;
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = thread_of(task);
    // Within another access (a write that is flushed at once, a fault of the buffer): that one counts.
    if (!thread || thread->start.pending)
        return;
    thread->start.file = key;
    thread->start.kind = kind;
    thread->start.asked = asked;
    thread->start.offset = offset;
    begin(thread, task);
}

static __always_inline void leave(struct file *file, __u32 kind, __s64 result)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || !thread->start.pending || thread->start.kind != kind)
        return;
    if (thread->start.file.inode == file->f_inode->i_ino)
        finish(thread, task, result);
}

static __always_inline __u64 place(struct file *file, long long *pos)
{
    // By the helper both times: the verifier lets no instruction read now the stack and now the file.
    __u64 offset = 0;
    if (!pos || bpf_probe_read_kernel(&offset, sizeof(offset), pos))
        offset = BPF_CORE_READ(file, f_pos);
    return offset;
}

SEC("fentry/vfs_read")
int BPF_PROG(read_enter, struct file *file, char *buffer, unsigned long count, long long *pos)
{
    enter(file, READ, place(file, pos), count);
    return 0;
}

SEC("fexit/vfs_read")
int BPF_PROG(read_leave, struct file *file, char *buffer, unsigned long count, long long *pos, long result)
{
    leave(file, READ, result);
    return 0;
}

SEC("fentry/vfs_write")
int BPF_PROG(write_enter, struct file *file, char *buffer, unsigned long count, long long *pos)
{
    enter(file, WRITE, place(file, pos), count);
    return 0;
}

SEC("fexit/vfs_write")
int BPF_PROG(write_leave, struct file *file, char *buffer, unsigned long count, long long *pos, long result)
{
    leave(file, WRITE, result);
    return 0;
}

SEC("fentry/vfs_readv")
int BPF_PROG(readv_enter, struct file *file, void *vector, unsigned long count, long long *pos, int flags)
{
    enter(file, READ, place(file, pos), segments((__u64)vector, count));
    return 0;
}

SEC("fexit/vfs_readv")
int BPF_PROG(readv_leave, struct file *file, void *vector, unsigned long count, long long *pos, int flags,
             long result)
{
    leave(file, READ, result);
    return 0;
}

SEC("fentry/vfs_writev")
int BPF_PROG(writev_enter, struct file *file, void *vector, unsigned long count, long long *pos, int flags)
{
    enter(file, WRITE, place(file, pos), segments((__u64)vector, count));
    return 0;
}

SEC("fexit/vfs_writev")
int BPF_PROG(writev_leave, struct file *file, void *vector, unsigned long count, long long *pos, int flags,
             long result)
{
    leave(file, WRITE, result);
    return 0;
}

SEC("fentry/vfs_fsync_range")
int BPF_PROG(sync_enter, struct file *file, long long from, long long to, int data)
{
    enter(file, data ? DATASYNC : SYNC, 0, 0);
    return 0;
}

SEC("fexit/vfs_fsync_range")
int BPF_PROG(sync_leave, struct file *file, long long from, long long to, int data, int result)
{
    leave(file, data ? DATASYNC : SYNC, result);
    return 0;
}

SEC("fentry/filemap_fault")
int BPF_PROG(fault_enter, struct vm_fault *fault)
{
    enter(fault->vma->vm_file, FAULT, (__u64)fault->pgoff << page_shift, 1ULL << page_shift);
    return 0;
}

SEC("fexit/filemap_fault")
int BPF_PROG(fault_leave, struct vm_fault *fault, int result)
{
    enum { FAILED = 0x2 | 0x4, RETRY = 0x400 };
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || !thread->start.pending || thread->start.kind != FAULT)
        return 0;
    // A fault that has to be tried again comes again, and the page is there then.
    finish(thread, task, result & FAILED ? -5 : result & RETRY ? 0 : 1LL << page_shift);
    return 0;
}

// ---- io_uring

// What an opcode of io_uring does, as `calls` says it; -1 where it is of no interest.
static __always_inline int uring_call(__u8 opcode)
{
    switch (opcode) {
    case 1: // READV
        return READ | VECTOR;
    case 2: // WRITEV
        return WRITE | VECTOR;
    case 3: // FSYNC
        return SYNC;
    case 4: // READ_FIXED
    case 22: // READ
        return READ;
    case 5: // WRITE_FIXED
    case 23: // WRITE
        return WRITE;
    }
    return -1;
}

static __always_inline int submitted(struct io_kiocb *request)
{
    int call = uring_call(request->opcode);
    if (call < 0)
        return 0;
    __u64 id = bpf_get_current_pid_tgid();
    if (!followed(id))
        return 0;
    struct uring_start start = {.kind = call & KIND, .id = id, .fd = request->cqe.fd};
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
    bpf_get_current_comm(start.name, sizeof(start.name));
    start.ns = bpf_ktime_get_ns();
    __u64 key = (__u64)request;
    if (bpf_map_update_elem(&uring, &key, &start, 0))
        lost(STARTS_FULL);
    return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit_req, struct io_kiocb *request)
{
    return submitted(request);
}

// The same before 6.3.
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(uring_submit_sqe, struct io_kiocb *request)
{
    return submitted(request);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *context, void *of)
{
    __u64 key = (__u64)of;
    struct uring_start *start = bpf_map_lookup_elem(&uring, &key);
    if (!start)
        return 0;
    struct io_kiocb *request = of;
    struct file *file = BPF_CORE_READ(request, file);
    struct access access = {};
    if (file && wanted(BPF_CORE_READ(file, f_inode), file, start->fd, start->id, &access.file)) {
        access.ns = start->ns;
        access.latency_ns = bpf_ktime_get_ns() - start->ns;
        access.offset = start->offset;
        access.asked = start->asked;
        access.device_bytes = UNKNOWN;
        access.id = start->id;
        access.result = BPF_CORE_READ(request, cqe.res);
        access.kind = start->kind;
        if (access.offset == UNKNOWN) {
            // It was to go on where the file was, which has moved on by what it gave.
            struct io_rw *rw = (void *)request;
            access.offset = BPF_CORE_READ(rw, kiocb.ki_pos) - (access.result > 0 ? access.result : 0);
        }
        ended(0, &access, start->name);
    }
    bpf_map_delete_elem(&uring, &key);
    return 0;
}
