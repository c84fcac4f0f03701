// The lab's own relay with TLS, which is not MongoDB: it uses OpenSSL exactly as mongod does, through a pair of memory
// BIOs, and passes whole messages on to a server without TLS and the replies back.
//
//   membio PORT SERVER-PORT CERTIFICATE [OPTION...]     CERTIFICATE: a PEM file with certificate and key
//
//   --tls 1.2 | 1.3    only that version
//   --shared-thread    one thread serves all sessions: a read that finds nothing, others' reads, then bytes of the first
//   --upstream-tls     the server has TLS too, so that each thread alternates between two sessions
//   --tiny             the first 64 bytes of each message that it writes go in records of one byte
//   --keylog FILE      appends the keys of each session to FILE
//   --seccomp          kills itself at a system call that is newer than Linux 5.0, except for clone3: the numbers of
//                      uprobe and uretprobe are among them
//
// Otherwise each connection has a thread. Prints `ready HOST:PORT` when it listens.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "end.h"

enum { HEADER = 16, READ_MOST = 65536 };
enum { LONGEST = 48000000 + 16 * 1024, MORE_TO_COME = 2, OP_MSG = 2013, MOST_SESSIONS = 4096 };

static bool shared_thread, upstream_tls, tiny;
static SSL_CTX *server_context, *client_context;
static uint16_t server_port;
static FILE *keys;

struct message {
    char *bytes;
    size_t have, length, room;
};

struct session {
    struct end client, server;
    struct message request, reply;
};

// ---- Messages ----

static uint32_t word(const struct message *message, size_t index) {
    uint32_t value;
    memcpy(&value, message->bytes + 4 * index, 4);
    return value;
}

static bool has_more_to_come(const struct message *message) {
    return word(message, 3) == OP_MSG && message->length >= HEADER + 4 && word(message, 4) & MORE_TO_COME;
}

// Reads on until the message is whole. Returns 1 then, 0 at the end, or LATER.
static ssize_t read_message(struct end *end, struct message *message) {
    for (;;) {
        size_t until = message->have < HEADER ? HEADER : message->length;
        if (message->room < until) {
            message->room = until;
            if (!(message->bytes = realloc(message->bytes, until)))
                fail("memory");
        }
        size_t missing = until - message->have;
        ssize_t got =
            read_some(end, message->bytes + message->have, missing < READ_MOST ? missing : READ_MOST);
        if (got <= 0)
            return got == LATER ? LATER : 0;
        message->have += got;
        if (message->have < HEADER)
            continue;
        message->length = word(message, 0);
        if (message->length < HEADER || message->length > LONGEST)
            return 0;
        if (message->have == message->length) {
            message->have = 0;
            return 1;
        }
    }
}

// Passes the request on, and its reply back, or several if each announces the next.
static bool relay(struct session *session) {
    if (!write_all(&session->server, session->request.bytes, session->request.length))
        return false;
    if (has_more_to_come(&session->request))
        return true;
    uint32_t awaited = word(&session->request, 1);
    for (;;) {
        if (read_message(&session->server, &session->reply) != 1)
            return false;
        if (!write_all(&session->client, session->reply.bytes, session->reply.length))
            return false;
        if (word(&session->reply, 2) != awaited)
            continue; // The server answered what nobody asked it to.
        if (!has_more_to_come(&session->reply))
            return true;
        awaited = word(&session->reply, 1);
    }
}

// ---- Connections ----

static void without_delay(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static struct session *begin(int fd) {
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        fail("memory");
    struct sockaddr_in address = {AF_INET, htons(server_port), {htonl(INADDR_LOOPBACK)}, {}};
    without_delay(session->client.fd = fd);
    without_delay(session->server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(session->server.fd, (struct sockaddr *)&address, sizeof(address)))
        fail("connection to the server");
    return session;
}

static bool open_session(struct session *session) {
    if (!encrypt(&session->client, server_context, true))
        return false;
    session->client.waits_elsewhere = shared_thread;
    session->client.is_tiny = session->server.is_tiny = tiny;
    return !upstream_tls || encrypt(&session->server, client_context, false);
}

static void end_half(struct end *end) {
    if (end->ssl) {
        SSL_shutdown(end->ssl);
        flush(end);
        SSL_free(end->ssl);
        BIO_free(end->network);
    }
    close(end->fd);
}

static void finish(struct session *session) {
    end_half(&session->client);
    end_half(&session->server);
    free(session->request.bytes);
    free(session->reply.bytes);
    free(session);
}

// Serves all requests that have come. Returns false at the end of the session.
static bool serve(struct session *session) {
    for (;;) {
        ssize_t whole = read_message(&session->client, &session->request);
        if (whole == LATER)
            return true;
        if (whole != 1 || !relay(session))
            return false;
    }
}

static void *serve_alone(void *argument) {
    struct session *session = argument;
    pthread_setname_np(pthread_self(), "conn");
    if (open_session(session))
        serve(session);
    finish(session);
    return NULL;
}

static int accept_one(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
        fail("accept");
    return fd;
}

static void serve_by_threads(int listener) {
    for (;;) {
        int fd = accept_one(listener);
        pthread_t thread;
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, serve_alone, begin(fd)))
            fail("thread");
        pthread_detach(thread);
    }
}

