// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Files and sockets behind the descriptors of a thread.
#pragma once

#include "addresses.h"

#define MSG_PEEK 2
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
