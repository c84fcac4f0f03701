// The lab's own server, which is not MongoDB: it speaks the wire protocol as mongod does, one thread for each
// connection, on top of the real WiredTiger. Its commands take a known time at a known place, so that tests can compare
// where a tracer says the time went.
//
//   server PORT DIR              serves on 127.0.0.1:PORT with a database in DIR, which it creates
//   server PORT DIR unmeasured   the same for benches: measures nothing, and `burn` takes time instead of processor
//                                time, since reading a thread's clock is a system call that no other server makes
//   server PORT DIR log FILE MS  also writes a line into FILE for each find of MS milliseconds or more, in the form of
//                                MongoDB 4.4. The figures in it are the lab's own: each record that a find reads is a
//                                document that it examines (COLLSCAN); others find theirs by an index.
//
//   server PORT DIR tls FILE     serves with TLS, as mongod does it; FILE has the certificate and its key
//   server PORT DIR cached       reads its records through the page cache, which holds them all when it begins to serve;
//                                otherwise each comes from the disk (direct I/O)
//
// `profile` sets the profiler, as in MongoDB: at level 1 (with `slowms`) and 2 finds are described in `system.profile`,
// with the same figures as in the log; a find of that collection returns the last ones, the newest first.
//
// `find` executes the elements of its filter in their order, and so does `findAndModify` with those of its query:
//
//   {burn: MS}     computes for MS milliseconds of its thread's processor time
//   {read: N}      reads N random records, each of a page of its own that is not in WiredTiger's cache
//   {hold: MS}     takes the lock and sleeps, as a long operation that holds a lock does, or until the command
//                  releaseLock ends its sleep; lockHolder returns its thread, or 0
//   {lock: 1}      takes the lock, which another connection may hold; the command fsync holds it until fsyncUnlock of the
//                  same connection
//   {sleep: MS}    sleeps
//   {fault: N}     touches N pages of a file that are not in memory
//   {send: MB}     replies with MB megabytes
//
// Its reply has in `measured` what the thread used: `cpu_ns`, `wall_ns`, `slept_ns` (in steps
// `sleep`), `faults`.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <wiredtiger.h>

#include "../tls/end.h"

enum { RECORDS = 20000, RECORD_BYTES = 4000, PAGES = 32768, PAGE = 4096, LONGEST = 1 << 20 };
enum { PROFILED = 256, PROFILED_BYTES = 1024 };
enum { OP_REPLY = 1, OP_QUERY = 2004, OP_MSG = 2013 };

static WT_CONNECTION *database;
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
// The thread that holds it in a step {hold: MS}; 0 if none does.
static _Atomic pid_t lock_holder;
static volatile uint8_t *mapped;
static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t next_page;

static void must(int code, const char *what) {
    if (code) {
        fprintf(stderr, "server: %s: %s\n", what, wiredtiger_strerror(code));
        exit(1);
    }
}

// The log of slow operations; -1 without one.
static int slow_log = -1;
static double slow_ms;

static clockid_t processor_clock = CLOCK_THREAD_CPUTIME_ID;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000ull + at.tv_nsec;
}

// splitmix64.
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// ---- What a command does ----

static void burn(double ms) {
    uint64_t until = clock_ns(processor_clock) + (uint64_t)(ms * 1e6), now;
    // Reading a thread's clock takes a system call; reading the other clock does not.
    while ((now = clock_ns(processor_clock)) < until) {
        uint64_t left = clock_ns(CLOCK_MONOTONIC) + until - now;
        while (clock_ns(CLOCK_MONOTONIC) < left)
            ;
    }
}

// Returns how long that took, in nanoseconds.
static uint64_t pause_for(double ms) {
    struct timespec time = {(time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000};
    uint64_t began = clock_ns(CLOCK_MONOTONIC);
    nanosleep(&time, 0);
    return clock_ns(CLOCK_MONOTONIC) - began;
}

static void read_records(WT_SESSION *session, int count, uint64_t *seed) {
    WT_CURSOR *cursor;
    must(session->open_cursor(session, "table:collection-2-1", 0, 0, &cursor), "cursor");
    for (int i = 0; i < count; i++) {
        cursor->set_key(cursor, (int64_t)(mix(++*seed) % RECORDS + 1));
        must(cursor->search(cursor), "search");
    }
    cursor->close(cursor);
}

// Pages in an order that readahead does not guess; each is touched about once in the life of a test.
static unsigned touch_pages(int count) {
    unsigned sum = 0;
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&page_lock);
        size_t page = mix(next_page++) % PAGES;
        pthread_mutex_unlock(&page_lock);
        sum += mapped[page * PAGE];
    }
    return sum;
}

