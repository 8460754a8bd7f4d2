/* `roce replay`: MAC control frames through the PFC gates in virtual time, to see (and test) what a sender would do.
 *
 * Lines "TIME_NS HEX" on stdin, times not decreasing; HEX "-" only lets time pass. After each line one JSON object. */
#include "pfc.h"
#include "roce.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "Usage: roce replay --link-rate RATE [--honour-pause] [--enabled MASK] < LINES\n";

static int nibble(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

int replay_main(int argc, char **argv)
{
    static const struct option options[] = {
        {"link-rate", required_argument, NULL, 'r'}, {"honour-pause", no_argument, NULL, 'p'},
        {"enabled", required_argument, NULL, 'e'},   {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct pfc_gates gates = {.enabled = 0xff};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (option) {
        case 'r': gates.link_rate_bps = parse_rate_bps("--link-rate", optarg); break;
        case 'p': gates.pause_enabled = true; break;
        case 'e': gates.enabled = (uint8_t)parse_number("--enabled", optarg, 0, 255); break;
        case 'h': fputs(help, stdout); return 0;
        default: fputs(help, stderr); return 2;
        }
    }
    if (!gates.link_rate_bps)
        wrong_use("--link-rate is required");
    char *line = NULL;
    size_t room = 0;
    uint64_t last_ns = 0;
    while (getline(&line, &room, stdin) > 0) {
        char *hex = NULL;
        uint64_t now = strtoull(line, &hex, 10);
        hex += strspn(hex, " ");
        size_t digits = strcspn(hex, "\r\n"), length = 0;
        if (now < last_ns)
            wrong_use("time %llu is before the last one, %llu", (unsigned long long)now, (unsigned long long)last_ns);
        last_ns = now;
        uint8_t *frame = malloc(digits / 2 + 1); /* exactly as long as the frame, so that a sanitizer sees a read past it */
        if (!frame)
            failed("out of memory");
        if (strncmp(hex, "-", 1) != 0) {
            for (; 2 * length + 1 < digits; length++) {
                int high = nibble(hex[2 * length]), low = nibble(hex[2 * length + 1]);
                if (high < 0 || low < 0)
                    wrong_use("'%.20s' is not hexadecimal", hex);
                frame[length] = (uint8_t)(high << 4 | low);
            }
            uint8_t *exact = realloc(frame, length ? length : 1);
            frame = exact ? exact : frame;
            pfc_receive(&gates, frame, length, now);
        }
        free(frame);
        pfc_expire(&gates, now);
        printf("{\"event\":\"state\",\"time_ns\":%llu,\"until_ns\":[", (unsigned long long)now);
        for (int p = 0; p < 8; p++)
            printf("%s%llu", p ? "," : "", gates.gate[p].paused ? (unsigned long long)gates.gate[p].until_ns : 0);
        fputs("],", stdout);
        pfc_print(stdout, &gates);
        puts("}");
    }
    free(line);
    return 0;
}
