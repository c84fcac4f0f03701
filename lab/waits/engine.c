// Real WiredTiger with nothing to do: its own threads wait. For the tests of `stacks`. Prints `ready`, and ends when its
// standard input does.

#include <stdio.h>
#include <unistd.h>
#include <wiredtiger.h>

int main(int count, char **arguments) {
    WT_CONNECTION *connection;
    const char *settings =
        "create,log=(enabled),checkpoint=(wait=600),eviction=(threads_min=2,threads_max=2)";
    if (count != 2 || wiredtiger_open(arguments[1], NULL, settings, &connection))
        return 1;
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return connection->close(connection, NULL);
}
