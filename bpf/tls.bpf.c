// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reads the plaintext of TLS connections where the program hands it to its TLS library, and finds the connection to
// which each session belongs.
//
//   SSL_read or SSL_write calls its inner function   called()   which session, which buffer
//   that function has returned                       returned() how many bytes; they are passed on
//   the thread receives or sends in between          moved_on() on which socket
//   SSL_do_handshake, SSL_free                       the session begins, and ends
//
// A session belongs to the socket on which the library itself read or wrote during the call. If the library has no
// socket (memory BIOs), to the only socket from which the thread received between a read of the session that found
// nothing and the next one that found something, or to which it sent what the session had just written; the sizes of
// the records must fit. What a session reads and writes before that is passed on without a socket, which is passed on
// when it is known; of a session that stays without one only the beginning.

#include "tls_session.h"

#include "session_sockets.h"

static __always_inline int called(struct pt_regs *regs, __u32 call) {
    struct tls_thread *thread = thread_of(1);
    if (!thread)
        return 0;
    if (!tls_active)
        tls_active = 1;
    tls_call_begins(&thread->call, regs, call);
    thread->nested = 0;
    if (call == TLS_WRITE)
        thread->ns = bpf_ktime_get_ns();
    return 0;
}

// No record is that much longer than its content: a header, an initial vector and padding.
enum { RECORD_MOST = 5 + 256 + 64 };

static __always_inline bool is_record_of(__u32 record, __u32 content) {
    __u32 records = content / 16384 + 1;
    return record >= content + RECORD_LEAST && record <= content + RECORD_MOST * records;
}

static __always_inline int returned(struct pt_regs *regs, __u32 call) {
    struct tls_thread *thread = thread_of(0);
    if (!thread || thread->call.kind != call)
        return 0;
    struct tls_key key = {.ssl = thread->call.ssl, .process = bpf_get_current_pid_tgid() >> 32};
    __s64 result = tls_call_ends(&thread->call, regs);
    if (result < 0) {
        tls_lost(TLS_LOST_UNREADABLE);
        return 0;
    }
    __u32 bytes = result;
    __u64 sock = thread->nested;
    if (call == TLS_READ) {
        __u64 found = tls_search_read(&thread->search, key.ssl, bytes);
        sock = sock ? sock : found;
    }
    if (!bytes)
        return 0;
    struct tls_session *session = session_of(&key, 1, 0);
    if (!session)
        return 0;
    if (sock && sock != session->sock && (!session->sock || thread->nested))
        bind(session, sock);
    if (call == TLS_WRITE) {
        // If several sessions write before the thread sends, it is not known whose bytes it sends.
        thread->wrote = session->sock || (thread->wrote && thread->wrote != key.ssl) ? 0 : key.ssl;
        thread->wrote_bytes = bytes;
    }
    if (!session->sock) {
        if (session->waiting >= TLS_WAITING) {
            tls_lost(TLS_LOST_UNMAPPED);
            return 0;
        }
        session->waiting++;
    }
    // What is written is on its way before the call returns. What is read has arrived long ago if the machine is busy.
    if (call == TLS_WRITE)
        session->moved_ns = thread->ns;
    else if (thread->arrived && thread->arrived_on == session->sock)
        session->moved_ns = thread->arrived;
    else
        session->moved_ns = bpf_ktime_get_ns();
    moved(session, call, thread->call.buffer, bytes);
    return 0;
}

SEC("uprobe")
int tls_read_called(struct pt_regs *regs) {
    return called(regs, TLS_READ);
}

SEC("uprobe")
int tls_read_returned(struct pt_regs *regs) {
    return returned(regs, TLS_READ);
}

SEC("uprobe")
int tls_write_called(struct pt_regs *regs) {
    return called(regs, TLS_WRITE);
}

SEC("uprobe")
int tls_write_returned(struct pt_regs *regs) {
    return returned(regs, TLS_WRITE);
}

SEC("uprobe")
int tls_begun(struct pt_regs *regs) {
    struct tls_key key = {.ssl = CALLED_ARG1(regs), .process = bpf_get_current_pid_tgid() >> 32};
    struct tls_thread *thread = thread_of(1);
    if (!thread)
        return 0;
    if (!tls_active)
        tls_active = 1;
    bool first = !session_of(&key, 0, 0);
    if (first)
        session_of(&key, 1, 1);
    tls_search_handshake(&thread->search, key.ssl, first);
    return 0;
}

SEC("uprobe")
int tls_freed(struct pt_regs *regs) {
    __u32 process = bpf_get_current_pid_tgid() >> 32;
    if (!is_followed(process))
        return 0;
    struct tls_key key = {.ssl = CALLED_ARG1(regs), .process = process};
    struct tls_session *session = session_of(&key, 0, 0);
    if (!session)
        return 0;
    tell(session, TLS_END);
    bpf_map_delete_elem(&tls_sessions, &key);
    return 0;
}

// What the current thread is doing, if it matters on which socket it receives and sends.
static __always_inline struct tls_thread *observed_thread(void) {
    struct tls_thread *thread = thread_of(0);
    return thread && (thread->call.kind != TLS_NONE || thread->search.wanting || thread->wrote) ? thread : 0;
}

