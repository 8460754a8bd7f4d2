/* roce: the RoCEv2 traffic program of the end stations. `roce send` paces packets out and honours PFC, `roce recv` proves what
 * arrived, `roce replay` shows what PFC frames do to a sender. Each opens its own packet sockets in the network namespace that it was started in; nothing is shared. */
#include "roce.h"

#include <stdio.h>
#include <string.h>

static const char help[] = "Usage: roce send|recv|replay [options]; each has --help.\n";

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "send") == 0)
        return send_main(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "recv") == 0)
        return recv_main(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "replay") == 0)
        return replay_main(argc - 1, argv + 1);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return 0;
    }
    fputs(help, stderr);
    return 2;
}
