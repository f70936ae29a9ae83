#include "settings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_number(const char *text, unsigned least, unsigned most, unsigned *number)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || value < least || value > most)
        return -1;
    *number = (unsigned)value;
    return 0;
}

int settings_parse(struct settings *settings, int argc, char **argv, char *why, size_t why_size)
{
    *settings = (struct settings){
        .spool = "/var/spool/logshipper",
        .cluster = "local",
        .python = "/opt/logshipper/bin/python",
        .columns = 160,
        .rows = 50,
        .drain_secs = 3,
        .start_secs = 10,
        .stall_secs = 10,
        .max_captures = 1000,
    };
    const struct {
        const char *key;
        const char **text;
        unsigned *number;
        unsigned least, most;
    } known[] = {
        {"spool", &settings->spool, NULL, 0, 0},
        {"cluster", &settings->cluster, NULL, 0, 0},
        {"python", &settings->python, NULL, 0, 0},
        {"keeper", &settings->keeper, NULL, 0, 0},
        {"columns", NULL, &settings->columns, 20, 1000},
        {"rows", NULL, &settings->rows, 5, 1000},
        {"drain_secs", NULL, &settings->drain_secs, 0, 60},
        {"start_secs", NULL, &settings->start_secs, 1, 600},
        {"stall_secs", NULL, &settings->stall_secs, 1, 600},
        {"max_captures", NULL, &settings->max_captures, 1, 1000000},
    };
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t length = equals ? (size_t)(equals - argv[i]) : 0;
        size_t k = 0;
        while (k < sizeof known / sizeof *known &&
               (strlen(known[k].key) != length || strncmp(known[k].key, argv[i], length) != 0))
            k++;
        if (!equals || k == sizeof known / sizeof *known) {
            snprintf(why, why_size, "unknown argument `%.100s`; there are spool=, cluster=, python=, keeper=, columns=, "
                     "rows=, drain_secs=, start_secs=, stall_secs=, max_captures=", argv[i]);
            return -1;
        }
        if (known[k].number) {
            if (parse_number(equals + 1, known[k].least, known[k].most, known[k].number)) {
                snprintf(why, why_size, "%s takes a number from %u to %u, not `%.100s`", known[k].key, known[k].least,
                         known[k].most, equals + 1);
                return -1;
            }
        } else {
            *known[k].text = equals + 1;
        }
    }
    if (settings->spool[0] != '/' || settings->python[0] != '/' || (settings->keeper && settings->keeper[0] != '/')) {
        snprintf(why, why_size, "spool=, python= and keeper= take absolute paths");
        return -1;
    }
    return 0;
}