static __always_inline void moved_on(struct tls_thread *thread, __u64 sock, __u32 direction, long bytes) {
    if (thread->call.kind != TLS_NONE) {
        thread->nested = sock;
    } else if (direction == SYSCALL_RECEIVE) {
        tls_search_received(&thread->search, sock, bytes);
    } else if (thread->wrote) {
        struct tls_key key = {.ssl = thread->wrote, .process = bpf_get_current_pid_tgid() >> 32};
        thread->wrote = 0;
        struct tls_session *session = session_of(&key, 0, 0);
        if (session && !session->sock && is_record_of(bytes, thread->wrote_bytes))
            bind(session, sock);
    }
}

// Of a record with a ServerHello: its type and version, that of the message and its length, the version, what is random,
// and the length of the session id, which the cipher suite follows.
enum { HELLO_BYTES = 5 + 4 + 2 + 32 + 1, HELLO_VERSION = 9, RECORD_HANDSHAKE = 0x16, SERVER_HELLO = 2 };

// A thread has sent bytes while a session shakes hands: if they are a ServerHello, it says what was chosen.
static __always_inline void note_suite(struct tls_thread *thread, struct pt_regs *regs) {
    struct tls_key key = {.ssl = thread->search.wanting, .process = bpf_get_current_pid_tgid() >> 32};
    struct tls_session *session = session_of(&key, 0, 0);
    if (!session || session->version)
        return;
    __u64 at = buffer_of(regs, CALL(regs)).at;
    __u8 hello[HELLO_BYTES], cipher[2];
    if (!at || bpf_probe_read_user(hello, sizeof(hello), (const void *)at))
        return;
    __u32 id = hello[HELLO_BYTES - 1];
    if (hello[0] != RECORD_HANDSHAKE || hello[5] != SERVER_HELLO || id > 32 ||
        bpf_probe_read_user(cipher, sizeof(cipher), (const void *)(at + HELLO_BYTES + id)))
        return;
    session->version = hello[HELLO_VERSION] << 8 | hello[HELLO_VERSION + 1];
    session->cipher = cipher[0] << 8 | cipher[1];
}

// Since Linux 6.3 the kernel reports what sockets receive and send; before, the end of each system call is examined.
// Returns the thread if it matters.
static __always_inline struct tls_thread *reported(struct sock *sock, int bytes, __u32 direction) {
    struct tls_thread *thread = tls_active && bytes > 0 ? observed_thread() : 0;
    if (!thread)
        return 0;
    __u16 family = FIELD(sock, sock, __sk_common.skc_family);
    if (family != AF_INET && family != AF_INET6)
        return 0;
    moved_on(thread, (__u64)sock, direction, bytes);
    return thread;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(tls_arrived, struct sock *sock) {
    __u64 *arrived = tls_active ? bpf_sk_storage_get(&tls_arrivals, sock, 0, 0) : 0;
    if (arrived)
        *arrived = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(tls_received, struct sock *sock, int bytes, int flags) {
    struct tls_thread *thread = flags & MSG_PEEK ? 0 : reported(sock, bytes, SYSCALL_RECEIVE);
    if (thread)
        note_arrival(thread, sock);
    return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(tls_sent, struct sock *sock, int bytes, int flags) {
    struct tls_thread *thread = reported(sock, bytes, SYSCALL_SEND);
    if (thread && thread->search.wanting)
        note_suite(thread, (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()));
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(tls_exited, struct pt_regs *regs, long result) {
    if (!tls_active || result <= 0)
        return 0;
    __u32 direction = direction_of(CALL(regs), regs);
    struct tls_thread *thread = direction == SYSCALL_NONE ? 0 : observed_thread();
    if (!thread)
        return 0;
    __u64 sock = (__u64)connection_of((struct task_struct *)bpf_get_current_task_btf(), ARG1(regs));
    if (!sock)
        return 0;
    moved_on(thread, sock, direction, result);
    if (direction == SYSCALL_SEND && thread->search.wanting)
        note_suite(thread, regs);
    return 0;
}

static long forget(void *map, const struct tls_key *key, const struct tls_session *session,
                   const __u32 *process) {
    if (key->process == *process)
        bpf_map_delete_elem(map, key);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(tls_process_exit, struct task_struct *task) {
    __u32 process = task->tgid;
    if (!is_followed(process) || task->signal->live.counter)
        return 0;
    // Another process may soon have its id.
    bpf_map_delete_elem(&tls_processes, &process);
    if (tls_active)
        bpf_for_each_map_elem(&tls_sessions, forget, &process, 0);
    return 0;
}

// Who has become another program is another process to whoever chose it.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(tls_executed, struct task_struct *task) {
    __u32 process = task->tgid;
    // Its state as the thread of the other program, which says that it is followed.
    bpf_task_storage_delete(&tls_threads, task);
    if (!is_followed(process))
        return 0;
    bpf_map_delete_elem(&tls_processes, &process);
    bpf_for_each_map_elem(&tls_sessions, forget, &process, 0);
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
