// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Settings of user space, records for it, and the maps in between.
//
// sonar-sys/src/ebpf reads and writes these structures by the skeleton that is generated from them.
#pragma once

#include "kernel.h"

#define MAX_SEGMENTS 64
#define RING_BYTES (16 << 20)
#define NEAR (1ULL << 20)
#define UNKNOWN (~0ULL)
#define GOLDEN 0x9e3779b97f4a7c15ULL

enum { READ, WRITE, SYNC, DATASYNC, FAULT, PAGE_IN };
enum { RING_FULL, STARTS_FULL, FILES_FULL, UNREADABLE, NOT_FOLLOWED, ENDS_UNSEEN, LOSSES };
enum { RECORD_ACCESS, RECORD_FILE, RECORD_THREAD, RECORD_PROCESS };
enum { PROCESS_STARTED, PROCESS_ENDED, PROCESS_REFUSED };
// How a call passes its offset and length; bits above the kind.
enum { KIND = 3, AT_OFFSET = 4, VECTOR = 8, URING = 16, NO_CALL = 32 };
enum { BUCKETS = 256, PLACES = 256, STREAMS = 16, MAX_FILES = 65536, MAX_USAGES = 16384, SLOTS = 4096 };
enum { NAME = 96, PARENTS = 6, PARENT_NAME = 32, PROGRAM_NAME = 16 };
// Instead of a number: user space ignores the file, or there was no room to report it.
#define IGNORED (~0U)
#define UNREPORTED (~1U)

// Set by user space before loading.
const volatile bool live = 0;        // add up instead of handing on
const volatile bool uring_seen = 0;  // io_uring is followed by its own tracepoints
const volatile bool pseudo_seen = 0; // files of /proc, /sys and their like are of interest too
const volatile __u32 page_shift = 12;
// Processes with this name, or whose program has it, are followed as soon as they start; if it is empty, only those
// that user space names.
const volatile __u8 program_name[PROGRAM_NAME] = {};

// Written by user space at any time. What a thread remembers of a process or a file is valid as long as the
// generation is the same. Each followed process has a bit, by the low bits of its id, so other processes cost one
// comparison.
struct control {
    __u64 some[4];
    __u32 generation;
    __u32 unused;
};
volatile struct control control SEC(".data.control") = {};
// The same bits of processes that were followed here, which user space never writes.
__u64 started[4] SEC(".data.started") = {};

// The number of the next new file if none was given back.
__u32 next_file = 0;

// The number of an inode is reused soon after its file is deleted, with another generation.
struct file_key {
    __u64 inode;
    __u64 device;
    __u32 generation;
    __u32 unused;
};

// What a thread remembers of a file: its address in the kernel, its number, and where the thread's last read of
// it ended.
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

// The state of a thread. Files share the slots of `streams` by their inode: a thread reads few at a time, and if
// two collide, a distance is unknown.
struct thread {
    // The access in progress.
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
    __u8 name[NAME];
    // For a pseudo file system, whose files are often closed before their path is looked up: the magic number of the
    // file system, and the folders above, the nearest first, up to an empty name.
    __u64 magic;
    __u8 parents[PARENTS][PARENT_NAME];
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
    __u8 name[16];
};

// The figures of a file. Those that a read from the page cache changes come first.
struct usage {
    __u64 reads, read_bytes, read_ns;
    __u64 contiguous, near, ahead, back;
    // Reads that fetched from the device, and their bytes.
    __u64 fetches, device_bytes;
    // Reads with an unknown share from the device, and their bytes.
    __u64 unknown, unknown_bytes;
    __u64 faults, errors;
    __u64 writes, write_bytes, write_ns;
    __u64 syncs, sync_ns;
    // Latencies of reads: eight buckets for each power of two.
    __u32 latency[BUCKETS];
    // A sketch of how many different 4 KiB blocks reads began at (HyperLogLog).
    __u8 places[PLACES];
};

_Static_assert(sizeof(struct stream) == 64 && sizeof(struct thread) == 64 * 17, "whole cache lines");

// Puts the records into the type information, from which the skeleton is generated.
union record {
    struct access_record access;
    struct file_record file;
    struct process_record process;
    struct thread_record thread;
};
const union record *record_types;

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

// Files, with their numbers.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MAX_FILES);
    __type(key, struct file_key);
    __type(value, __u32);
} files SEC(".maps");

// Numbers that user space gave back.
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, MAX_FILES);
    __type(value, __u32);
} free_numbers SEC(".maps");

// By the number of the file; user space makes it small if it needs no figures.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MAX_USAGES);
    __type(key, __u32);
    __type(value, struct usage);
} usages SEC(".maps");

// The state of threads, by the low bits of their ids: finding the task storage of a thread costs more than
// everything else at the beginning of an access.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SLOTS);
    __type(key, __u32);
    __type(value, struct thread);
} slots SEC(".maps");

// The state of threads whose slot belongs to another thread.
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

// Requests of io_uring in progress, by their address.
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
