-- Released: never edited again. A change is a new file and a new line in schema.rs.
-- Everything but ids, plans, flags and times is sealed (AES-256-GCM); see seal.rs.

CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_version INTEGER NOT NULL   -- the highest version ever given to a record; only grows
) STRICT;
INSERT INTO store VALUES (1, 0);

CREATE TABLE data_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    active INTEGER NOT NULL CHECK (active IN (0, 1)),
    created_at INTEGER NOT NULL,    -- milliseconds since 1970
    reserved INTEGER NOT NULL,      -- no more messages than this were sealed with it
    wrapped BLOB NOT NULL           -- the key, sealed with the operator's key
) STRICT;
CREATE UNIQUE INDEX one_active_data_key ON data_keys (active) WHERE active = 1;

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL CHECK (kind IN (0, 1)),   -- 0: instance, 1: binding
    instance TEXT NOT NULL,
    binding TEXT NOT NULL,          -- empty for an instance
    version INTEGER NOT NULL,
    busy INTEGER NOT NULL,          -- an operation is in progress
    deleted INTEGER NOT NULL,       -- a tombstone
    updated_at INTEGER NOT NULL,    -- milliseconds since 1970
    service TEXT NOT NULL,
    plan TEXT NOT NULL,
    data_key INTEGER NOT NULL,      -- sealed with this one
    sealed BLOB NOT NULL,           -- the record as JSON
    UNIQUE (kind, instance, binding)
) STRICT;
CREATE INDEX busy_records ON records (kind, instance, binding) WHERE busy = 1;
CREATE INDEX deleted_records ON records (kind, instance, binding, updated_at) WHERE deleted = 1;
CREATE INDEX plans_in_use ON records (service, plan) WHERE deleted = 0;

CREATE TABLE documents (
    name TEXT PRIMARY KEY,          -- 'catalog': the last good one
    data_key INTEGER NOT NULL,
    sealed BLOB NOT NULL            -- JSON
) STRICT, WITHOUT ROWID;