static void serve_together(int listener) {
    static struct session *sessions[MOST_SESSIONS];
    static struct pollfd polled[MOST_SESSIONS + 1];
    size_t count = 0;
    for (;;) {
        polled[count] = (struct pollfd){listener, POLLIN, 0};
        for (size_t i = 0; i < count; i++)
            polled[i] = (struct pollfd){sessions[i]->client.fd, POLLIN, 0};
        if (poll(polled, count + 1, -1) < 0 && errno != EINTR)
            fail("poll");
        bool comes = polled[count].revents;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            struct session *session = sessions[i];
            if (!polled[i].revents || (feed(&session->client) && serve(session)))
                sessions[kept++] = session;
            else
                finish(session);
        }
        count = kept;
        int fd = comes && count < MOST_SESSIONS ? accept_one(listener) : -1;
        if (fd < 0)
            continue;
        struct session *session = begin(fd);
        // The first request may have come with the end of the handshake.
        if (open_session(session) && serve(session))
            sessions[count++] = session;
        else
            finish(session);
    }
}

// ---- Start ----

static void write_key(const SSL *ssl, const char *line) {
    (void)ssl;
    fprintf(keys, "%s\n", line);
    fflush(keys);
}

static SSL_CTX *context(const SSL_METHOD *method, int version) {
    SSL_CTX *context = SSL_CTX_new(method);
    if (!context)
        fail("TLS");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (version &&
        !(SSL_CTX_set_min_proto_version(context, version) && SSL_CTX_set_max_proto_version(context, version)))
        fail("TLS version");
    if (keys)
        SSL_CTX_set_keylog_callback(context, write_key);
    return context;
}

static void refuse_new_system_calls(void) {
    enum { LAST = 334, CLONE3 = 435 };
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE3, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

static void usage(void) {
    fprintf(stderr,
            "usage: membio PORT SERVER-PORT CERTIFICATE [--tls VERSION] [--shared-thread] [--upstream-tls] "
            "[--tiny] [--keylog FILE] [--seccomp]\n");
    exit(2);
}

int main(int count, char **arguments) {
    if (count < 4)
        usage();
    const char *certificate = arguments[3];
    int version = 0;
    bool seccomp = false;
    for (int i = 4; i < count; i++) {
        const char *option = arguments[i], *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(option, "--shared-thread"))
            shared_thread = true;
        else if (!strcmp(option, "--upstream-tls"))
            upstream_tls = true;
        else if (!strcmp(option, "--tiny"))
            tiny = true;
        else if (!strcmp(option, "--seccomp"))
            seccomp = true;
        else if (!strcmp(option, "--tls") && (!strcmp(value, "1.2") || !strcmp(value, "1.3"))) {
            version = strcmp(value, "1.2") ? TLS1_3_VERSION : TLS1_2_VERSION;
            i++;
        } else if (!strcmp(option, "--keylog") && *value) {
            if (!(keys = fopen(value, "a")))
                fail(value);
            i++;
        } else
            usage();
    }
    signal(SIGPIPE, SIG_IGN);
    server_port = atoi(arguments[2]);
    server_context = context(TLS_server_method(), version);
    client_context = context(TLS_client_method(), version);
    if (SSL_CTX_use_certificate_chain_file(server_context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(server_context, certificate, SSL_FILETYPE_PEM) != 1)
        fail(certificate);

    struct sockaddr_in address = {AF_INET, htons(atoi(arguments[1])), {htonl(INADDR_LOOPBACK)}, {}};
    socklen_t size = sizeof(address);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1024) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        fail("listen");
    if (seccomp)
        refuse_new_system_calls();
    printf("ready 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    if (shared_thread)
        serve_together(listener);
    else
        serve_by_threads(listener);
}
