// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Which file is accessed: its number, and what a thread remembers of it.
#pragma once

#include "thread.h"

// Whether the kernel generates the files of a file system when they are read: no device is behind them.
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

static __always_inline void name_of(struct dentry *dentry, __u8 *name, __u32 size) {
    const unsigned char *from = BPF_CORE_READ(dentry, d_name.name);
    if (bpf_probe_read_kernel_str(name, size, from) < 0)
        name[0] = 0;
}

// Gives a number back.
static __always_inline void unused_number(__u32 number) {
    bpf_map_push_elem(&free_numbers, &number, 0);
}

// Reports a new file to user space, which decides whether it is of interest; returns its number, or UNREPORTED.
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
    // User space can find its path while it is open.
    bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
    return number;
}

// The number of a file, IGNORED, or UNREPORTED: then its next access reports it.
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

// What the thread remembers of a file, if accesses to it are of interest.
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
