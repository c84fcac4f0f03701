// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Files and sockets behind the descriptors of a thread, and the memory that calls on them pass.
#pragma once

#include "addresses.h"

#define MSG_PEEK 2
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

// The open file of a descriptor of a thread.
static __always_inline struct file *file_of(struct task_struct *task, __u32 fd) {
    struct fdtable *table = task->files->fdt;
    return fd < table->max_fds ? (struct file *)FIELD((void *)(table->fd + fd), list_head, next) : 0;
}

static __always_inline __u32 type_of(struct file *file) {
    struct inode *inode = FIELD(file, file, f_inode);
    return FIELD(inode, inode, i_mode) & S_IFMT;
}

// The socket behind a descriptor of a socket.
static __always_inline struct sock *socket_of(struct task_struct *task, __u32 fd) {
    struct file *file = file_of(task, fd);
    if (!file)
        return 0;
    struct socket *socket = FIELD(file, file, private_data);
    return FIELD(socket, socket, sk);
}

// The ends of a connection over IP.
static __always_inline void addresses_of(struct sock *sock, struct socket_addresses *addresses) {
    __u16 family = FIELD(sock, sock, __sk_common.skc_family);
    addresses->family = family;
    addresses->server_port = FIELD(sock, sock, __sk_common.skc_num);
    addresses->client_port = __builtin_bswap16(FIELD(sock, sock, __sk_common.skc_dport));
    if (family == AF_INET) {
        *(__u32 *)addresses->server = FIELD(sock, sock, __sk_common.skc_rcv_saddr);
        *(__u32 *)addresses->client = FIELD(sock, sock, __sk_common.skc_daddr);
    } else if (family == AF_INET6) {
        BPF_CORE_READ_INTO((struct in6_addr *)addresses->server, sock, __sk_common.skc_v6_rcv_saddr);
        BPF_CORE_READ_INTO((struct in6_addr *)addresses->client, sock, __sk_common.skc_v6_daddr);
    }
}

// The port in the name of a Unix socket: the last number before a dot, as in /tmp/mongodb-27017.sock; 0 if there is none.
static __always_inline __u16 port_in_name(const char *name, __u32 length) {
    __u32 port = 0, found = 0;
    for (__u32 i = 0; i < length; i++) {
        char c = name[i];
        if (!c)
            break;
        if (c >= '0' && c <= '9') {
            port = port * 10 + (c - '0');
        } else {
            found = c == '.' ? port : found;
            port = 0;
        }
    }
    return found;
}

enum { UNIX_NAME = 108 };

// The ends of a connection over a Unix socket, as seen by its server: the client has a number instead of an address, that
// of the server's end, in 0.0.0.0/8. Other sockets, also those of its clients, have no name.
static __always_inline void unix_addresses_of(struct sock *sock, __u64 number,
                                              struct socket_addresses *addresses) {
    char name[UNIX_NAME] = {};
    struct unix_address *address = BPF_CORE_READ((struct unix_sock *)sock, addr);
    addresses->family = 0;
    if (!address || bpf_probe_read_kernel(name, sizeof(name), address->name[0].sun_path))
        return;
    __u16 port = port_in_name(name, sizeof(name));
    if (!port)
        return;
    addresses->family = AF_INET;
    addresses->server_port = port;
    addresses->client_port = number;
    addresses->server[0] = 127;
    addresses->server[3] = 1;
    addresses->client[1] = number >> 32;
    addresses->client[2] = number >> 24;
    addresses->client[3] = number >> 16;
}

// The connection over IP behind a descriptor; 0 if it is something else.
static __always_inline struct sock *connection_of(struct task_struct *task, __u32 fd) {
    struct file *file = file_of(task, fd);
    if (!file || type_of(file) != S_IFSOCK)
        return 0;
    struct socket *socket = FIELD(file, file, private_data);
    struct sock *sock = FIELD(socket, socket, sk);
    __u16 family = FIELD(sock, sock, __sk_common.skc_family);
    return family == AF_INET || family == AF_INET6 ? sock : 0;
}

// A part of a thread's memory; in memory as a segment (struct iovec) of a call.
struct buffer {
    __u64 at;
    __u64 length;
};

// Whether a call on a socket passes several segments. `segments` are then their place and their number, else the memory
// that the call passes. If they cannot be read, that is one segment at the address 0.
static __always_inline bool segments_of(struct pt_regs *regs, long number, struct buffer *segments) {
    segments->at = ARG2(regs);
    segments->length = ARG3(regs);
    if (number != CALL_RECVMSG && number != CALL_SENDMSG)
        return number == CALL_READV || number == CALL_WRITEV;
    // struct msghdr: name, its length, then the segments.
    if (bpf_probe_read_user(segments, sizeof(*segments), (const void *)(segments->at + 16))) {
        segments->at = 0;
        segments->length = 1;
    }
    return 1;
}

// Where the first bytes of a call on a socket are in the thread's memory; 0 if that cannot be read.
static __always_inline struct buffer buffer_of(struct pt_regs *regs, long number) {
    struct buffer buffer, nowhere = {};
    if (segments_of(regs, number, &buffer) &&
        bpf_probe_read_user(&buffer, sizeof(buffer), (const void *)buffer.at))
        return nowhere;
    return buffer;
}
