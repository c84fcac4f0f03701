// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// On request: pages that come into the page cache.
#pragma once

#include "access.h"

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
    lost(UNREADABLE); // this kernel keeps their number elsewhere
    return 1;
}

// The file with this inode in the current access, and its descriptor, so that a new file is reported with its name;
// 0 and -1 if the access is to another file, or to an unknown one.
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
    // Writes fill the page cache too, but not from a device.
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
