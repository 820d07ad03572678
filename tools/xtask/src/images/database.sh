#!/bin/sh
# A PostgreSQL server as people know it from the usual image: POSTGRES_USER (postgres) with POSTGRES_PASSWORD owns the
# database POSTGRES_DB (the user's name), in PGDATA. What is there already is served as it is.
set -eu
umask 077
PGDATA=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

# Makes the database in a folder.
make() {
    [ -n "${POSTGRES_PASSWORD:-}" ] || { echo "POSTGRES_PASSWORD has to be set" >&2; return 2; }
    # Both commands are the shell's own: a password in a command line is for everybody to read.
    printf '%s\n' "$POSTGRES_PASSWORD" | initdb --pgdata "$1" --username "$user" --pwfile /dev/stdin \
        --auth scram-sha-256 --encoding UTF8 --locale C --no-sync
    echo "host all all all scram-sha-256" >>"$1/pg_hba.conf"
    [ "$database" = postgres ] || printf 'CREATE DATABASE "%s"\n' "$(printf %s "$database" | sed 's/"/""/g')" |
        postgres --single -D "$1" postgres >/dev/null
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # A start that ends half-way leaves PGDATA empty, and the next begins anew.
    rm -rf "$PGDATA.new"
    make "$PGDATA.new"
    [ ! -d "$PGDATA" ] || rmdir "$PGDATA"
    mv "$PGDATA.new" "$PGDATA"
fi
unset POSTGRES_PASSWORD
# A volume for a group is opened to that group, and the server refuses to start.
chmod 700 "$PGDATA"
exec postgres -D "$PGDATA" -c listen_addresses='*'
