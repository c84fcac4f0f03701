// Threads that wait in known places, each in a function of its own below two others, for the tests of `stacks`.
// The lab's own program, no part of MongoDB. It prints the id of each thread with its name and the functions that its
// stack has to have, the innermost first, then `ready`, and ends when its standard input does.

#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t tickets;
static int pair[2];
static volatile unsigned long spins;

static struct timespec tomorrow(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += 86400;
    return now;
}

APART void in_condition(void) {
    struct timespec end = tomorrow();
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&never, &mutex, &end);
    pthread_mutex_unlock(&mutex);
}
APART void in_semaphore(void) {
    struct timespec end = tomorrow();
    sem_timedwait(&tickets, &end);
    spins++;
}
APART void in_mutex(void) {
    pthread_mutex_lock(&held);
    spins++;
}
APART void in_read(void) {
    char byte;
    spins += read(pair[0], &byte, 1);
}
APART void in_recvmsg(void) {
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    spins += recvmsg(pair[0], &message, 0);
}
APART void in_poll(void) {
    struct pollfd wanted = {pair[0], POLLIN, 0};
    spins += poll(&wanted, 1, 86400000);
}
APART void in_select(void) {
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(pair[0], &wanted);
    spins += select(pair[0] + 1, &wanted, NULL, NULL, NULL);
}
APART void in_nanosleep(void) {
    struct timespec day = {86400, 0};
    nanosleep(&day, NULL);
    spins++;
}
APART void on_processor(void) {
    for (;;)
        spins++;
}

typedef void (*wait_function)(void);

// Neither call is in tail position, so both functions stay on the stack.
APART void below(wait_function wait) {
    wait();
    spins++;
}
APART void outermost(wait_function wait) {
    below(wait);
    spins++;
}

static const struct {
    const char *name;
    wait_function wait;
} WAITS[] = {
    {"condition", in_condition}, {"semaphore", in_semaphore}, {"mutex", in_mutex},
    {"read", in_read},           {"recvmsg", in_recvmsg},     {"poll", in_poll},
    {"select", in_select},       {"nanosleep", in_nanosleep}, {"processor", on_processor},
};

static void *thread(void *at) {
    int i = (int)(long)at;
    pthread_setname_np(pthread_self(), WAITS[i].name);
    printf("%d %s\n", (int)syscall(SYS_gettid), WAITS[i].name);
    fflush(stdout);
    outermost(WAITS[i].wait);
    return NULL;
}

int main(int count, char **arguments) {
    int spinning = count < 2 || arguments[1][0] != 'p'; // `parked`: no thread runs
    pthread_mutex_lock(&held);
    sem_init(&tickets, 0, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    for (long i = 0; i < (long)(sizeof(WAITS) / sizeof(*WAITS)) - !spinning; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, (void *)i))
            return 1;
    }
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
