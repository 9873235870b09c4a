/*
 * openapi.c - /openapi.json, made from the operation table
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/rest/rest.h"
#include "base/mem.h"
#include "json/json.h"

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key,
                              value); /* fails only without memory, which ends the process */
}

static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *type_of(const char *name)
{
    json_t *o = json_object();

    set(o, "type", json_string(name));
    return o;
}

static json_t *choices(const char *text)
{
    json_t *list = json_array();

    for (const char *p = text; *p != '\0';) {
        size_t n = strcspn(p, "|");
        (void)json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] == '|');
    }
    return list;
}

static void set_bounds(json_t *o, const struct field *f, const char *min, const char *max)
{
    if (f->min == 0 && f->max == 0)
        return;
    set(o, (f->flags & FIELD_OPEN_MIN) != 0 ? "exclusiveMinimum" : min, number(f->min));
    set(o, max, number(f->max));
}

static json_t *tty_schema(void)
{
    json_t *rows = type_of("integer"), *object = type_of("object"), *properties = json_object(),
           *any = json_array(), *o = json_object();

    set(rows, "minimum", json_integer(1));
    set(rows, "maximum", json_integer(65535));
    set(properties, "rows", rows);
    set(properties, "cols", json_deep_copy(rows));
    set(object, "properties", properties);
    set(object, "required", json_pack("[s,s]", "rows", "cols"));
    (void)json_array_append_new(any, type_of("boolean"));
    (void)json_array_append_new(any, object);
    set(o, "oneOf", any);
    return o;
}

static json_t *schema_of(const struct field *f)
{
    json_t *o = json_object();

    switch (f->type) {
    case FIELD_STRING:
        set(o, "type", json_string("string"));
        set_bounds(o, f, "minLength", "maxLength");
        if ((f->flags & FIELD_NAME) != 0)
            set(o, "pattern", json_string("^[A-Za-z0-9._-]{1,64}$"));
        if ((f->flags & FIELD_ABS_PATH) != 0)
            set(o, "pattern", json_string("^/"));
        break;
    case FIELD_ENUM:
        set(o, "type", json_string("string"));
        set(o, "enum", choices(f->choices));
        break;
    case FIELD_INT:
        set(o, "type", json_string("integer"));
        set_bounds(o, f, "minimum", "maximum");
        break;
    case FIELD_NUMBER:
        set(o, "type", json_string("number"));
        set_bounds(o, f, "minimum", "maximum");
        break;
    case FIELD_BOOL:
        set(o, "type", json_string("boolean"));
        break;
    case FIELD_STRINGS:
        set(o, "type", json_string("array"));
        set(o, "items", type_of("string"));
        set_bounds(o, f, "minItems", "maxItems");
        break;
    case FIELD_STRING_MAP:
        set(o, "type", json_string("object"));
        set(o, "additionalProperties", type_of("string"));
        set_bounds(o, f, "minProperties", "maxProperties");
        break;
    case FIELD_TTY:
        json_decref(o);
        o = tty_schema();
        break;
    case FIELD_JSON:
        break;
    }
    if ((f->flags & FIELD_NULLABLE) != 0 && json_object_get(o, "type") != NULL)
        set(o, "type", json_pack("[O,s]", json_object_get(o, "type"), "null"));
    if (f->doc != NULL)
        set(o, "description", json_string(f->doc));
    return o;
}

static json_t *parameter(const char *name, size_t len, const char *in, bool is_required,
                         json_t *schema)
{
    json_t *o = json_object();

    set(o, "name", json_stringn(name, len));
    set(o, "in", json_string(in));
    set(o, "required", json_boolean(is_required));
    set(o, "schema", schema);
    return o;
}

static json_t *parameters(const struct op *op)
{
    json_t *list = json_array();

    for (const char *p = strchr(op->path, '{'); p != NULL; p = strchr(p, '{')) {
        p++;
        (void)json_array_append_new(list,
                                    parameter(p, strcspn(p, "}"), "path", true, type_of("string")));
    }
    for (size_t i = 0; i < op->nquery; i++) {
        const struct field *f = &op->query[i];
        json_t *schema = schema_of(f);
        if ((f->flags & FIELD_REPEATED) != 0) {
            json_t *array = type_of("array");
            set(array, "items", schema);
            schema = array;
        }
        (void)json_array_append_new(list, parameter(f->name, strlen(f->name), "query",
                                                    (f->flags & FIELD_REQUIRED) != 0, schema));
    }
    return list;
}

static json_t *content(const char *type, json_t *schema)
{
    json_t *media = json_object(), *o = json_object();

    set(media, "schema", schema);
    set(o, type, media);
    return o;
}

