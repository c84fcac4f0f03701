// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reads what passes through the sockets of servers, where packets are not captured: each connection is a session.
//
//   a socket gets data           tls_arrived()       when
//   the server receives it       socket_received()   on which thread
//   the system call has ended    socket_used()       the bytes are passed on
#pragma once

#include "tls_session.h"

// Which connection a descriptor is, as a session. The number of its inode is used only once.
static __always_inline bool socket_session(struct task_struct *task, __u32 fd, struct tls_key *key,
                                           struct sock **sock) {
    struct file *file = file_of(task, fd);
    if (!file || type_of(file) != S_IFSOCK)
        return 0;
    struct inode *inode = FIELD(file, file, f_inode);
    struct socket *socket = FIELD(file, file, private_data);
    key->ssl = FIELD(inode, inode, i_ino);
    key->process = task->tgid;
    *sock = FIELD(socket, socket, sk);
    return *sock != 0;
}

static __always_inline void socket_addresses_of(struct sock *sock, __u64 number,
                                                struct socket_addresses *addresses) {
    if (FIELD(sock, sock, __sk_common.skc_family) == AF_UNIX)
        unix_addresses_of(sock, number, addresses);
    else
        addresses_of(sock, addresses);
}

enum { SEGMENTS = 4 };

// Bytes that a call on a socket has passed, in the order of its segments.
static __always_inline void passed(struct tls_session *session, __u32 kind, struct pt_regs *regs,
                                   __u32 bytes) {
    struct buffer segments;
    if (!segments_of(regs, CALL(regs), &segments)) {
        moved(session, kind, segments.at, bytes);
        return;
    }
    __u32 lost = TLS_LOST_PIPELINED;
    for (__u32 i = 0; i < SEGMENTS && i < segments.length && bytes; i++) {
        struct buffer segment;
        if (bpf_probe_read_user(&segment, sizeof(segment),
                                (const void *)(segments.at + i * sizeof(segment)))) {
            lost = TLS_LOST_UNREADABLE;
            break;
        }
        __u32 part = segment.length < bytes ? segment.length : bytes;
        moved(session, kind, segment.at, part);
        bytes -= part;
    }
    if (bytes) {
        struct tls_half *half = &session->halves[kind == TLS_WRITE];
        tls_lost(lost);
        half->offset += bytes;
        half->synced = 0;
    }
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_received, struct sock *sock, int bytes, int flags) {
    if (bytes <= 0 || flags & MSG_PEEK)
        return 0;
    struct tls_thread *thread = thread_of(1);
    if (thread)
        note_arrival(thread, sock);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(socket_used, struct pt_regs *regs, long result) {
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 process = task->tgid;
    long number = CALL(regs);
    bool accepts = number == CALL_ACCEPT || number == CALL_ACCEPT4;
    __u32 direction = direction_of(number, regs);
    if ((direction == SYSCALL_NONE && !accepts) || result < 0 || !is_followed(process))
        return 0;
    if (!tls_active)
        tls_active = 1;
    struct tls_key key = {};
    struct sock *sock;
    if (!socket_session(task, accepts ? result : ARG1(regs), &key, &sock))
        return 0;
    struct tls_session *session = session_of(&key, 0, 0);
    if (!result && !accepts) {
        // The peer has sent everything.
        if (session && direction == SYSCALL_RECEIVE) {
            tell(session, TLS_END);
            bpf_map_delete_elem(&tls_sessions, &key);
        }
        return 0;
    }
    if (!session) {
        struct socket_addresses addresses = {};
        socket_addresses_of(sock, key.ssl, &addresses);
        if (!addresses.family || !(session = session_of(&key, 1, accepts)))
            return 0;
        session->addresses = addresses;
        session->sock = (__u64)sock;
    }
    if (accepts)
        return 0;
    struct tls_thread *thread = thread_of(0);
    bool is_known =
        direction == SYSCALL_RECEIVE && thread && thread->arrived && thread->arrived_on == (__u64)sock;
    session->moved_ns = is_known ? thread->arrived : bpf_ktime_get_ns();
    passed(session, direction == SYSCALL_RECEIVE ? TLS_READ : TLS_WRITE, regs, result);
    return 0;
}
