// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The kernel's types, system calls and helpers, as far as these programs use them.
//
// A structure is declared with the fields that are used; CO-RE finds where they are on the running kernel.
#pragma once

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
    BPF_MAP_TYPE_SK_STORAGE = 24,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
// Of a map: processes can only read it.
enum { BPF_F_RDONLY = 8 };

#define CORE __attribute__((preserve_access_index))

// Numbers of system calls on this architecture.
#if defined(__TARGET_ARCH_x86)
enum {
    CALL_READ = 0,
    CALL_WRITE = 1,
    CALL_PREAD = 17,
    CALL_PWRITE = 18,
    CALL_READV = 19,
    CALL_WRITEV = 20,
    CALL_POLL = 7,
    CALL_SELECT = 23,
    CALL_SCHED_YIELD = 24,
    CALL_MSYNC = 26,
    CALL_NANOSLEEP = 35,
    CALL_ACCEPT = 43,
    CALL_SENDTO = 44,
    CALL_RECVFROM = 45,
    CALL_SENDMSG = 46,
    CALL_RECVMSG = 47,
    CALL_FSYNC = 74,
    CALL_FDATASYNC = 75,
    CALL_FUTEX = 202,
    CALL_CLOCK_NANOSLEEP = 230,
    CALL_EPOLL_WAIT = 232,
    CALL_PSELECT6 = 270,
    CALL_PPOLL = 271,
    CALL_SYNC_FILE_RANGE = 277,
    CALL_EPOLL_PWAIT = 281,
    CALL_PREADV = 295,
    CALL_PWRITEV = 296,
    CALL_PREADV2 = 327,
    CALL_PWRITEV2 = 328,
    CALL_ACCEPT4 = 288,
};
struct pt_regs {
    unsigned long di, si, dx, cx, r8, r10, ax, orig_ax, ip, sp, bp;
} CORE;
#define CALL(r) ((r)->orig_ax)
// True until the call has its result.
#define IN_CALL(r) ((__s32)CALL(r) >= 0 && (__s64)(r)->ax == -38 /* ENOSYS */)
#define REGS_IP(r) ((r)->ip)
#define REGS_SP(r) ((r)->sp)
#define REGS_FP(r) ((r)->bp)
#define REGS_LR(r) 0
#define ARG1(r) ((r)->di)
#define ARG1_OF(r) BPF_CORE_READ(r, di)
#define CALL_OF(r) BPF_CORE_READ(r, orig_ax)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->r10)
// Of a function of a program, where it is called, and where it has returned.
#define CALLED_ARG1(r) ((r)->di)
#define CALLED_ARG2(r) ((r)->si)
#define CALLED_ARG3(r) ((r)->dx)
#define CALLED_ARG4(r) ((r)->cx)
#define CALLED_ARG5(r) ((r)->r8)
#define RETURNED(r) ((r)->ax)
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
    CALL_EPOLL_PWAIT = 22,
    CALL_PSELECT6 = 72,
    CALL_PPOLL = 73,
    CALL_SYNC_FILE_RANGE = 84,
    CALL_FUTEX = 98,
    CALL_NANOSLEEP = 101,
    CALL_CLOCK_NANOSLEEP = 115,
    CALL_SCHED_YIELD = 124,
    CALL_ACCEPT = 202,
    CALL_ACCEPT4 = 242,
    CALL_SENDTO = 206,
    CALL_RECVFROM = 207,
    CALL_SENDMSG = 211,
    CALL_RECVMSG = 212,
    CALL_MSYNC = 227,
    CALL_PREADV2 = 286,
    CALL_PWRITEV2 = 287,
};
// The result overwrites the first argument, so the kernel keeps a copy of it.
struct pt_regs {
    unsigned long regs[31];
    unsigned long sp;
    unsigned long pc;
    unsigned long orig_x0;
    int syscallno;
} CORE;
#define CALL(r) ((r)->syscallno)
#define IN_CALL(r) ((__s32)CALL(r) >= 0 && (r)->regs[0] == (r)->orig_x0)
#define REGS_IP(r) ((r)->pc)
#define REGS_SP(r) ((r)->sp)
#define REGS_FP(r) ((r)->regs[29])
#define REGS_LR(r) ((r)->regs[30])
#define ARG1(r) ((r)->orig_x0)
#define ARG1_OF(r) BPF_CORE_READ(r, orig_x0)
#define CALL_OF(r) BPF_CORE_READ(r, syscallno)
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#define ARG4(r) ((r)->regs[3])
#define CALLED_ARG1(r) ((r)->regs[0])
#define CALLED_ARG2(r) ((r)->regs[1])
#define CALLED_ARG3(r) ((r)->regs[2])
#define CALLED_ARG4(r) ((r)->regs[3])
#define CALLED_ARG5(r) ((r)->regs[4])
#define RETURNED(r) ((r)->regs[0])
#else
#error "this architecture is not supported"
#endif
enum { CALL_IO_URING_ENTER = 426, CALL_EPOLL_PWAIT2 = 441 };

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
    void *private_data;
} CORE;
// Stands for any structure that begins with a pointer.
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
// Times of the scheduler's clock.
struct sched_info {
    unsigned long long run_delay;    // total time it has waited for a processor
    unsigned long long last_arrival; // when it last got one
} CORE;
struct task_struct {
    unsigned int __state;
    int on_cpu;
    int pid;
    int tgid;
    unsigned long nvcsw;
    unsigned long nivcsw;
    unsigned long maj_flt;
    unsigned int flags;
    char comm[16];
    struct files_struct *files;
    struct signal_struct *signal;
    struct task_io_accounting ioac;
    struct sched_info sched_info;
} CORE;
// Until 5.13.
struct task_struct___long {
    long state;
} CORE;
struct in6_addr {
    __u8 s6_addr[16];
} CORE;
struct sock_common {
    __be32 skc_daddr;
    __be32 skc_rcv_saddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} CORE;
struct sock {
    struct sock_common __sk_common;
} CORE;
struct socket {
    struct sock *sk;
} CORE;
struct sockaddr_un {
    unsigned short sun_family;
    char sun_path[108];
} CORE;
struct unix_address {
    int len;
    struct sockaddr_un name[];
} CORE;
struct unix_sock {
    struct unix_address *addr;
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

// Since 6.2: reads fields of a structure that was found by its address without a helper.
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

// A field of a structure that is known by its address; the verifier of older kernels accepts only a copy.
#define FIELD(object, type, field)                                                                           \
    (bpf_ksym_exists(bpf_rdonly_cast)                                                                        \
         ? ((struct type *)bpf_rdonly_cast((object), bpf_core_type_id_kernel(struct type)))->field           \
         : BPF_CORE_READ((struct type *)(object), field))

#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFSOCK 0140000
