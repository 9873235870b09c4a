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

/* Environments, what an app is beyond its name, and named objects: secrets, queues, dicts. The
 * text of an app is what a user calls it; its name is the key that sandboxes carry, which
 * differs where two environments have an app of the same text. */
static const char second[] =
    "CREATE TABLE environments ("
    "    name TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_us INTEGER NOT NULL, is_default INTEGER NOT NULL"
    ") STRICT;"

    "ALTER TABLE apps ADD COLUMN environment TEXT NOT NULL DEFAULT '';"     /* '' = the default one */
    "ALTER TABLE apps ADD COLUMN text TEXT NOT NULL DEFAULT '';"            /* '' = its name */
    "ALTER TABLE apps ADD COLUMN is_ephemeral INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE apps ADD COLUMN stopped_us INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE apps ADD COLUMN seen_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE apps ADD COLUMN tags TEXT NOT NULL DEFAULT '{}';"

    /* the values of a secret are one sealed JSON object */
    "CREATE TABLE secrets ("
    "    id TEXT PRIMARY KEY, environment TEXT NOT NULL, name TEXT NOT NULL, created_us INTEGER NOT NULL,"
    "    used_us INTEGER NOT NULL, expires_ms INTEGER NOT NULL, version INTEGER NOT NULL, keys TEXT NOT NULL,"
    "    sealed BLOB NOT NULL"
    ") STRICT;"
    "CREATE UNIQUE INDEX secrets_by_name ON secrets(environment, name) WHERE name <> '';"
    "CREATE INDEX secrets_expiring ON secrets(expires_ms) WHERE expires_ms <> 0;"

    "CREATE TABLE objects ("
    "    id TEXT PRIMARY KEY, kind INTEGER NOT NULL, environment TEXT NOT NULL, name TEXT NOT NULL,"
    "    created_us INTEGER NOT NULL, seen_ms INTEGER NOT NULL"     /* seen_ms 0 = not ephemeral */
    ") STRICT;"
    "CREATE UNIQUE INDEX objects_by_name ON objects(kind, environment, name) WHERE name <> '';"
    "CREATE INDEX objects_expiring ON objects(seen_ms) WHERE seen_ms <> 0;"

    "CREATE TABLE queue_items ("
    "    seq INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL REFERENCES objects(id) ON DELETE CASCADE,"
    "    part BLOB NOT NULL, expires_ms INTEGER NOT NULL, value BLOB NOT NULL"
    ") STRICT;"
    "CREATE INDEX queue_items_by_part ON queue_items(queue, part, seq);"
    "CREATE INDEX queue_items_expiring ON queue_items(expires_ms);"

    "CREATE TABLE dict_items ("
    "    dict TEXT NOT NULL REFERENCES objects(id) ON DELETE CASCADE, key BLOB NOT NULL, value BLOB NOT NULL,"
    "    PRIMARY KEY (dict, key)"
    ") STRICT, WITHOUT ROWID;";

/* Where images come from, what their layers weigh, work that goes on without its caller, and results of build steps. States of an
 * operation: enum operation_state. */
