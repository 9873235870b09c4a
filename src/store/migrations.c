/*
 * migrations.c - the tables
 *
 * States of a sandbox: 1 creating, 2 running, 3 stopping, 4 ended, 5 deleting (enum store_state).
 */
#include "store/migrations.h"

#include "base/mem.h"

static const char first[] =
    "CREATE TABLE apps ("
    "    name TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_us INTEGER NOT NULL"
    ") STRICT;"

    "CREATE TABLE images ("
    "    id TEXT PRIMARY KEY, created_us INTEGER NOT NULL, size_bytes INTEGER NOT NULL, files INTEGER NOT NULL,"
    "    env TEXT NOT NULL, workdir TEXT, user TEXT"
    ") STRICT;"
    "CREATE TABLE image_names ("
    "    name TEXT PRIMARY KEY, image TEXT NOT NULL REFERENCES images(id) ON DELETE CASCADE"
    ") STRICT;"
    "CREATE INDEX image_names_by_image ON image_names(image);"
    /* position 0 is the top layer */
    "CREATE TABLE image_layers ("
    "    image TEXT NOT NULL REFERENCES images(id) ON DELETE CASCADE, position INTEGER NOT NULL, layer TEXT NOT NULL,"
    "    PRIMARY KEY (image, position)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX image_layers_by_layer ON image_layers(layer);"
    /* layers that no image names and that nodes still have */
    "CREATE TABLE garbage (layer TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"

    "CREATE TABLE sandboxes ("
    "    id TEXT PRIMARY KEY, app TEXT NOT NULL, name TEXT NOT NULL, image TEXT NOT NULL, state INTEGER NOT NULL,"
    "    created_us INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    "    expires_ms INTEGER NOT NULL, idle_ms INTEGER NOT NULL, grace_ms INTEGER NOT NULL, retain_ms INTEGER NOT NULL,"
    "    spec TEXT NOT NULL, tags TEXT NOT NULL, tags_revision INTEGER NOT NULL, idem_token TEXT NOT NULL,"
    "    reason TEXT NOT NULL, code INTEGER NOT NULL, signal INTEGER NOT NULL, actor TEXT NOT NULL,"
    "    message TEXT NOT NULL, cpu_us INTEGER NOT NULL, memory_peak INTEGER NOT NULL, oom_kills INTEGER NOT NULL,"
    "    last_activity_ms INTEGER NOT NULL, last_activity TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX sandboxes_by_time ON sandboxes(created_us, id);"
    "CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes(app, name) WHERE name <> '' AND state < 4;"
    "CREATE INDEX sandboxes_by_name ON sandboxes(app, name, created_us) WHERE name <> '';"
    "CREATE INDEX sandboxes_unfinished ON sandboxes(state, image) WHERE state <> 4;"
    "CREATE INDEX sandboxes_expiring ON sandboxes(ended_ms + retain_ms) WHERE state = 4;"

    "CREATE TABLE tokens ("
    "    id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, hash BLOB NOT NULL,"
    "    created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL"
    ") STRICT;"

    "CREATE TABLE idempotency ("
    "    token TEXT NOT NULL, key TEXT NOT NULL, hash BLOB NOT NULL, object TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    "    PRIMARY KEY (token, key)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX idempotency_by_object ON idempotency(object);"
    "CREATE INDEX idempotency_by_time ON idempotency(created_ms);"

    "CREATE TABLE audit ("
    "    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, token TEXT NOT NULL, method TEXT NOT NULL,"
    "    path TEXT NOT NULL, op TEXT NOT NULL, target TEXT NOT NULL, status INTEGER NOT NULL,"
    "    request_id TEXT NOT NULL, ms INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX audit_by_time ON audit(at_ms);";

const char *const migrations[] = {first};
const size_t migrations_count = array_len(migrations);
