// A collection and its _id index as MongoDB keeps them in WiredTiger: a table of record ids with their
// documents, and a table of _id to record id. Made with the record ids in the order of _id, or in the order of
// its hash; then walked in either order.
//
//   study make DIR (ordered|hashed) COUNT     documents of 1 to 6 KB, as in the study, and the index
//   study pass DIR CACHE_MB                   each document in the order of record ids
//   study fetch DIR CACHE_MB                  each document in the order of _id, through the index
//   study rebuild DIR                         makes the _id index again from the collection
//   study reorder DIR                         makes both again, with record ids in the order of _id
//   study disk DIR CACHE_MB                   the study's own cure: an index in the order of the disk, walked
//
// Waits for a line on standard input before it walks when WAIT is set, so that a tracer can attach first.
// Prints: what, records, bytes, seconds, sum of what was read.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wiredtiger.h>

#define COLLECTION "collection-2-1"
#define INDEX "index-3-1"

static void must(int code, const char *what) {
    if (code == 0)
        return;
    fprintf(stderr, "study: %s: %s\n", what, wiredtiger_strerror(code));
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

// splitmix64: a permutation of the numbers, so it serves for the hash of _id and for content that does not
// shrink to nothing.
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static WT_CONNECTION *open_at(const char *folder, int cache_mb) {
    char config[256];
    WT_CONNECTION *connection;
    // MongoDB opens WiredTiger so, but for the size of the cache.
    snprintf(
        config, sizeof config,
        "create,cache_size=%dM,session_max=100,eviction=(threads_min=1,threads_max=4),checkpoint=(wait=60)",
        cache_mb);
    must(wiredtiger_open(folder, NULL, config, &connection), "open");
    return connection;
}

static WT_SESSION *session_of(WT_CONNECTION *connection) {
    WT_SESSION *session;
    must(connection->open_session(connection, NULL, NULL, &session), "session");
    return session;
}

static WT_CURSOR *cursor_of(WT_SESSION *session, const char *table, const char *config) {
    char uri[64];
    WT_CURSOR *cursor;
    snprintf(uri, sizeof uri, "table:%s", table);
    must(session->open_cursor(session, uri, NULL, config, &cursor), table);
    return cursor;
}

static void create(WT_SESSION *session, const char *table, const char *keys, const char *values,
                   const char *pages) {
    char uri[64], config[256];
    snprintf(uri, sizeof uri, "table:%s", table);
    snprintf(config, sizeof config, "key_format=%s,value_format=%s,allocation_size=4KB,%s", keys, values,
             pages);
    must(session->create(session, uri, config), table);
}

static void create_collection(WT_SESSION *session, const char *name) {
    create(session, name, "q", "u", "leaf_page_max=32KB,memory_page_max=10m,split_pct=90");
}

static void create_index(WT_SESSION *session, const char *name) {
    create(session, name, "Q", "q", "leaf_page_max=16KB,prefix_compression=true,split_pct=90");
}

static int by_hash(const void *a, const void *b) {
    uint64_t left = mix(*(const uint64_t *)a), right = mix(*(const uint64_t *)b);
    return left < right ? -1 : left > right;
}

static int by_id(const void *a, const void *b) {
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

// An integer, a date, two strings, an array of one to four strings: 1 to 6 KB.
static size_t document(uint64_t id, char *to) {
    size_t size = 1024 + mix(id ^ 1) % (5 * 1024);
    uint64_t word = id;
    memcpy(to, &id, 8);
    for (size_t at = 8; at < size; at += 8) {
        word = mix(word);
        memcpy(to + at, &word, 8);
    }
    return size;
}

struct pair {
    uint64_t id;
    int64_t record;
};

// The index is made as MongoDB does it: the collection is walked, the keys are sorted, then loaded.
static void build_index(WT_SESSION *session, const char *collection, const char *name) {
    WT_CURSOR *from = cursor_of(session, collection, NULL), *to;
    struct pair *pairs = NULL;
    size_t count = 0, room = 0;
    int code;
    create_index(session, name);
    while ((code = from->next(from)) == 0) {
        WT_ITEM item;
        int64_t record;
        must(from->get_key(from, &record), "key");
        must(from->get_value(from, &item), "value");
        if (count == room) {
            room = room ? room * 2 : 1 << 16;
            pairs = realloc(pairs, room * sizeof *pairs);
            if (!pairs)
                exit(1);
        }
        memcpy(&pairs[count].id, item.data, 8);
        pairs[count++].record = record;
    }
    if (code != WT_NOTFOUND)
        must(code, "walk");
    qsort(pairs, count, sizeof *pairs, by_id);
    to = cursor_of(session, name, "bulk");
    for (size_t at = 0; at < count; at++) {
        to->set_key(to, pairs[at].id);
        to->set_value(to, pairs[at].record);
        must(to->insert(to), "insert");
    }
    must(to->close(to), "load");
    must(from->close(from), "close");
    free(pairs);
}

static void make(const char *folder, int hashed, uint64_t count) {
    mkdir(folder, 0755);
    WT_CONNECTION *connection = open_at(folder, 256);
    WT_SESSION *session = session_of(connection);
    uint64_t *ids = malloc(count * sizeof *ids);
    char buffer[8192];
    if (!ids)
        exit(1);
    for (uint64_t at = 0; at < count; at++)
        ids[at] = at;
    if (hashed)
        qsort(ids, count, sizeof *ids, by_hash);
    create_collection(session, COLLECTION);
    // By insertion, and not in bulk: pages lie as a server's do.
    WT_CURSOR *cursor = cursor_of(session, COLLECTION, NULL);
    for (uint64_t at = 0; at < count; at++) {
        WT_ITEM item = {.data = buffer, .size = document(ids[at], buffer)};
        cursor->set_key(cursor, (int64_t)at + 1);
        cursor->set_value(cursor, &item);
        must(cursor->insert(cursor), "insert");
    }
    must(cursor->close(cursor), "close");
    must(session->checkpoint(session, NULL), "checkpoint");
    build_index(session, COLLECTION, INDEX);
    must(connection->close(connection, NULL), "close");
    free(ids);
}

// Waits for a tracer, then the clock starts.
static double ready(void) {
    if (getenv("WAIT")) {
        puts("ready");
        fflush(stdout);
        if (getchar() == EOF)
            exit(1);
    }
    return now();
}

static void walk(const char *folder, int cache_mb, const char *index, const char *what) {
    WT_CONNECTION *connection = open_at(folder, cache_mb);
    WT_SESSION *session = session_of(connection);
    uint64_t records = 0, bytes = 0, sum = 0;
    WT_CURSOR *collection = cursor_of(session, COLLECTION, NULL);
    WT_CURSOR *order = index ? cursor_of(session, index, NULL) : collection;
    double start = ready();
    int code;
    while ((code = order->next(order)) == 0) {
        WT_ITEM item;
        if (index) {
            int64_t record;
            must(order->get_value(order, &record), "record id");
            collection->set_key(collection, record);
            must(collection->search(collection), "fetch");
        }
        must(collection->get_value(collection, &item), "document");
        uint64_t id, last;
        memcpy(&id, item.data, 8);
        memcpy(&last, (const char *)item.data + item.size - 8, 8);
        sum += mix(id) ^ last;
        bytes += item.size;
        records++;
    }
    if (code != WT_NOTFOUND)
        must(code, "walk");
    printf("%s %" PRIu64 " %" PRIu64 " %.3f %016" PRIx64 "\n", what, records, bytes, now() - start, sum);
    fflush(stdout);
    must(connection->close(connection, NULL), "close");
}

static void rebuild(const char *folder) {
    WT_CONNECTION *connection = open_at(folder, 256);
    WT_SESSION *session = session_of(connection);
    must(session->drop(session, "table:" INDEX, NULL), "drop");
    build_index(session, COLLECTION, INDEX);
    must(connection->close(connection, NULL), "close");
}

static void reorder(const char *folder) {
    WT_CONNECTION *connection = open_at(folder, 256);
    WT_SESSION *session = session_of(connection);
    WT_CURSOR *index = cursor_of(session, INDEX, NULL), *from = cursor_of(session, COLLECTION, NULL);
    create_collection(session, "collection-4-1");
    WT_CURSOR *to = cursor_of(session, "collection-4-1", NULL);
    int64_t next = 1;
    int code;
    while ((code = index->next(index)) == 0) {
        WT_ITEM item;
        int64_t record;
        must(index->get_value(index, &record), "record id");
        from->set_key(from, record);
        must(from->search(from), "fetch");
        must(from->get_value(from, &item), "document");
        to->set_key(to, next++);
        to->set_value(to, &item);
        must(to->insert(to), "insert");
    }
    if (code != WT_NOTFOUND)
        must(code, "walk");
    must(to->close(to), "close");
    must(from->close(from), "close");
    must(index->close(index), "close");
    must(session->drop(session, "table:" COLLECTION, NULL), "drop");
    must(session->drop(session, "table:" INDEX, NULL), "drop");
    must(session->rename(session, "table:collection-4-1", "table:" COLLECTION, NULL), "rename");
    must(session->checkpoint(session, NULL), "checkpoint");
    build_index(session, COLLECTION, INDEX);
    must(connection->close(connection, NULL), "close");
}

// A second index whose keys run as the record ids do, so that a fetch through it goes as the disk does.
static void disk(const char *folder, int cache_mb) {
    WT_CONNECTION *connection = open_at(folder, 256);
    WT_SESSION *session = session_of(connection);
    WT_CURSOR *from = cursor_of(session, COLLECTION, NULL), *to;
    int code;
    create_index(session, "index-5-1");
    to = cursor_of(session, "index-5-1", "bulk");
    while ((code = from->next(from)) == 0) {
        int64_t record;
        must(from->get_key(from, &record), "key");
        to->set_key(to, (uint64_t)record);
        to->set_value(to, record);
        must(to->insert(to), "insert");
    }
    if (code != WT_NOTFOUND)
        must(code, "walk");
    must(connection->close(connection, NULL), "close");
    if (system("sync; echo 3 > /proc/sys/vm/drop_caches") != 0)
        fprintf(stderr, "study: the page cache could not be dropped\n");
    walk(folder, cache_mb, "index-5-1", "disk");
}

int main(int count, char **words) {
    const char *what = count > 2 ? words[1] : "";
    int cache = count > 3 ? atoi(words[3]) : 0;
    if (!strcmp(what, "make") && count == 5)
        make(words[2], !strcmp(words[3], "hashed"), strtoull(words[4], NULL, 10));
    else if (!strcmp(what, "pass") && cache > 0)
        walk(words[2], cache, NULL, "pass");
    else if (!strcmp(what, "fetch") && cache > 0)
        walk(words[2], cache, INDEX, "fetch");
    else if (!strcmp(what, "rebuild"))
        rebuild(words[2]);
    else if (!strcmp(what, "reorder"))
        reorder(words[2]);
    else if (!strcmp(what, "disk") && cache > 0)
        disk(words[2], cache);
    else {
        fprintf(stderr, "usage: study make DIR ordered|hashed COUNT, or pass|fetch|disk DIR CACHE_MB, or "
                        "rebuild|reorder DIR\n");
        return 2;
    }
    return 0;
}
