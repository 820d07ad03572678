-- A store as the first version wrote it, kept for the test of its name: never changed.
-- One instance and a catalog, under the operator's key 1 of the tests.

CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_version INTEGER NOT NULL   -- the highest version ever given to a record; only grows
) STRICT;
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

INSERT INTO store VALUES(1,3);
INSERT INTO data_keys VALUES(1,1,1795190098214,65537,X'0182f9109a2effb1f50c4b4e9f8a749e55f76bec99b0b67c03b4ae89c41e8da6f84901c2738013cf50d8b8d7af6cc48c32366b532a4ce8f29ec4dda783');
INSERT INTO records VALUES(1,0,'instance','',1,0,0,2,'service','small',1,X'01af1cb11edc0203de98591de41fba3a95ca9c02319ae6ce8f6184cb35040cd5ff89b322a802223f917c89aba450b01c5550fec005605ddb6ce4127bb193169b9681f80169ef94bea30d5c500d50c30f82328ece87ef19428d5db2307b5301e00f42d9af6561eac5bd95ce03a697c3cbd57d0e5b42bd2cb253ec85b14e5d8f97685ed8db405447045ba677318c0280e4886b0af0275caeb91a32851413656d66d2d54e6e2d0a3ab50b64efec77d6bef45e3d6dde2e85eb6da61a387e5eb022ad607fb5b8d2de9fd3dcae44786cd95978295a252a5de2c976ca1876c72660bfb60bad712fc0b545e6d44bb4b8a6a5414dbbad9772bf09aa9a239a4598534624fa38c473a1c66fcdbd333233d88d50ec08bdadf7fa0394e8d60559a14175418de5a98250e44ff353c26c7b472dce035a803bb0969b74602d7f4902a0379c4b64cb4fda64e73c0c4fd2a71ffd4778c40155565d2cb5f6c9d9e4f410c6f1779c439d90dec83b5282641e49eb3ee830feb09f9a685ecf57835f1f52df9fd7208a311f0534065c4b049a3ac8843a2aff80');
INSERT INTO documents VALUES('catalog',1,X'0138820dab33c0c5d38039afa56ebb9456844c34c2843ea4a230e2a4d14f55cde056ba78597ee45e6fb9caa5da1e37bb');
UPDATE sqlite_sequence SET seq = 1 WHERE name = 'data_keys';
PRAGMA application_id = 1296125507;
PRAGMA user_version = 1;
