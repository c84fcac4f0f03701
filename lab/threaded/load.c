// A client for the server in `server.c`. Each connection sends one request again and again, waiting for the reply each
// time. Every tenth of a second it prints the number of replies so far:
//
//   load PORT CONNECTIONS RATE SECONDS [tls] <REQUEST   RATE: requests a second of all connections; 0: as fast as possible
//   1795381059419408255 1234                         nanoseconds of the monotonic clock, replies

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, LONGEST = 1 << 20 };

static char request[LONGEST];
static size_t request_length;
static uint16_t port;
static uint64_t pause_ns;                  // between two requests of a connection
static SSL_CTX *context;                   // null without TLS
static volatile uint64_t replies[MOST][8]; // one cache line each

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void until(uint64_t ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

// One end of a connection; `ssl` is null without TLS.
struct end {
    int socket;
    SSL *ssl;
};

static void receive(struct end *end, char *to, size_t length) {
    while (length) {
        ssize_t got = end->ssl ? SSL_read(end->ssl, to, length) : recv(end->socket, to, length, 0);
        must(got > 0, "recv");
        length -= got;
        to += got;
    }
}

static void send_all(struct end *end, const char *from, size_t length) {
    ssize_t sent =
        end->ssl ? SSL_write(end->ssl, from, length) : send(end->socket, from, length, MSG_NOSIGNAL);
    must(sent == (ssize_t)length, "send");
}

static void *ask(void *argument) {
    size_t number = (size_t)argument;
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(port)};
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connection = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    must(!connect(connection, (struct sockaddr *)&server, sizeof(server)), "connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct end end = {.socket = connection, .ssl = context ? SSL_new(context) : NULL};
    if (end.ssl) {
        SSL_set_fd(end.ssl, connection);
        must(SSL_connect(end.ssl) == 1, "TLS");
    }
    char *message = malloc(LONGEST), *reply = malloc(LONGEST);
    memcpy(message, request, request_length);
    uint64_t next = now() + pause_ns * (number % 16) / 16;
    for (uint32_t id = 1;; id++) {
        if (pause_ns) {
            until(next);
            next += pause_ns;
        }
        memcpy(message + 4, &id, 4);
        send_all(&end, message, request_length);
        uint32_t length;
        receive(&end, reply, 16);
        memcpy(&length, reply, 4);
        must(length > 16 && length <= LONGEST, "reply");
        receive(&end, reply + 16, length - 16);
        replies[number][0]++;
    }
    return NULL;
}

int main(int count, char **arguments) {
    bool tls = count == 6 && !strcmp(arguments[5], "tls");
    must(count == 5 || tls, "load PORT CONNECTIONS RATE SECONDS [tls] <REQUEST");
    context = tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    signal(SIGPIPE, SIG_IGN);
    port = atoi(arguments[1]);
    size_t connections = atoi(arguments[2]);
    double rate = atof(arguments[3]), seconds = atof(arguments[4]);
    must(connections >= 1 && connections <= MOST, "CONNECTIONS");
    pause_ns = rate > 0 ? (uint64_t)(1e9 * connections / rate) : 0;
    request_length = fread(request, 1, sizeof(request), stdin);
    for (size_t i = 0; i < connections; i++) {
        pthread_t thread;
        must(!pthread_create(&thread, NULL, ask, (void *)i), "pthread_create");
    }
    uint64_t begun = now();
    for (uint64_t at = begun; at < begun + seconds * 1e9; at += 100000000) {
        until(at);
        uint64_t sum = 0;
        for (size_t i = 0; i < connections; i++)
            sum += replies[i][0];
        printf("%llu %llu\n", (unsigned long long)now(), (unsigned long long)sum);
        fflush(stdout);
    }
    return 0;
}
