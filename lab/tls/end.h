// One end of a connection with or without TLS, which uses OpenSSL as mongod does: through a pair of memory BIOs.
#pragma once

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// The sizes are mongod's.
enum { BUFFER = 17 * 1024, RECORD = 16384, TINY = 64 };

// One end of a connection; `ssl` is null if it is not encrypted.
struct end {
    int fd;
    SSL *ssl;
    BIO *network;
    char received[BUFFER];
    size_t at, until;     // what of `received` OpenSSL has not taken yet
    bool waits_elsewhere; // somebody else polls the sockets
    bool is_tiny;         // the first bytes of what it writes go in records of one byte
};

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    ERR_print_errors_fp(stderr);
    exit(1);
}

// ---- Sockets ----

static bool send_all(int fd, const char *bytes, size_t length) {
    while (length) {
        struct iovec part = {(void *)bytes, length};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        bytes += sent;
        length -= sent;
    }
    return true;
}

static ssize_t receive(int fd, void *bytes, size_t most) {
    struct iovec part = {bytes, most};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t received;
    do
        received = recvmsg(fd, &header, 0);
    while (received < 0 && errno == EINTR);
    return received;
}

// ---- TLS over memory BIOs ----

// Sends what OpenSSL has written.
static bool flush(struct end *end) {
    char bytes[BUFFER];
    int length;
    while ((length = BIO_read(end->network, bytes, sizeof(bytes))) > 0)
        if (!send_all(end->fd, bytes, length))
            return false;
    return true;
}

static bool fill(struct end *end) {
    ssize_t received = receive(end->fd, end->received, BUFFER);
    end->at = 0;
    end->until = received > 0 ? received : 0;
    return received > 0;
}

// Gives OpenSSL what it wants to read.
static bool feed(struct end *end) {
    if (end->at == end->until && !fill(end))
        return false;
    int taken = BIO_write(end->network, end->received + end->at, end->until - end->at);
    if (taken <= 0)
        return false;
    end->at += taken;
    return true;
}

static bool shake_hands(struct end *end) {
    for (;;) {
        int done = SSL_do_handshake(end->ssl), error = SSL_get_error(end->ssl, done);
        if (!flush(end))
            return false;
        if (done == 1)
            return true;
        if (error == SSL_ERROR_WANT_READ ? !feed(end) : error != SSL_ERROR_WANT_WRITE)
            return false;
    }
}

static bool encrypt(struct end *end, SSL_CTX *context, bool accepts) {
    BIO *internal;
    end->ssl = SSL_new(context);
    if (!end->ssl || !BIO_new_bio_pair(&internal, 0, &end->network, 0))
        return false;
    SSL_set_bio(end->ssl, internal, internal);
    if (accepts)
        SSL_set_accept_state(end->ssl);
    else
        SSL_set_connect_state(end->ssl);
    return shake_hands(end);
}

enum { LATER = -2 };

// Reads at most so many bytes. Returns 0 at the end, or LATER if they have not come.
static ssize_t read_some(struct end *end, char *bytes, size_t most) {
    if (!end->ssl)
        return receive(end->fd, bytes, most);
    for (;;) {
        int got = SSL_read(end->ssl, bytes, most);
        if (got > 0)
            return got;
        int error = SSL_get_error(end->ssl, got);
        if (!flush(end) || (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE))
            return 0;
        if (error == SSL_ERROR_WANT_READ) {
            if (end->waits_elsewhere && end->at == end->until)
                return LATER;
            if (!feed(end))
                return 0;
        }
    }
}

static bool write_all(struct end *end, const char *bytes, size_t length) {
    if (!end->ssl)
        return send_all(end->fd, bytes, length);
    for (size_t at = 0; at < length;) {
        size_t most = end->is_tiny && at < TINY ? 1 : RECORD;
        int wrote = SSL_write(end->ssl, bytes + at, length - at < most ? length - at : most);
        int error = SSL_get_error(end->ssl, wrote);
        if (!flush(end))
            return false;
        if (wrote > 0)
            at += wrote;
        else if (error == SSL_ERROR_WANT_READ ? !feed(end) : error != SSL_ERROR_WANT_WRITE)
            return false;
    }
    return true;
}
