// Issues a known list of accesses to a file of 16 MiB, and prints it: kind, offset, asked, given. Then reads
// 4 MiB of it from a mapping at random, which is not in the list: the kernel decides which pages fault.

#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static int file;
static char list[1 << 20];
static size_t listed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void did(const char *kind, long offset, long asked, long given) {
    pthread_mutex_lock(&lock);
    listed += snprintf(list + listed, sizeof list - listed, "%s %ld %ld %ld\n", kind, offset, asked, given);
    pthread_mutex_unlock(&lock);
}

static void must(long result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static void get(long offset, long length) {
    char buffer[1 << 16];
    long got = pread(file, buffer, length, offset);
    must(got, "pread");
    did("read", offset, length, got);
}

static void *thread(void *of) {
    unsigned random = (unsigned)(size_t)of;
    for (int n = 0; n < 200; n++)
        get((long)(rand_r(&random) % 4096) * 4096, 1 + rand_r(&random) % 8192);
    return NULL;
}

static void by_ring(void) {
    struct io_uring ring;
    static char buffers[32][4096];
    must(io_uring_queue_init(32, &ring, 0), "io_uring");
    for (int round = 0; round < 8; round++) {
        for (int n = 0; n < 30; n++) {
            struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
            long offset = (long)(round * 30 + n) * 12288 % (16 << 20);
            io_uring_prep_read(entry, file, buffers[n], 4096, offset);
            io_uring_sqe_set_data64(entry, (unsigned long long)offset);
        }
        struct iovec parts[2] = {{buffers[30], 1000}, {buffers[31], 24}};
        struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
        io_uring_prep_readv(entry, file, parts, 2, 5000);
        io_uring_sqe_set_data64(entry, ~0ull);
        must(io_uring_submit_and_wait(&ring, 31), "submit");
        for (int n = 0; n < 31; n++) {
            struct io_uring_cqe *done;
            must(io_uring_wait_cqe(&ring, &done), "wait");
            must(done->res, "read");
            if (done->user_data == ~0ull)
                did("read", 5000, 1024, done->res);
            else
                did("read", (long)done->user_data, 4096, done->res);
            io_uring_cqe_seen(&ring, done);
        }
    }
    struct io_uring_cqe *done;
    io_uring_prep_fsync(io_uring_get_sqe(&ring), file, IORING_FSYNC_DATASYNC);
    must(io_uring_submit_and_wait(&ring, 1), "submit");
    must(io_uring_wait_cqe(&ring, &done), "wait");
    did("fdatasync", 0, 0, 0);
    io_uring_cqe_seen(&ring, done);
    io_uring_queue_exit(&ring);
}

int main(int count, char **words) {
    if (count != 2)
        return 2;
    file = open(words[1], O_RDWR);
    must(file, words[1]);
    if (getenv("WAIT")) {
        puts("ready");
        fflush(stdout);
        if (getchar() == EOF)
            return 1;
    }
    for (long n = 0; n < 100; n++)
        get(n * 4096, 4096);
    for (long n = 0; n < 100; n++)
        get(n * 65536, 512);
    for (long n = 100; n-- > 0;)
        get(n * 32768, 4096);
    char buffer[4096] = {1};
    struct iovec parts[3] = {{buffer, 10}, {buffer + 10, 20}, {buffer + 30, 30}};
    did("read", 777, 60, preadv(file, parts, 3, 777));
    did("read", 778, 60, preadv2(file, parts, 3, 778, 0));
    did("write", 4 << 20, 60, pwritev(file, parts, 3, 4 << 20));
    did("write", 5 << 20, 4096, pwrite(file, buffer, 4096, 5 << 20));
    must(lseek(file, 9999, SEEK_SET), "seek");
    did("read", 9999, 100, read(file, buffer, 100));
    did("read", 10099, 60, readv(file, parts, 3));
    did("write", 10159, 5, write(file, buffer, 5));
    did("read", 16 << 20, 4096, pread(file, buffer, 4096, 16 << 20));
    did("fsync", 0, 0, fsync(file));
    did("fdatasync", 0, 0, fdatasync(file));
    pthread_t threads[4];
    for (size_t n = 0; n < 4; n++)
        must(-pthread_create(&threads[n], NULL, thread, (void *)(n + 1)), "thread");
    for (size_t n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    by_ring();
    volatile unsigned char *map = mmap(NULL, 4 << 20, PROT_READ, MAP_SHARED, file, 8 << 20);
    unsigned random = 7, sum = 0;
    if (map == MAP_FAILED)
        return 1;
    posix_fadvise(file, 8 << 20, 4 << 20, POSIX_FADV_DONTNEED);
    for (int n = 0; n < 500; n++)
        sum += map[rand_r(&random) % (4 << 20)];
    fwrite(list, 1, listed, stdout);
    fprintf(stderr, "%u\n", sum);
    return 0;
}