// ---- BSON ----

struct document {
    uint8_t bytes[(PROFILED + 1) * PROFILED_BYTES];
    size_t length;
    size_t open[8];
    int depth;
};

static void put(struct document *to, const void *bytes, size_t length) {
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

static void put_name(struct document *to, uint8_t type, const char *name) {
    put(to, &type, 1);
    put(to, name, strlen(name) + 1);
}

static void begin(struct document *to, uint8_t type, const char *name) {
    if (name)
        put_name(to, type, name);
    to->open[to->depth++] = to->length;
    put(to, "\0\0\0\0", 4);
}

static void end(struct document *to) {
    put(to, "", 1);
    size_t start = to->open[--to->depth];
    uint32_t length = to->length - start;
    memcpy(to->bytes + start, &length, 4);
}

static void put_int(struct document *to, const char *name, int32_t value) {
    put_name(to, 0x10, name);
    put(to, &value, 4);
}

static void put_long(struct document *to, const char *name, int64_t value) {
    put_name(to, 0x12, name);
    put(to, &value, 8);
}

static void put_date(struct document *to, const char *name, int64_t ms) {
    put_name(to, 0x09, name);
    put(to, &ms, 8);
}

static void put_bool(struct document *to, const char *name, uint8_t value) {
    put_name(to, 0x08, name);
    put(to, &value, 1);
}

static void put_text(struct document *to, const char *name, const char *value) {
    uint32_t length = strlen(value) + 1;
    put_name(to, 0x02, name);
    put(to, &length, 4);
    put(to, value, length);
}

// The bytes of a value of this type; -1 if they are not all there.
static long size_of(uint8_t type, const uint8_t *at, const uint8_t *limit) {
    int32_t length = 0;
    if (limit - at >= 4)
        memcpy(&length, at, 4);
    switch (type) {
    case 0x01:
    case 0x09:
    case 0x11:
    case 0x12:
        return 8;
    case 0x02:
        return length + 4;
    case 0x03:
    case 0x04:
        return length;
    case 0x05:
        return length + 5;
    case 0x07:
        return 12;
    case 0x08:
        return 1;
    case 0x0a:
        return 0;
    case 0x10:
        return 4;
    }
    return -1;
}

struct element {
    uint8_t type;
    const char *name;
    const uint8_t *value;
};

// Moves to the next element of a document; 0 at its end.
static int next(const uint8_t **at, const uint8_t *limit, struct element *element) {
    if (*at >= limit || !**at)
        return 0;
    element->type = *(*at)++;
    element->name = (const char *)*at;
    const uint8_t *zero = memchr(*at, 0, limit - *at);
    if (!zero)
        return 0;
    element->value = zero + 1;
    long size = size_of(element->type, element->value, limit);
    if (size < 0 || size > limit - element->value)
        return 0;
    *at = element->value + size;
    return 1;
}

static double number(const struct element *element) {
    double real;
    int32_t whole;
    int64_t wide;
    switch (element->type) {
    case 0x01:
        memcpy(&real, element->value, 8);
        return real;
    case 0x10:
        memcpy(&whole, element->value, 4);
        return whole;
    case 0x12:
        memcpy(&wide, element->value, 8);
        return wide;
    }
    return 0;
}

// ---- A connection ----

struct connection {
    struct end end;
    int number;
    WT_SESSION *session;
    uint64_t seed;
    // In the steps `sleep` of the present operation.
    uint64_t slept_ns;
};

static bool read_all(struct end *end, void *to, size_t length) {
    for (size_t got = 0; got < length;) {
        ssize_t more = read_some(end, (char *)to + got, length - got);
        if (more <= 0)
            return false;
        got += more;
    }
    return true;
}

static void greet(struct document *reply, const struct connection *connection) {
    put_bool(reply, "helloOk", 1);
    put_bool(reply, "ismaster", 1);
    put_bool(reply, "isWritablePrimary", 1);
    put_int(reply, "maxBsonObjectSize", 16777216);
    put_int(reply, "maxMessageSizeBytes", 48000000);
    put_int(reply, "maxWriteBatchSize", 100000);
    put_int(reply, "connectionId", connection->number);
    put_int(reply, "minWireVersion", 0);
    put_int(reply, "maxWireVersion", 9);
}

// Its signal, SIGUSR1, ends the sleep of a thread.
static void awake(int number) {
    (void)number;
}

// A function of its own: its name on a stack shows what the thread waits for.
__attribute__((noinline)) static void take_the_lock(void) {
    must(pthread_mutex_lock(&the_lock), "pthread_mutex_lock");
}

// Executes the filter of a find; returns the megabytes to reply with.
static double execute(struct connection *connection, const uint8_t *filter, uint32_t length) {
    const uint8_t *at = filter + 4, *limit = filter + length - 1;
    struct element step;
    double megabytes = 0;
    while (next(&at, limit, &step)) {
        double much = number(&step);
        if (!strcmp(step.name, "burn"))
            burn(much);
        else if (!strcmp(step.name, "sleep"))
            connection->slept_ns += pause_for(much);
        else if (!strcmp(step.name, "read"))
            read_records(connection->session, (int)much, &connection->seed);
        else if (!strcmp(step.name, "fault"))
            touch_pages((int)much);
        else if (!strcmp(step.name, "send"))
            megabytes = much;
        else if (!strcmp(step.name, "hold") || !strcmp(step.name, "lock")) {
            take_the_lock();
            if (step.name[0] == 'h') {
                lock_holder = gettid();
                pause_for(much);
                lock_holder = 0;
            }
            pthread_mutex_unlock(&the_lock);
        }
    }
    return megabytes;
}

// The steps of a filter as JSON; returns the records that it reads.
static double describe(const uint8_t *filter, uint32_t length, char *text, size_t room) {
    const uint8_t *at = filter + 4;
    struct element step;
    double records = 0;
    size_t used = 0;
    while (next(&at, filter + length - 1, &step) && used + strlen(step.name) + 40 < room) {
        used +=
            snprintf(text + used, room - used, "%s\"%s\":%.15g", used ? "," : "", step.name, number(&step));
        if (!strcmp(step.name, "read"))
            records += number(&step);
    }
    return records;
}

// Writes a line as mongod 4.4 does, before the reply is sent.
static void log_slow(const struct connection *connection, const uint8_t *filter, uint32_t length,
                     uint64_t wall) {
    char steps[512] = "", line[2048], time[32];
    if (slow_log < 0 || wall / 1e6 < slow_ms)
        return;
    double records = describe(filter, length, steps, sizeof(steps));
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    int written = snprintf(
        line, sizeof(line),
        "{\"t\":{\"$date\":\"%s.%03ld+00:00\"},\"s\":\"I\",  \"c\":\"COMMAND\",  \"id\":51803,   "
        "\"ctx\":\"conn%d\",\"msg\":\"Slow query\",\"attr\":{\"type\":\"command\",\"ns\":\"lab.orders\","
        "\"appName\":\"lab-why\",\"command\":{\"find\":\"orders\",\"filter\":{%s},\"$db\":\"lab\"},"
        "\"planSummary\":\"%s\",\"keysExamined\":%d,\"docsExamined\":%.0f,\"cursorExhausted\":true,"
        "\"numYields\":%.0f,\"nreturned\":1,\"reslen\":150,\"locks\":{},"
        "\"storage\":{\"data\":{\"bytesRead\":%.0f,\"timeReadingMicros\":%" PRIu64 "}},"
        "\"protocol\":\"op_msg\",\"durationMillis\":%" PRIu64 "}}\n",
        time, now.tv_nsec / 1000000, connection->number, steps, records ? "COLLSCAN" : "IXSCAN { n: 1 }",
        records ? 0 : 1, records ? records : 1, records / 100, records * PAGE, wall / 1000, wall / 1000000);
    if (write(slow_log, line, written) != written)
        exit(1);
}

// ---- The profiler ----

static pthread_mutex_t profile_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int profile_level;
static _Atomic int profile_slow_ms = 100;
static uint64_t profiled_count;
static struct {
    uint32_t length;
    uint8_t bytes[PROFILED_BYTES];
} profiled[PROFILED];

// Describes a find as mongod 4.4 does, before the reply is sent.
static void profile(const uint8_t *filter, uint32_t length, uint64_t wall) {
    char steps[512] = "";
    if (!profile_level || (profile_level == 1 && wall / 1e6 < profile_slow_ms) || length > PROFILED_BYTES / 2)
        return;
    double records = describe(filter, length, steps, sizeof(steps));
    struct document document;
    document.length = document.depth = 0;
    begin(&document, 0, 0);
    put_text(&document, "op", "query");
    put_text(&document, "ns", "lab.orders");
    begin(&document, 0x03, "command");
    put_text(&document, "find", "orders");
    put_name(&document, 0x03, "filter");
    put(&document, filter, length);
    put_text(&document, "$db", "lab");
    end(&document);
    put_int(&document, "keysExamined", records ? 0 : 1);
    put_int(&document, "docsExamined", records ? records : 1);
    put_bool(&document, "cursorExhausted", 1);
    put_int(&document, "numYield", records / 100);
    put_int(&document, "nreturned", 1);
    put_int(&document, "responseLength", 150);
    put_text(&document, "protocol", "op_msg");
    put_int(&document, "millis", wall / 1000000);
    put_text(&document, "planSummary", records ? "COLLSCAN" : "IXSCAN { n: 1 }");
    put_date(&document, "ts", clock_ns(CLOCK_REALTIME) / 1000000);
    put_text(&document, "client", "127.0.0.1");
    put_text(&document, "appName", "lab-why");
    pthread_mutex_lock(&profile_lock);
    put_long(&document, "$recordId", ++profiled_count);
    end(&document);
    memcpy(profiled[profiled_count % PROFILED].bytes, document.bytes, document.length);
    profiled[profiled_count % PROFILED].length = document.length;
    pthread_mutex_unlock(&profile_lock);
}

static void find_profiled(struct document *reply) {
    begin(reply, 0x03, "cursor");
    begin(reply, 0x04, "firstBatch");
    pthread_mutex_lock(&profile_lock);
    for (uint64_t i = 0; i < PROFILED && i < profiled_count; i++) {
        uint64_t at = (profiled_count - i) % PROFILED;
        char number[24];
        snprintf(number, sizeof(number), "%" PRIu64, i);
        put_name(reply, 0x03, number);
        put(reply, profiled[at].bytes, profiled[at].length);
    }
    pthread_mutex_unlock(&profile_lock);
    end(reply);
    put_long(reply, "id", 0);
    put_text(reply, "ns", "lab.system.profile");
    end(reply);
}

// Level -1 only asks.
static void set_profiler(struct document *reply, const uint8_t *command, uint32_t length) {
    const uint8_t *at = command + 4;
    struct element element;
    put_int(reply, "was", profile_level);
    put_int(reply, "slowms", profile_slow_ms);
    while (next(&at, command + length - 1, &element)) {
        if (!strcmp(element.name, "profile") && number(&element) >= 0)
            profile_level = number(&element);
        else if (!strcmp(element.name, "slowms"))
            profile_slow_ms = number(&element);
    }
}

static void put_status(struct document *reply) {
    put_int(reply, "pid", getpid());
    put_date(reply, "localTime", clock_ns(CLOCK_REALTIME) / 1000000);
}

static void list_databases(struct document *reply) {
    begin(reply, 0x04, "databases");
    begin(reply, 0x03, "0");
    put_text(reply, "name", "lab");
    end(reply);
    end(reply);
}

static void find(struct document *reply, struct connection *connection, const uint8_t *command,
                 uint32_t length, double *megabytes) {
    struct rusage before = {}, after = {};
    int is_measured = processor_clock == CLOCK_THREAD_CPUTIME_ID;
    uint64_t cpu = clock_ns(processor_clock), wall = clock_ns(CLOCK_MONOTONIC);
    if (is_measured)
        getrusage(RUSAGE_THREAD, &before);
    connection->slept_ns = 0;
    const uint8_t *at = command + 4, *filter = 0;
    struct element element;
    uint32_t inner;
    while (next(&at, command + length - 1, &element)) {
        if (element.type == 0x03 && (!strcmp(element.name, "filter") || !strcmp(element.name, "query"))) {
            filter = element.value;
            memcpy(&inner, filter, 4);
            *megabytes = execute(connection, filter, inner);
        }
    }
    cpu = clock_ns(processor_clock) - cpu;
    wall = clock_ns(CLOCK_MONOTONIC) - wall;
    if (is_measured)
        getrusage(RUSAGE_THREAD, &after);
    if (filter) {
        log_slow(connection, filter, inner, wall);
        profile(filter, inner, wall);
    }
    begin(reply, 0x03, "cursor");
    begin(reply, 0x04, "firstBatch");
    begin(reply, 0x03, "0");
    put_long(reply, "cpu_ns", cpu);
    put_long(reply, "wall_ns", wall);
    put_long(reply, "slept_ns", connection->slept_ns);
    put_long(reply, "faults", after.ru_majflt - before.ru_majflt);
    end(reply);
    end(reply);
    put_long(reply, "id", 0);
    put_text(reply, "ns", "lab.orders");
    end(reply);
}

static int respond(struct connection *connection, const int32_t *header, const uint8_t *body,
                   uint32_t length) {
    static const char padding_name[] = "padding";
    struct document reply;
    reply.length = reply.depth = 0;
    double megabytes = 0;
    int legacy = header[3] == OP_QUERY;
    const uint8_t *command = body + 5;
    if (legacy) {
        const uint8_t *zero = memchr(body + 4, 0, length - 4);
        if (!zero)
            return 0;
        command = zero + 9;
    }
    uint32_t size;
    if (command + 5 > body + length)
        return 0;
    memcpy(&size, command, 4);
    if (size < 5 || size > (size_t)(body + length - command))
        return 0;
    const char *name = (const char *)command + 5;
    begin(&reply, 0, 0);
    const char *collection = name + strlen(name) + 5;
    if (!strcmp(name, "find") && size > 40 && !strcmp(collection, "system.profile"))
        find_profiled(&reply);
    else if (!strcmp(name, "profile"))
        set_profiler(&reply, command, size);
    else if (!strcmp(name, "listDatabases"))
        list_databases(&reply);
    else if (!strcmp(name, "serverStatus"))
        put_status(&reply);
    else if (!strcmp(name, "find") || !strcmp(name, "findAndModify"))
        find(&reply, connection, command, size, &megabytes);
    else if (!strcmp(name, "lockHolder"))
        put_int(&reply, "thread", lock_holder);
    else if (!strcmp(name, "releaseLock") && lock_holder)
        tgkill(getpid(), lock_holder, SIGUSR1);
    else if (!strcmp(name, "fsync"))
        take_the_lock();
    else if (!strcmp(name, "fsyncUnlock"))
        pthread_mutex_unlock(&the_lock);
    else if (legacy || !strcmp(name, "hello") || !strcasecmp(name, "isMaster"))
        greet(&reply, connection);
    double ok = 1;
    put_name(&reply, 0x01, "ok");
    put(&reply, &ok, 8);
    end(&reply);
    // A field of zero bytes makes the reply as long as was asked for.
    uint32_t padding = (uint32_t)(megabytes * 1e6);
    uint32_t extra = padding ? 1 + sizeof(padding_name) + 5 + padding : 0;
    int32_t answer[9] = {0, header[1] + 1000000, header[1], legacy ? OP_REPLY : OP_MSG};
    size_t prefix = legacy ? 36 : 21;
    answer[8] = 1;
    answer[0] = prefix + reply.length + extra;
    uint8_t *bytes = calloc(1, answer[0]);
    memcpy(bytes, answer, legacy ? 36 : 16);
    memcpy(bytes + prefix, reply.bytes, reply.length);
    if (extra) {
        uint32_t whole = reply.length + extra;
        memcpy(bytes + prefix, &whole, 4);
        uint8_t *at = bytes + prefix + reply.length - 1;
        *at++ = 0x05;
        memcpy(at, padding_name, sizeof(padding_name));
        memcpy(at + sizeof(padding_name), &padding, 4);
    }
    int written = write_all(&connection->end, (char *)bytes, answer[0]);
    free(bytes);
    return written;
}

// Null without TLS.
static SSL_CTX *tls;

static void *serve(void *argument) {
    struct connection *connection = argument;
    char name[16];
    snprintf(name, sizeof(name), "conn%d", connection->number);
    prctl(PR_SET_NAME, name);
    must(database->open_session(database, 0, 0, &connection->session), "session");
    int32_t header[4];
    uint8_t *body = malloc(LONGEST);
    bool is_open = !tls || encrypt(&connection->end, tls, true);
    while (is_open && read_all(&connection->end, header, 16) && header[0] > 21 && header[0] < LONGEST) {
        uint32_t length = header[0] - 16;
        if (!read_all(&connection->end, body, length) || !respond(connection, header, body, length))
            break;
    }
    connection->session->close(connection->session, 0);
    if (connection->end.ssl) {
        SSL_free(connection->end.ssl);
        BIO_free(connection->end.network);
    }
    close(connection->end.fd);
    free(body);
    free(connection);
    return 0;
}

// ---- The start ----

static void fill_database(void) {
    WT_SESSION *session;
    WT_CURSOR *cursor;
    must(database->open_session(database, 0, 0, &session), "session");
    // A record for each page, so that a read of a record is a read of the file.
    must(session->create(
             session, "table:collection-2-1",
             "key_format=q,value_format=u,leaf_page_max=4KB,leaf_value_max=64MB,allocation_size=4KB"),
         "table");
    must(session->open_cursor(session, "table:collection-2-1", 0, "bulk", &cursor), "bulk");
    uint8_t record[RECORD_BYTES];
    for (int64_t key = 1; key <= RECORDS; key++) {
        for (size_t i = 0; i < sizeof(record); i++)
            record[i] = mix(key * RECORD_BYTES + i);
        WT_ITEM value = {.data = record, .size = sizeof(record)};
        cursor->set_key(cursor, key);
        cursor->set_value(cursor, &value);
        must(cursor->insert(cursor), "insert");
    }
    cursor->close(cursor);
    session->close(session, 0);
}

static void prepare_tls(const char *certificate) {
    tls = SSL_CTX_new(TLS_server_method());
    if (!tls || SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(tls, certificate, SSL_FILETYPE_PEM) != 1)
        fail(certificate);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static void map_pages(const char *folder) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/pages", folder);
    // Written around the page cache, so that no page is in memory.
    int file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    enum { PART = 256 * PAGE };
    void *part = aligned_alloc(PAGE, PART);
    memset(part, 7, PART);
    for (int i = 0; i < PAGES * PAGE / PART; i++)
        if (write(file, part, PART) != PART)
            exit(1);
    free(part);
    mapped = mmap(0, (size_t)PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        exit(1);
    madvise((void *)mapped, (size_t)PAGES * PAGE, MADV_RANDOM);
}

int main(int count, char **arguments) {
    // Each read of a record is one of the disk.
    const char *settings = "create,cache_size=1MB,direct_io=[data],session_max=4000";
    if (count == 4 && !strcmp(arguments[3], "unmeasured"))
        processor_clock = CLOCK_MONOTONIC;
    else if (count == 4 && !strcmp(arguments[3], "cached"))
        settings = "create,cache_size=1MB,session_max=4000";
    else if (count == 5 && !strcmp(arguments[3], "tls"))
        prepare_tls(arguments[4]);
    else if (count == 6 && !strcmp(arguments[3], "log")) {
        slow_log = open(arguments[4], O_WRONLY | O_CREAT | O_APPEND, 0600);
        slow_ms = atof(arguments[5]);
        if (slow_log < 0) {
            perror("server: log");
            return 1;
        }
    } else if (count != 3) {
        fprintf(stderr, "usage: server PORT DIR [unmeasured | cached | log FILE MS | tls FILE]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, awake);
    must(wiredtiger_open(arguments[2], 0, settings, &database), "open");
    fill_database();
    must(database->close(database, 0), "close");
    must(wiredtiger_open(arguments[2], 0, settings, &database), "open");
    map_pages(arguments[2]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1]))};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 512)) {
        perror("server: listen");
        return 1;
    }
    printf("ready 127.0.0.1:%s\n", arguments[1]);
    fflush(stdout);
    for (int number = 1;; number++) {
        int peer = accept(listener, 0, 0);
        if (peer < 0)
            continue;
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct connection *connection = calloc(1, sizeof(*connection));
        connection->end.fd = peer;
        connection->number = number;
        connection->seed = number * 1000003ull;
        pthread_t thread;
        if (pthread_create(&thread, 0, serve, connection))
            close(peer);
        else
            pthread_detach(thread);
    }
}
