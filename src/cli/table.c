/*
 * table.c - printing columns
 */
#include "cli/table.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

void table_print(const json_t *rows)
{
    size_t width[TABLE_COLUMNS] = {0}, i, j;
    const json_t *row, *cell;

    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
        json_array_foreach((json_t *)(uintptr_t)row, j, cell)
            if (j < TABLE_COLUMNS && json_string_length(cell) > width[j])
                width[j] = json_string_length(cell);
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        size_t n = json_array_size(row);
        json_array_foreach((json_t *)(uintptr_t)row, j, cell) {
            for (const char *p = json_string_value(cell); *p != '\0'; p++)
                (void)putchar((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
            bool more = false;          /* nothing is put behind the last text of a line */
            for (size_t k = j + 1; k < n; k++)
                more = more || json_string_length(json_array_get(row, k)) > 0;
            if (more)
                printf("%*s", (int)(width[j] - json_string_length(cell) + 2), "");
        }
        (void)putchar('\n');
    }
}

char *table_age(const json_t *at)
{
    long long s = clock_wall_ms() / 1000 - (long long)json_number_value(at);

    if (!json_is_number(at))
        return mem_strdup("-");
    if (s < 0)
        s = 0;
    if (s < 120)
        return mem_printf("%llds", s);
    if (s < 7200)
        return mem_printf("%lldm", s / 60);
    if (s < 172800)
        return mem_printf("%lldh", s / 3600);
    return mem_printf("%lldd", s / 86400);
}

json_t *table_join(const json_t *texts)
{
    auto_buf b = {0};
    const json_t *text;
    size_t i;

    buf_init(&b, 64 * 1024);
    json_array_foreach((json_t *)(uintptr_t)texts, i, text)
        (void)buf_addf(&b, "%s%s", i > 0 ? "," : "", json_string_value(text));
    return json_string(buf_str(&b));
}

const char *table_text(const json_t *v)
{
    const char *text = json_string_value(json_is_array(v) ? json_array_get(v, 0) : v);

    return text != NULL ? text : "";
}

void table_time(const json_t *at, char *out, size_t size)
{
    double when = json_number_value(at);
    time_t s = (time_t)when;
    struct tm tm;
    char text[32];

    (void)gmtime_r(&s, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    (void)snprintf(out, size, "%s.%03d", text, (int)((when - (double)s) * 1000 + 0.5) % 1000);
}

void table_json_line(const json_t *v)
{
    auto_free char *text = json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(16));

    printf("%s\n", text != NULL ? text : "null");
}

void table_json(const json_t *v)
{
    /* As many digits as the server sends: 17 would show how numbers are stored, 0.1 as 0.10000000000000001. */
    auto_free char *text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(16));

    printf("%s\n", text != NULL ? text : "null");
}
