//! The schema of the catalog, version by version.

/// One step per schema version: entry `i` leads from version `i` to `i + 1`. Entries are never
/// changed, only added.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE datastores (
        name TEXT PRIMARY KEY NOT NULL,
        backend TEXT NOT NULL,
        scheduler TEXT NOT NULL,
        queue_depth INTEGER NOT NULL,
        capacity TEXT
    ) STRICT;
    CREATE TABLE disks (
        name TEXT PRIMARY KEY NOT NULL,
        datastore TEXT NOT NULL REFERENCES datastores(name),
        vm TEXT,
        size INTEGER NOT NULL,
        state TEXT NOT NULL
    ) STRICT;
    CREATE INDEX disks_by_datastore ON disks(datastore);
    CREATE TABLE policies (
        disk TEXT PRIMARY KEY NOT NULL REFERENCES disks(name) ON DELETE CASCADE,
        reservation INTEGER,
        limit_iops INTEGER,
        limit_bandwidth INTEGER,
        shares INTEGER NOT NULL,
        burst INTEGER NOT NULL
    ) STRICT;
    ",
    "ALTER TABLE datastores ADD COLUMN cost_model TEXT NOT NULL DEFAULT 'affine=300K';",
    "
    CREATE TABLE vms (
        name TEXT PRIMARY KEY NOT NULL,
        max_priority INTEGER NOT NULL,
        default_priority INTEGER NOT NULL,
        priority_scope TEXT NOT NULL,
        nice TEXT NOT NULL,
        ioprio_map TEXT NOT NULL
    ) STRICT;
    CREATE TABLE exports (
        name TEXT PRIMARY KEY NOT NULL,
        disk TEXT NOT NULL REFERENCES disks(name) ON DELETE CASCADE,
        priority INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX exports_by_disk ON exports(disk);
    ",
    "ALTER TABLE datastores ADD COLUMN plug INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE datastores ADD COLUMN window_control TEXT;",
    "ALTER TABLE disks ADD COLUMN export TEXT; ALTER TABLE disks ADD COLUMN export_block INTEGER;",
    "
    ALTER TABLE datastores ADD COLUMN placement TEXT;
    ALTER TABLE disks ADD COLUMN placement TEXT;
    CREATE TABLE rules (id INTEGER PRIMARY KEY CHECK (id = 1), document TEXT NOT NULL) STRICT;
    ",
    "ALTER TABLE datastores ADD COLUMN layers TEXT NOT NULL DEFAULT '[]';",
    "ALTER TABLE policies ADD COLUMN limit_mode TEXT NOT NULL DEFAULT 'strict';",
    "
    ALTER TABLE policies ADD COLUMN limit_peak INTEGER;
    ALTER TABLE policies ADD COLUMN limit_peak_bandwidth INTEGER;
    ALTER TABLE policies ADD COLUMN limit_peak_time INTEGER NOT NULL DEFAULT 1;
    ",
    // A policy is one document, as placement is: what a new version adds to it has a default there.
    // The highest bandwidth, 2^63, was stored by its bits.
    "
    ALTER TABLE disks ADD COLUMN policy TEXT NOT NULL DEFAULT '{}';
    UPDATE disks SET policy = (
        SELECT json_object(
            'reservation', reservation, 'limit', limit_iops,
            'limit_bandwidth', CASE WHEN limit_bandwidth < 0
                THEN json('9223372036854775808') ELSE limit_bandwidth END,
            'limit_mode', limit_mode, 'limit_peak', limit_peak,
            'limit_peak_bandwidth', CASE WHEN limit_peak_bandwidth < 0
                THEN json('9223372036854775808') ELSE limit_peak_bandwidth END,
            'limit_peak_time', limit_peak_time, 'shares', shares, 'burst', burst)
        FROM policies WHERE policies.disk = disks.name);
    DROP TABLE policies;
    ",
    "ALTER TABLE vms ADD COLUMN socket_user TEXT; ALTER TABLE vms ADD COLUMN socket_group TEXT;",
    // Removed disks. The document is that of a record file.
    "
    CREATE TABLE removed (
        id TEXT PRIMARY KEY NOT NULL,
        step TEXT NOT NULL,
        allocated INTEGER NOT NULL,
        datastore TEXT NOT NULL REFERENCES datastores(name),
        disk TEXT NOT NULL
    ) STRICT;
    CREATE INDEX removed_by_datastore ON removed(datastore);
    ",
    "ALTER TABLE datastores ADD COLUMN batch TEXT;",
    // A move outlives its disk's row where a copy could not be reclaimed.
    "
    CREATE TABLE moves (
        disk TEXT PRIMARY KEY NOT NULL,
        source TEXT NOT NULL REFERENCES datastores(name),
        target TEXT NOT NULL REFERENCES datastores(name),
        step TEXT NOT NULL,
        pace TEXT NOT NULL,
        began INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX moves_by_source ON moves(source);
    CREATE INDEX moves_by_target ON moves(target);
    ",
    "ALTER TABLE exports ADD COLUMN writes TEXT NOT NULL DEFAULT 'allowed';",
    "ALTER TABLE disks ADD COLUMN writes TEXT NOT NULL DEFAULT 'allowed';",
    "ALTER TABLE disks ADD COLUMN origin TEXT;",
    "ALTER TABLE disks ADD COLUMN stripe TEXT;",
    "ALTER TABLE disks ADD COLUMN set_by TEXT;",
    // What was set at a disk without a class is what its policy has that the default has not: such
    // rows have nothing of their own.
    "
    CREATE TABLE classes (name TEXT PRIMARY KEY NOT NULL, document TEXT NOT NULL) STRICT;
    ALTER TABLE disks ADD COLUMN class TEXT REFERENCES classes(name);
    ALTER TABLE disks ADD COLUMN own_policy TEXT;
    ALTER TABLE disks ADD COLUMN applied_by TEXT;
    CREATE INDEX disks_by_class ON disks(class);
    CREATE TABLE planned (disk TEXT PRIMARY KEY NOT NULL, document TEXT NOT NULL) STRICT;
    ",
    "
    CREATE TABLE tenants (name TEXT PRIMARY KEY NOT NULL, document TEXT NOT NULL) STRICT;
    ALTER TABLE vms ADD COLUMN promise TEXT NOT NULL DEFAULT '{}';
    ",
];
