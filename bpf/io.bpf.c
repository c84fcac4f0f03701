// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Accesses to files of chosen processes: how an event of the kernel reaches user space.
//
//   system call, VFS function, io_uring or page fault     syscalls.h  vfs.h  uring.h  page_cache.h
//     -> is its process followed?                         thread.h    (processes.h: processes that start and exit)
//     -> which file is it?                                file.h      (a new file is reported by a record)
//     -> begin(), finish(): times, place, length, result  access.h
//     -> `io record`: a record in the ring                state.h     (struct access_record)
//        `io live`: added to the figures of its file                  (struct usage)
//   user space: sonar-sys/src/ebpf.rs reads the ring and the figures, mongosonar/src/files shows them.
//
// There are two ways to see an access, and user space loads the programs of one of them:
// - at the functions of the VFS (fentry and fexit), if the kernel allows it: other calls cost nothing, and page
//   faults have a latency;
// - at the raw tracepoints of all system calls, not one for each: they need neither tracefs nor kprobes,
//   and a call of no interest costs a comparison.
// io_uring has tracepoints of its own, for both ways.
//
// Between two reads a server uses more memory than the nearest caches hold, so a program costs the cache lines
// that it touches. So the program at the beginning of an access only notes the time; the one at its end determines
// the file, when the kernel has just used the same structures. Each thread has a slot with what it needs for the
// files that it reads, so no table is searched for them again.

#include "processes.h"
#include "syscalls.h"
#include "page_cache.h"
#include "vfs.h"
#include "uring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
