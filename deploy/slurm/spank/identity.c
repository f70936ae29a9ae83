#include "identity.h"

#include <slurm/slurm.h> /* numbers of special steps only */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *bytes;
    size_t size, used;
    int full;
};

static void put(struct text *text, const char *bytes, size_t size)
{
    if (text->full || size > text->size - text->used) {
        text->full = 1;
        return;
    }
    memcpy(text->bytes + text->used, bytes, size);
    text->used += size;
}

__attribute__((format(printf, 2, 3))) static void put_format(struct text *text, const char *format, ...)
{
    char piece[64];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof piece)
        text->full = 1;
    else
        put(text, piece, (size_t)size);
}

/* Bytes of the UTF-8 character at `at`, 0 where there is none (RFC 3629: shortest form, no
 * surrogates). */
static size_t character(const unsigned char *at)
{
    static const struct {
        unsigned char first_least, first_most, second_least, second_most, size;
    } forms[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (at[0] < forms[i].first_least || at[0] > forms[i].first_most)
            continue;
        if (forms[i].size > 1 && (at[1] < forms[i].second_least || at[1] > forms[i].second_most))
            return 0;
        for (size_t k = 2; k < forms[i].size; k++)
            if ((at[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].size;
    }
    return 0;
}

static void put_string(struct text *text, const char *key, const char *value)
{
    put_format(text, ",\"%s\":\"", key);
    const unsigned char *at = (const unsigned char *)value;
    while (*at) {
        size_t size = character(at);
        int control = *at < 0x20 || *at == 0x7f || (*at == 0xc2 && size == 2 && at[1] < 0xa0);
        if (!size || control)
            put(text, "\xef\xbf\xbd", 3);
        else if (*at == '"' || *at == '\\')
            put_format(text, "\\%c", *at);
        else
            put(text, (const char *)at, size);
        at += size ? size : 1;
    }
    put(text, "\"", 1);
}

void step_name(char *name, size_t size, uint32_t step_id)
{
    if (step_id == SLURM_BATCH_SCRIPT)
        snprintf(name, size, "batch");
    else if (step_id == SLURM_INTERACTIVE_STEP)
        snprintf(name, size, "interactive");
    else
        snprintf(name, size, "%u", step_id);
}

size_t identity_write(char *bytes, size_t size, const char *cluster, const char *host, const char *user,
                      const struct wire_step *step, uint32_t task, uint32_t limit_secs)
{
    char job_id[16], name[16], array[16];
    struct text text = {.bytes = bytes, .size = size};
    snprintf(job_id, sizeof job_id, "%u", step->job_id);
    step_name(name, sizeof name, step->step_id);
    put_format(&text, "{\"version\":1,\"attempt\":%u,\"task\":%u,\"uid\":%u", step->restarts + 1, task, step->uid);
    if (step->nodes)
        put_format(&text, ",\"nodes\":%u", step->nodes);
    if (limit_secs)
        put_format(&text, ",\"limit_secs\":%u", limit_secs);
    put_string(&text, "cluster", cluster);
    put_string(&text, "host", host);
    put_string(&text, "job_id", job_id);
    put_string(&text, "step", name);
    put_string(&text, "name", step->name[0] ? step->name : job_id);
    put_string(&text, "user", user);
    put_string(&text, "account", step->account);
    put_string(&text, "partition", step->partition);
    if (step->array_job_id) { /* 0 or NO_VAL: not of an array */
        snprintf(array, sizeof array, "%u", step->array_job_id);
        put_string(&text, "array_job_id", array);
        snprintf(array, sizeof array, "%u", step->array_task_id);
        put_string(&text, "array_task_id", array);
    }
    put(&text, "}\n", 2);
    return text.full ? 0 : text.used;
}
