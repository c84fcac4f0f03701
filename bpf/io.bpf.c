// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses to files of chosen processes, at the system calls.
//
// The raw tracepoints of all system calls are used, not one for each: they want neither tracefs nor
// kprobes, and a call that is of no interest costs a comparison and one look-up. Which files are of
// interest is decided here too, by a map that user space fills as files appear.
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

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_NOEXIST = 1 };

#define CORE __attribute__((preserve_access_index))

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long di, si, dx, r10;
} CORE;
#define ARG1(r) BPF_CORE_READ(r, di)
#define ARG2(r) BPF_CORE_READ(r, si)
#define ARG3(r) BPF_CORE_READ(r, dx)
#define ARG4(r) BPF_CORE_READ(r, r10)
#elif defined(__TARGET_ARCH_arm64)
// The first argument is overwritten by the result, so it is kept apart.
struct pt_regs {
    unsigned long regs[31];
    unsigned long orig_x0;
} CORE;
#define ARG1(r) BPF_CORE_READ(r, orig_x0)
#define ARG2(r) BPF_CORE_READ(r, regs[1])
#define ARG3(r) BPF_CORE_READ(r, regs[2])
#define ARG4(r) BPF_CORE_READ(r, regs[3])
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

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define S_IFMT 0170000
#define S_IFREG 0100000
#define MAX_SEGMENTS 64

enum { READ, WRITE, SYNC, DATASYNC };
enum { RING_FULL, STARTS_FULL, FILES_FULL, UNREADABLE, NOT_FOLLOWED, LOSSES };
enum { RECORD_ACCESS, RECORD_FILE };
enum { FILE_WANTED = 1, FILE_IGNORED = 2 };
// How a call gives its place and length; bits over the kind.
enum { KIND = 3, AT_OFFSET = 4, VECTOR = 8, URING = 16 };

struct file_key {
    __u64 inode;
    __u64 device;
};

struct start {
    struct file_key file;
    __u64 ns;
    __u64 offset;
    __u64 asked;
    __u64 device_bytes;
    __u32 kind;
    __u32 pad;
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
    __type(key, __u64);
    __type(value, struct start);
} starts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, LOSSES);
    __type(key, __u32);
    __type(value, __u64);
} losses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 16 * 1024 * 1024);
} ring SEC(".maps");

static __always_inline void lost(__u32 reason)
{
    __u64 *count = bpf_map_lookup_elem(&losses, &reason);
    if (count)
        __sync_fetch_and_add(count, 1);
}

static __always_inline __u64 device_bytes(struct task_struct *task)
{
    // ~0 where the kernel does not account (no CONFIG_TASK_IO_ACCOUNTING).
    if (!bpf_core_field_exists(task->ioac.read_bytes))
        return ~0ULL;
    return BPF_CORE_READ(task, ioac.read_bytes);
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
    const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
    if (bpf_probe_read_kernel_str(record->name, sizeof(record->name), name) < 0)
        record->name[0] = 0;
    bpf_ringbuf_submit(record, 0);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
    __u64 id = bpf_get_current_pid_tgid();
    __u32 process = id >> 32, call = number;
    __u32 *what = bpf_map_lookup_elem(&calls, &call);
    if (!what || !*what || !bpf_map_lookup_elem(&processes, &process))
        return 0;
    __u32 flags = *what - 1;
    if (flags & URING) {
        lost(NOT_FOLLOWED);
        return 0;
    }

    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct start start = {};
    __u32 fd = ARG1(regs);
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    if (fd >= BPF_CORE_READ(table, max_fds))
        return 0;
    struct file **slots = BPF_CORE_READ(table, fd);
    struct file *file = 0;
    if (bpf_probe_read_kernel(&file, sizeof(file), slots + fd) || !file)
        return 0;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
        return 0;
    start.file.inode = BPF_CORE_READ(inode, i_ino);
    start.file.device = BPF_CORE_READ(inode, i_sb, s_dev);
    __u32 *known = bpf_map_lookup_elem(&files, &start.file);
    if (known && *known == FILE_IGNORED)
        return 0;
    if (!known)
        new_file(&start.file, file, fd, id);

    start.kind = flags & KIND;
    if (start.kind == READ || start.kind == WRITE) {
        if (flags & VECTOR) {
            __u64 from = ARG2(regs), count = ARG3(regs);
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
                start.asked += segment[1];
            }
        } else {
            start.asked = ARG3(regs);
        }
        start.offset = ~0ULL;
        if (flags & AT_OFFSET)
            start.offset = ARG4(regs);
        // preadv2 with -1, and all that give no place.
        if (start.offset == ~0ULL)
            start.offset = BPF_CORE_READ(file, f_pos);
    }
    start.device_bytes = device_bytes(task);
    start.ns = bpf_ktime_get_ns();
    if (bpf_map_update_elem(&starts, &id, &start, 0))
        lost(STARTS_FULL);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
    __u64 id = bpf_get_current_pid_tgid();
    __u32 process = id >> 32;
    if (!bpf_map_lookup_elem(&processes, &process))
        return 0;
    struct start *start = bpf_map_lookup_elem(&starts, &id);
    if (!start)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    struct access_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
    if (!record) {
        lost(RING_FULL);
    } else {
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        record->record = RECORD_ACCESS;
        record->kind = start->kind;
        record->file = start->file;
        record->ns = start->ns;
        record->latency_ns = now - start->ns;
        record->offset = start->offset;
        record->asked = start->asked;
        record->result = result;
        record->device_bytes =
            start->device_bytes == ~0ULL ? ~0ULL : device_bytes(task) - start->device_bytes;
        record->thread = (__u32)id;
        record->process = process;
        bpf_get_current_comm(record->name, sizeof(record->name));
        bpf_ringbuf_submit(record, 0);
    }
    bpf_map_delete_elem(&starts, &id);
    return 0;
}