static json_t *request_body(const struct op *op)
{
    json_t *o = json_object();

    if ((op->flags & OP_RAW_BODY) != 0) {
        json_t *bytes = type_of("string");
        set(bytes, "format", json_string("binary"));
        set(o, "content", content("application/octet-stream", bytes));
        return o;
    }
    if ((op->flags & OP_OPEN_BODY) != 0) {
        set(o, "content", content("application/json", type_of("object")));
        return o;
    }
    json_t *schema = type_of("object"), *properties = json_object(), *required = json_array();
    for (size_t i = 0; i < op->nbody; i++) {
        set(properties, op->body[i].name, schema_of(&op->body[i]));
        if ((op->body[i].flags & FIELD_REQUIRED) != 0)
            (void)json_array_append_new(required, json_string(op->body[i].name));
    }
    set(schema, "properties", properties);
    set(schema, "additionalProperties", json_false());
    if (json_array_size(required) > 0) {
        set(o, "required", json_true());
        set(schema, "required", required);
    } else {
        json_decref(required);
    }
    set(o, "content", content("application/json", schema));
    return o;
}

static json_t *responses(const struct op *op)
{
    json_t *all = json_object(), *good = json_object(), *bad = json_object(), *ref = json_object();
    char status[8];

    set(good, "description", json_string(op->summary));
    if (op->success != 204)
        set(good, "content",
            (op->flags & OP_STREAM) != 0 ? content("application/octet-stream", json_object())
                                         : content("application/json", type_of("object")));
    (void)snprintf(status, sizeof status, "%d", op->success);
    set(all, status, good);
    set(ref, "$ref", json_string("#/components/schemas/Problem"));
    set(bad, "description", json_string("the call failed"));
    set(bad, "content", content("application/problem+json", ref));
    set(all, "default", bad);
    return all;
}

static json_t *operation(const struct op *op)
{
    json_t *o = json_object();
    const char *dot = strchr(op->id, '.');

    set(o, "operationId", json_string(op->id));
    set(o, "summary", json_string(op->summary));
    set(o, "tags",
        json_pack("[s%]", op->id, dot != NULL ? (size_t)(dot - op->id) : strlen(op->id)));
    if ((op->flags & OP_NO_AUTH) != 0)
        set(o, "security", json_array());
    if (op->scope != NULL)
        set(o, "x-scope", json_string(op->scope));
    json_t *list = parameters(op);
    if (json_array_size(list) > 0)
        set(o, "parameters", list);
    else
        json_decref(list);
    if (op->nbody > 0 || (op->flags & (OP_RAW_BODY | OP_OPEN_BODY)) != 0)
        set(o, "requestBody", request_body(op));
    set(o, "responses", responses(op));
    return o;
}

static json_t *problem_schema(void)
{
    json_t *codes = json_array();

    for (int i = ERR_OK + 1; i < ERR_MAX_; i++)
        (void)json_array_append_new(codes, json_string(err_row((enum err_code)i)->name));
    return json_pack(
        "{s:s, s:[s], s:{s:{s:s, s:[s,s,s,s,s,s],"
        "s:{s:{s:s, s:o}, s:{s:s}, s:{s:[s,s]}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}}}",
        "type", "object", "required", "error", "properties", "error", "type", "object", "required",
        "code", "message", "param", "hint", "retryable", "request_id", "properties", "code", "type",
        "string", "enum", codes, "message", "type", "string", "param", "type", "string", "null",
        "hint", "type", "string", "retryable", "type", "boolean", "request_id", "type", "string",
        "errno", "type", "integer");
}

/* The methods of a path in lower case, as OpenAPI writes them. */
static void set_operation(json_t *paths, const struct op *op)
{
    char method[16];
    size_t n = 0;

    for (; op->method[n] != '\0' && n < sizeof method - 1; n++)
        method[n] = (char)(op->method[n] | 0x20);
    method[n] = '\0';
    json_t *path = json_object_get(paths, op->path);
    if (path == NULL) {
        path = json_object();
        set(paths, op->path, path);
    }
    set(path, method, operation(op));
}

json_t *rest_openapi(void)
{
    json_t *paths = json_object();

    for (size_t i = 0; rest_op(i) != NULL; i++)
        set_operation(paths, rest_op(i));
    return json_pack(
        "{s:s, s:{s:s, s:s, s:s}, s:[{s:[]}], s:o, s:{s:{s:{s:s, s:s, s:s}}, s:{s:o}}}", "openapi",
        "3.1.0", "info", "title", "Quicksand", "version", QS_VERSION, "description",
        "Sandboxes for untrusted code. The rules common to all calls stand in docs/api/rest.md.",
        "security", "token", "paths", paths, "components", "securitySchemes", "token", "type",
        "http", "scheme", "bearer", "description", "<token id>.<token secret>", "schemas",
        "Problem", problem_schema());
}