static const char images_and_operations[] =
    "ALTER TABLE images ADD COLUMN config TEXT NOT NULL DEFAULT '{}';"     /* JSON as image configurations have it */
    "ALTER TABLE images ADD COLUMN source TEXT NOT NULL DEFAULT '';"       /* reference it was pulled by, or what built it */
    "ALTER TABLE images ADD COLUMN digest TEXT NOT NULL DEFAULT '';"       /* what the reference resolved to */
    "ALTER TABLE images ADD COLUMN used_us INTEGER NOT NULL DEFAULT 0;"

    "CREATE TABLE layers ("
    "    layer TEXT PRIMARY KEY, bytes INTEGER NOT NULL, files INTEGER NOT NULL, created_us INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE operations ("
    "    id TEXT PRIMARY KEY, kind TEXT NOT NULL, state INTEGER NOT NULL, target TEXT NOT NULL, request TEXT NOT NULL,"
    "    created_us INTEGER NOT NULL, ended_us INTEGER NOT NULL, image TEXT NOT NULL, result TEXT NOT NULL,"
    "    error_code TEXT NOT NULL, error TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX operations_by_time ON operations(created_us, id);"
    "CREATE INDEX operations_running ON operations(state) WHERE state = 0;"
    "CREATE INDEX operations_by_target ON operations(target, created_us) WHERE target <> '';"
    "CREATE TABLE operation_lines ("
    "    operation TEXT NOT NULL REFERENCES operations(id) ON DELETE CASCADE, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL,"
    "    text TEXT NOT NULL, PRIMARY KEY (operation, seq)"
    ") STRICT, WITHOUT ROWID;"

    /* the image that is made of `parent` by a step; the layer is "" where the step changed no file */
    "CREATE TABLE build_steps ("
    "    key TEXT PRIMARY KEY, layer TEXT NOT NULL, used_us INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX build_steps_by_layer ON build_steps(layer) WHERE layer <> '';";

/* Images that Modal's clients defined, by a hash of the definition, and sets of their files. */
static const char definitions_and_mounts[] =
    "CREATE TABLE image_definitions ("
    "    image TEXT PRIMARY KEY, hash TEXT NOT NULL, operation TEXT NOT NULL, created_us INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX image_definitions_by_hash ON image_definitions(hash, created_us);"
    "CREATE TABLE mounts ("
    "    id TEXT PRIMARY KEY, environment TEXT NOT NULL, name TEXT NOT NULL, files TEXT NOT NULL, created_us INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX mounts_by_name ON mounts(environment, name) WHERE name <> '';";

/* Uploads: files by their content, and blobs that become such files; what is not used for a while goes. Sets of files were
 * named by chance before, and their files not counted. */
static const char uploads[] =
    "CREATE TABLE files (hash TEXT PRIMARY KEY, bytes INTEGER NOT NULL, used_us INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX files_by_use ON files(used_us);"
    "CREATE TABLE blobs ("
    "    id TEXT PRIMARY KEY, hash TEXT NOT NULL, md5 TEXT NOT NULL, bytes INTEGER NOT NULL, part_bytes INTEGER NOT NULL,"
    "    is_complete INTEGER NOT NULL, created_us INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX blobs_open ON blobs(created_us) WHERE is_complete = 0;"
    "CREATE TABLE blob_parts ("
    "    blob TEXT NOT NULL REFERENCES blobs(id) ON DELETE CASCADE, part INTEGER NOT NULL, md5 TEXT NOT NULL,"
    "    PRIMARY KEY (blob, part)"
    ") STRICT, WITHOUT ROWID;"
    "DELETE FROM mounts;"
    "ALTER TABLE mounts ADD COLUMN used_us INTEGER NOT NULL DEFAULT 0;";

/* What a name stood for, as it was published; the image that a definition is built on. */
static const char revisions[] =
    "CREATE TABLE image_revisions ("
    "    seq INTEGER PRIMARY KEY, name TEXT NOT NULL, image TEXT NOT NULL, revision TEXT NOT NULL, published_us INTEGER NOT NULL,"
    "    published_by TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX image_revisions_by_name ON image_revisions(name, seq);"
    "ALTER TABLE image_definitions ADD COLUMN base TEXT NOT NULL DEFAULT '';";

/* Network policies with names. */
static const char policies[] =
    "CREATE TABLE policies ("
    "    name TEXT NOT NULL, version INTEGER NOT NULL, policy TEXT NOT NULL, token TEXT NOT NULL, created_us INTEGER NOT NULL,"
    "    PRIMARY KEY (name, version)"
    ") STRICT, WITHOUT ROWID;";

const char *const migrations[] = {first, second, images_and_operations, definitions_and_mounts, uploads, revisions, policies};
const size_t migrations_count = array_len(migrations);
