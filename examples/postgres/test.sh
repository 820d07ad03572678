#!/bin/sh
# Drives the broker, without a server in front of it, against a PostgreSQL started for the purpose:
# once with a superuser as administrator, once with a role that may only create databases and roles.
#
#   PG_BINDIR     where initdb, pg_ctl and postgres are, when not in a usual place
#   BROKER_SHELL  the shell to run the broker with (sh)
#
# Exits 1 when a check failed, 77 when there is no PostgreSQL to test against.
#
# $small and $large are lists of flags, split on purpose; remember sets variables by name; the
# settings changed in a subshell are meant to be lost; hostile ids look like mistakes.
# shellcheck disable=SC2086,SC2154,SC2030,SC2031,SC2016,SC1003
set -u
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0 finished=no administrator=none

# --- Checks ------------------------------------------------------------------------------------

ok() {
    passed=$((passed + 1))
}

not_ok() {
    failed=$((failed + 1))
    printf 'FAILED: [%s] %s\n' "$administrator" "$*"
}

# check NAME COMMAND...: the command succeeds.
check() {
    label=$1
    shift
    if "$@"; then ok; else not_ok "$label"; fi
}

# equal NAME EXPECTED ACTUAL
equal() {
    if [ "$2" = "$3" ]; then ok; else not_ok "$1: expected '$2', got '$3'"; fi
}

# contains NAME PART TEXT
contains() {
    case $3 in
    *"$2"*) ok ;;
    *) not_ok "$1: '$2' is not in '$3'" ;;
    esac
}

# --- The server --------------------------------------------------------------------------------

find_bindir() {
    for directory in "${PG_BINDIR:-}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin; do
        [ ! -x "$directory/initdb" ] || bindir=$directory
    done
    [ -z "${PG_BINDIR:-}" ] || bindir=$PG_BINDIR
    [ -n "${bindir:-}" ] || bindir=$(dirname "$(command -v initdb 2>/dev/null || echo /nowhere/initdb)")
    [ -x "$bindir/initdb" ] && command -v psql >/dev/null
}

# PostgreSQL refuses to run as root.
as_server() {
    if [ -n "$server_user" ]; then runuser -u "$server_user" -- "$@"; else "$@"; fi
}

random_hex() {
    od -An -v -N"$1" -tx1 /dev/urandom | tr -d ' \n'
}

start_server() {
    server_user=''
    if [ "$(id -u)" = 0 ]; then
        for candidate in postgres nobody; do
            [ -n "$server_user" ] || ! id "$candidate" >/dev/null 2>&1 || server_user=$candidate
        done
        chown "$server_user" "$tmp/server"
        chmod 711 "$tmp"
    fi
    printf '%s\n' "$super_password" >"$tmp/server/password"
    chmod 644 "$tmp/server/password"
    (cd "$tmp/server" && as_server "$bindir/initdb" -D "$tmp/server/data" -U super -E UTF8 --locale=C \
        --auth=scram-sha-256 --pwfile="$tmp/server/password" --no-sync) >"$tmp/initdb.log" 2>&1 || {
        cat "$tmp/initdb.log"
        return 1
    }
    for _ in 1 2 3 4 5 6; do
        port=$((20000 + 0x$(random_hex 2) % 12000))
        # DDL is logged, to check that no password is in it.
        if (cd "$tmp/server" && as_server "$bindir/pg_ctl" -D "$tmp/server/data" -w -t 60 -s \
            -l "$tmp/server/log" -o "-p $port -c listen_addresses=127.0.0.1 \
            -c unix_socket_directories=$tmp/server -c fsync=off -c shared_buffers=16MB \
            -c max_connections=60 -c log_statement=ddl" start) >"$tmp/start.log" 2>&1; then
            return 0
        fi
    done
    cat "$tmp/start.log" "$tmp/server/log"
    return 1
}

clean_up() {
    trap - EXIT INT TERM HUP
    [ "$finished" = yes ] || {
        echo "FAILED: [$administrator] the tests did not run to their end"
        echo "$passed passed, $((failed + 1)) failed"
    }
    [ -z "${watcher:-}" ] || kill "$watcher" 2>/dev/null
    [ ! -f "$tmp/server/data/postmaster.pid" ] ||
        (cd "$tmp/server" && as_server "$bindir/pg_ctl" -D "$tmp/server/data" -m immediate -s stop)
    rm -rf "$tmp"
}

# SQL from standard input, as the superuser, in a database.
super() {
    PGHOST=127.0.0.1 PGPORT=$port PGUSER=super PGPASSWORD=$super_password PGDATABASE=${1:-postgres} \
        PGCONNECT_TIMEOUT=10 timeout 60 "$real_psql" -X -q -A -t -w -v ON_ERROR_STOP=1
}

# --- The broker and its tenants ----------------------------------------------------------------

# run SUBCOMMAND FLAGS...: leaves out, err and code; keeps everything written for the leak check.
run() {
    timeout 60 "${BROKER_SHELL:-sh}" "$here/broker" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    out=$(cat "$tmp/out")
    err=$(cat "$tmp/err")
    cat "$tmp/out" >>"$tmp/everything.out"
    cat "$tmp/err" >>"$tmp/everything.err"
}

succeeds() {
    label=$1
    shift
    run "$@"
    if [ $code -eq 0 ] && [ -z "$err" ]; then ok; else not_ok "$label: exit $code: $err"; fi
}

# refuses NAME REASON SUBCOMMAND...: fails, says why on stderr, writes nothing on stdout.
refuses() {
    label=$1 reason=$2
    shift 2
    run "$@"
    if [ $code -ne 0 ] && [ -z "$out" ]; then ok; else not_ok "$label: exit $code, stdout '$out'"; fi
    contains "$label" "$reason" "$err"
}

# request JSON: what the server would put beside a v2 broker.
request() {
    printf '%s' "$1" >"$tmp/request.json"
    OSB_REQUEST_FILE=$tmp/request.json
    export OSB_REQUEST_FILE
}

small='--service-id manciple-postgres --plan-id manciple-postgres-small'
large='--service-id manciple-postgres --plan-id manciple-postgres-large'

# field NAME JSON: one credential.
field() {
    json=$2 field=$1 super <<'SQL'
\getenv json json
\getenv field field
SELECT :'json'::json -> 'credentials' ->> :'field';
SQL
}

# remember PREFIX: keeps the credentials in out as PREFIX_user, PREFIX_password, PREFIX_db.
remember() {
    kept=$(json=$out super <<'SQL'
\getenv json json
SELECT username, password, database
FROM json_to_record(:'json'::json -> 'credentials') AS c(username text, password text, database text);
SQL
    )
    IFS='|' read -r "$1_user" "$1_password" "$1_db" <<EOT
$kept
EOT
    # An empty line would match everything in the search for leaks.
    [ -z "$kept" ] || eval "printf '%s\n' \"\$$1_password\"" >>"$tmp/passwords"
}

# tenant PREFIX [DATABASE]: SQL from standard input, with the credentials kept as PREFIX.
tenant() {
    eval "user=\$$1_user password=\$$1_password database=\${2:-\$$1_db}"
    PGHOST=127.0.0.1 PGPORT=$port PGUSER=$user PGPASSWORD=$password PGDATABASE=$database \
        PGCONNECT_TIMEOUT=10 timeout 60 "$real_psql" -X -q -A -t -w -v ON_ERROR_STOP=1 2>"$tmp/tenant.err"
}

# denied NAME REASON PREFIX [DATABASE]: the SQL fails for that reason.
denied() {
    label=$1 reason=$2
    shift 2
    if tenant "$@" >/dev/null; then not_ok "$label: succeeded"; else ok; fi
    contains "$label" "$reason" "$(cat "$tmp/tenant.err")"
}

leftovers() {
    super <<'SQL'
SELECT (SELECT count(*) FROM pg_database WHERE starts_with(datname, 'osb_'))
     + (SELECT count(*) FROM pg_roles WHERE starts_with(rolname, 'osb_'));
SQL
}

# wait_for NAME SQL: the query answers t within a minute or two.
wait_for() {
    patience=300
    until [ "$(echo "$2" | super)" = t ]; do
        patience=$((patience - 1))
        if [ $patience -eq 0 ]; then
            not_ok "$1"
            return
        fi
        sleep 0.2
    done
    ok
}

# --- The scenarios -----------------------------------------------------------------------------

catalog_needs_nothing() {
    out=$(env -i PATH="$PATH" "${BROKER_SHELL:-sh}" "$here/broker" catalog 2>&1)
    plans=$(json=$out super <<'SQL'
\getenv json json
SELECT string_agg(plan ->> 'id', ' ') FROM json_array_elements(:'json'::json #> '{services,0,plans}') AS plan;
SQL
    )
    equal "the catalog lists both plans" "manciple-postgres-small manciple-postgres-large" "$plans"
}

wrong_use_is_explained() {
    refuses "no subcommand" "use one of"
    refuses "unknown subcommand" "use one of" explode
    refuses "no instance id" "--instance-id is missing" provision $small
    refuses "empty instance id" "--instance-id is missing" provision $small --instance-id=
    refuses "no binding id" "--binding-id is missing" bind $small --instance-id a
    refuses "flag without value" "--instance-id needs a value" provision $small --instance-id
    refuses "unknown flag" "unknown flag --colour" provision $small --colour red
    refuses "stray argument" "only flags are expected" provision $small stray
    refuses "unknown plan" "no plan with the id" provision --plan-id huge --instance-id a
    refuses "bind without instance" "does not exist" bind $small --instance-id none --binding-id b
    refuses "update without instance" "does not exist" update $small --instance-id none
    PG_HOST='' refuses "no host" "PG_HOST is not set" provision $small --instance-id a
    PG_HOST='a b' refuses "impossible host" "does not belong there" provision $small --instance-id a
    PG_PORT=x refuses "impossible port" "not a number" provision $small --instance-id a
    PG_PORT=1 refuses "nobody listens" "PostgreSQL refused a step" provision $small --instance-id a
    PG_ADMIN_PASSWORD=wrong refuses "wrong password" "authentication failed" provision $small --instance-id a
    # Not UTF-8: PostgreSQL could not keep it.
    refuses "id that is not text" "byte" provision $small --instance-id "$(printf 'a\377')"
    equal "nothing was made of all this" 0 "$(leftovers)"
}

plain_v1_life() {
    unset OSB_REQUEST_FILE
    succeeds "provision" provision $small --instance-id one
    equal "provision answers JSON" '{}' "$out"
    succeeds "provision again" provision $small --instance-id one
    succeeds "bind with flag=value" bind --service-id=manciple-postgres \
        --plan-id=manciple-postgres-small --instance-id=one --binding-id=b1
    remember b1
    uri=$(field uri "$out")
    equal "the uri connects" "$b1_user" "$(uri=$uri super <<'SQL'
\getenv uri uri
\connect -reuse-previous=off :uri
SELECT session_user;
SQL
    )"
    equal "host" 127.0.0.1 "$(field host "$out")"
    equal "port" "$port" "$(field port "$out")"
    old_password=$b1_password

    succeeds "bind again" bind $small --instance-id one --binding-id b1
    remember b1
    b1_new=$b1_password
    b1_password=$old_password
    denied "the former password is void" "authentication failed" b1 </dev/null
    b1_password=$b1_new
    equal "the new password connects" 1 "$(echo 'SELECT 1' | tenant b1)"

    # What one binding makes, another one owns too.
    succeeds "second binding" bind $small --instance-id one --binding-id b2
    remember b2
    echo "CREATE TABLE t (x int); INSERT INTO t VALUES (7); CREATE SCHEMA s; CREATE TABLE s.t (x int)" | tenant b1
    equal "tables belong to the owner role" "$b1_db" \
        "$(echo "SELECT tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename = 't'" | tenant b1)"
    equal "the other binding may alter them" 7 "$(echo 'ALTER TABLE t ADD y int; SELECT x FROM t' | tenant b2)"

    # What a binding makes outside its owner role, and outside its database.
    echo "SET ROLE NONE; CREATE SCHEMA mine; CREATE TABLE mine.stray (x int); SELECT lo_create(0);
        GRANT ALL ON SCHEMA mine TO public; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public;
        ALTER ROLE CURRENT_USER SET search_path = mine" | tenant b1 >/dev/null
    echo "SELECT lo_create(0)" | tenant b1 postgres >/dev/null
    echo "SELECT lo_create(0)" | tenant b1 template1 >/dev/null

    echo 'SELECT pg_sleep(50)' | tenant b1 >/dev/null &
    sleeper=$!
    wait_for "the live session is there" "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = '$b1_user'"
    succeeds "unbind" unbind $small --instance-id one --binding-id b1
    equal "unbind answers JSON" '{}' "$out"
    if wait "$sleeper"; then not_ok "the live session outlived unbind"; else ok; fi
    denied "the credentials are void" "authentication failed" b1 </dev/null
    equal "the role is gone" 0 "$(echo "SELECT count(*) FROM pg_roles WHERE rolname = '$b1_user'" | super)"
    equal "its tables stay, with the owner role" "$b1_db" \
        "$(echo "SELECT tableowner FROM pg_tables WHERE tablename = 'stray'" | tenant b2)"
    equal "the data stays" 7 "$(echo 'SELECT x FROM t' | tenant b2)"
    succeeds "unbind again" unbind $small --instance-id one --binding-id b1
    succeeds "unbind of what never was" unbind $small --instance-id never --binding-id b1

    echo 'SELECT pg_sleep(50)' | tenant b2 >/dev/null &
    sleeper=$!
    wait_for "another live session" "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = '$b2_user'"
    succeeds "deprovision with a binding left" deprovision $small --instance-id one
    if wait "$sleeper"; then not_ok "the live session outlived deprovision"; else ok; fi
    equal "deprovision answers JSON" '{}' "$out"
    equal "database and roles are gone" 0 "$(leftovers)"
    succeeds "deprovision again" deprovision $small --instance-id one
    refuses "bind after deprovision" "does not exist" bind $small --instance-id one --binding-id b3
    succeeds "deprovision by a plan no longer offered" deprovision --service-id x --plan-id gone --instance-id one
}

tenants_are_isolated() {
    unset OSB_REQUEST_FILE
    for name in left right; do
        succeeds "provision $name" provision $small --instance-id $name
        succeeds "bind $name" bind $small --instance-id $name --binding-id b
        remember $name
    done
    denied "no way into the other database" "permission denied for database" left "$right_db" </dev/null
    denied "nor as its owner role" "permission denied to set role" left <<SQL
SET ROLE "$right_db";
SQL
    denied "no membership to take" "ERROR" left <<SQL
GRANT "$right_db" TO "$left_user";
SQL
    denied "no role to make" "permission denied to create role" left <<SQL
CREATE ROLE osb_intruder;
SQL
    denied "no database to make" "permission denied to create database" left <<SQL
CREATE DATABASE osb_intruder;
SQL
    denied "no connection limit to lift" "must be owner of database" left <<SQL
ALTER DATABASE "$left_db" CONNECTION LIMIT -1;
SQL
    denied "no settings for who connects next" "must be owner of database" left <<SQL
ALTER DATABASE "$left_db" SET search_path = evil;
SQL
    denied "no database to drop" "must be owner of database" left postgres <<SQL
SET ROLE "$left_db"; DROP DATABASE "$left_db";
SQL
    denied "no files to read" "permission denied" left <<SQL
SELECT pg_read_file('PG_VERSION');
SQL
    denied "no comment to forge" "ERROR" left <<SQL
COMMENT ON ROLE "$left_db" IS '{}';
SQL
    succeeds "deprovision left" deprovision $small --instance-id left
    equal "right is untouched" 1 "$(echo 'SELECT 1' | tenant right)"
    succeeds "deprovision right" deprovision $small --instance-id right
}

a_binding_may_be_read_only() {
    request '{"parameters": {}}'
    succeeds "provision" provision $small --instance-id ro
    succeeds "writer" bind $small --instance-id ro --binding-id w
    remember w
    echo "CREATE TABLE before (x int); INSERT INTO before VALUES (1);
        SET ROLE NONE; CREATE SCHEMA own; CREATE TABLE own.outside (x int); INSERT INTO own.outside VALUES (3);
        CREATE VIEW own.\"a view's\" AS SELECT 4 AS x" | tenant w
    request '{"parameters": {"read_only": true}}'
    succeeds "reader" bind $small --instance-id ro --binding-id r
    remember r
    echo "CREATE SCHEMA later; CREATE TABLE later.t (x int); INSERT INTO later.t VALUES (2)" | tenant w
    equal "reads what was there" 1 "$(echo 'SELECT x FROM before' | tenant r)"
    equal "reads what came later" 2 "$(echo 'SELECT x FROM later.t' | tenant r)"
    equal "reads what was made outside the owner role" 3 "$(echo 'SELECT x FROM own.outside' | tenant r)"
    equal "reads views" 4 "$(echo "SELECT x FROM own.\"a view's\"" | tenant r)"
    denied "writes are refused by name" "read-only transaction" r <<SQL
INSERT INTO before VALUES (2);
SQL
    for statement in 'INSERT INTO before VALUES (2)' 'DELETE FROM later.t' 'CREATE TABLE mine (x int)' \
        'CREATE SCHEMA mine' 'CREATE TEMP TABLE mine (x int)' 'DROP TABLE before' 'TRUNCATE own.outside'; do
        denied "and by right: $statement" "ERROR" r <<SQL
SET default_transaction_read_only = off;
$statement;
SQL
    done
    denied "nor may it become the owner" "permission denied to set role" r <<SQL
SET ROLE "$r_db";
SQL
    if [ "$administrator" = super ]; then
        denied "large objects need a superuser to be forbidden" "permission denied for function" r <<SQL
SET default_transaction_read_only = off;
SELECT lo_create(0);
SQL
    fi
    equal "the writer makes large objects" t "$(echo 'SELECT lo_create(0) > 0' | tenant w)"

    # Rotation keeps the rights.
    request '{"predecessor_binding_id": "r"}'
    succeeds "rotated reader" bind $small --instance-id ro --binding-id r2
    remember r2
    denied "is a reader" "ERROR" r2 <<SQL
SET default_transaction_read_only = off;
INSERT INTO before VALUES (2);
SQL
    equal "its predecessor still reads" 1 "$(echo 'SELECT x FROM before' | tenant r)"
    request '{"predecessor_binding_id": "w"}'
    succeeds "rotated writer" bind $small --instance-id ro --binding-id w2
    remember w2
    equal "is a writer" 1 "$(echo 'INSERT INTO before VALUES (2) RETURNING 1' | tenant w2)"
    request '{"predecessor_binding_id": "nobody"}'
    refuses "rotation of what never was" "predecessor binding does not exist" bind $small --instance-id ro --binding-id r3

    request '{"parameters": {"read_only": "maybe"}}'
    refuses "read_only that is no boolean" "not understood" bind $small --instance-id ro --binding-id r4
    request '{"parameters": '
    refuses "request that is no JSON" "not understood" bind $small --instance-id ro --binding-id r4
    OSB_REQUEST_FILE=$tmp/absent
    refuses "request that is not there" "cannot be read" bind $small --instance-id ro --binding-id r4
    unset OSB_REQUEST_FILE
    for binding in r r2 w w2; do
        succeeds "unbind $binding" unbind $small --instance-id ro --binding-id $binding
    done
    succeeds "deprovision" deprovision $small --instance-id ro
    equal "nothing is left" 0 "$(leftovers)"
}

# limit_is EXPECTED: the connection limit of instance up.
limit_is() {
    equal "connection limit" "$1" "$(echo "SELECT datconnlimit FROM pg_database WHERE datname = '$up_db'" | super)"
}

parameters_and_update() {
    request '{"parameters": {"connection_limit": 2, "extensions": ["hstore"]}, "context": {"platform": "x"}}'
    succeeds "provision with parameters" provision $small --instance-id up
    request '{"parameters": null}'
    succeeds "bind" bind $small --instance-id up --binding-id b
    remember up
    limit_is 2
    equal "the extension works" 1 "$(echo "SELECT 'a=>1'::hstore -> 'a'" | tenant up)"

    for _ in 1 2; do echo 'SELECT pg_sleep(50)' | tenant up >/dev/null & done
    wait_for "two sessions" "SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = '$up_user'"
    denied "a third is too many" "too many connections" up </dev/null

    request '{"plan_id": "manciple-postgres-large"}'
    succeeds "a larger plan" update $large --instance-id up
    equal "update answers JSON" '{}' "$out"
    limit_is 2
    request '{"parameters": {"connection_limit": 8e1}}'
    succeeds "a higher limit, in any spelling of an integer" update $large --instance-id up
    limit_is 80
    equal "a third is welcome" 1 "$(echo 'SELECT 1' | tenant up)"
    request '{"parameters": {"extensions": ["citext", "pgcrypto", "hstore"]}}'
    succeeds "more extensions, no plan id" update --service-id manciple-postgres --instance-id up
    limit_is 80
    equal "extensions" "citext hstore pgcrypto" \
        "$(echo "SELECT string_agg(extname, ' ' ORDER BY extname) FROM pg_extension WHERE extname <> 'plpgsql'" | tenant up)"
    for limit in 101 0 -1 2.5 1e9; do
        request '{"parameters": {"connection_limit": '$limit', "extensions": []}}'
        refuses "limit $limit" "connection_limit is" update $large --instance-id up
    done
    for extension in dblink 'h store' 'hstore\n' '\"; DROP' 'é'; do
        request '{"parameters": {"connection_limit": 9, "extensions": ["'"$extension"'"]}}'
        refuses "extension $extension" "is not offered" update $large --instance-id up
    done
    limit_is 80
    request '{}'
    succeeds "a smaller plan" update $small --instance-id up
    limit_is 5
    unset OSB_REQUEST_FILE
    succeeds "larger again, without a request" update $large --instance-id up
    limit_is 80
    succeeds "deprovision" deprovision $large --instance-id up
    wait_for "its sessions are gone" "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = '$up_user'"
    succeeds "provision large" provision $large --instance-id up
    limit_is 50
    succeeds "deprovision" deprovision $large --instance-id up
}

ids_may_be_any_text() {
    unset OSB_REQUEST_FILE
    long=$(printf '%10000s' '' | tr ' ' x)
    newline='two
lines'
    for id in "it's" 'say "hi"' 'a/../../b' '.' '-rf' '--plan-id' "'; DROP DATABASE postgres; --" \
        "\$(touch $tmp/pwned)" "\`touch $tmp/pwned\`" 'привіт 🦀' "$newline" "$long" ":'x' :\"owner\" \\! \\q" \
        '%s%n%1$s' 'back\slash\' '{"a": 1}' ' ' '*'; do
        short=$(printf '%.20s' "$id")
        succeeds "provision $short" provision $small --instance-id "$id"
        equal "the id is kept" "$id" "$(super <<'SQL'
SELECT shobj_description(oid, 'pg_authid')::json ->> 'instance_id' FROM pg_roles
WHERE rolname IN (SELECT datname FROM pg_database) AND starts_with(rolname, 'osb_');
SQL
        )"
        succeeds "bind $short" bind $small --instance-id "$id" --binding-id "$id"
        remember hostile
        equal "$short connects" "$hostile_db" "$(echo 'SELECT current_user' | tenant hostile)"
        succeeds "unbind $short" unbind $small --instance-id "$id" --binding-id "$id"
        denied "$short is locked out" "authentication failed" hostile </dev/null
        succeeds "deprovision $short" deprovision $small --instance-id "$id"
        equal "$short left nothing" 0 "$(leftovers)"
    done
    check "no id was run as a command" test ! -e "$tmp/pwned"
    equal "nor as SQL" 1 "$(echo 'SELECT 1' | super postgres)"
}

# together NAME COMMAND...: starts the broker in the background; settle waits and counts failures.
together() {
    { timeout 60 "${BROKER_SHELL:-sh}" "$here/broker" "$@" </dev/null >/dev/null 2>>"$tmp/together.err"; } &
    together_pids="${together_pids:-} $!"
}

settle() {
    for pid in $together_pids; do
        if wait "$pid"; then ok; else not_ok "$1: $(cat "$tmp/together.err")"; fi
    done
    together_pids=''
    cat "$tmp/together.err" >>"$tmp/everything.err"
    : >"$tmp/together.err"
}

many_at_once() {
    unset OSB_REQUEST_FILE
    for id in 1 2 3 4 5; do together provision $small --instance-id "many $id"; done
    settle "provisions at once"
    for id in 1 2 3 4; do together bind $small --instance-id "many 1" --binding-id "b $id"; done
    settle "bindings at once"
    request '{"parameters": {"read_only": true}}'
    for id in 5 6 7 8; do together bind $small --instance-id "many 1" --binding-id "b $id"; done
    settle "readers at once"
    for id in 1 2 3 4 5 6 7 8; do together unbind $small --instance-id "many 1" --binding-id "b $id"; done
    settle "unbinds at once"
    for id in 1 2 3 4 5; do together deprovision $small --instance-id "many $id"; done
    settle "deprovisions at once"
    equal "nothing is left" 0 "$(leftovers)"
}

# Cuts a subcommand short, with the psql it runs, after a while; what the server still does must end.
cut_short() {
    delay=$1
    shift
    setsid "${BROKER_SHELL:-sh}" "$here/broker" "$@" </dev/null >/dev/null 2>&1 &
    victim=$!
    sleep "$delay"
    kill -9 -"$victim" 2>/dev/null
    wait "$victim" 2>/dev/null
    wait_for "the cut session ends" "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'broker'"
}

a_cut_run_can_be_finished_or_undone() {
    unset OSB_REQUEST_FILE
    for delay in 0.03 0.07 0.12 0.18 0.3; do
        cut_short $delay provision $small --instance-id cut
        succeeds "provision finished after $delay" provision $small --instance-id cut
        cut_short $delay bind $small --instance-id cut --binding-id b
        succeeds "bind finished after $delay" bind $small --instance-id cut --binding-id b
        remember cut
        equal "and connects" 1 "$(echo 'SELECT 1' | tenant cut)"
        cut_short $delay unbind $small --instance-id cut --binding-id b
        succeeds "unbind finished after $delay" unbind $small --instance-id cut --binding-id b
        cut_short $delay deprovision $small --instance-id cut
        succeeds "deprovision finished after $delay" deprovision $small --instance-id cut
        equal "nothing is left after $delay" 0 "$(leftovers)"
        cut_short $delay provision $small --instance-id cut
        succeeds "provision undone after $delay" deprovision $small --instance-id cut
        equal "nothing is left of it" 0 "$(leftovers)"
    done
}

# A value put into its file with echo has a newline at its end.
configuration_may_end_in_newlines() {
    unset OSB_REQUEST_FILE
    (
        nl='
'
        PG_HOST=$PG_HOST$nl PG_PORT=$PG_PORT$nl PG_ADMIN_USER=$PG_ADMIN_USER$nl
        PG_ADMIN_PASSWORD=$PG_ADMIN_PASSWORD$nl
        PG_PUBLIC_HOST=/run/x PG_PUBLIC_PORT=77 PG_SSLMODE=disable
        export PG_HOST PG_PORT PG_ADMIN_USER PG_ADMIN_PASSWORD PG_PUBLIC_HOST PG_PUBLIC_PORT PG_SSLMODE
        run provision $small --instance-id newline
        run bind $small --instance-id newline --binding-id b
        cp "$tmp/out" "$tmp/bound"
        run deprovision $small --instance-id newline
    )
    out=$(cat "$tmp/bound")
    field password "$out" >>"$tmp/passwords"
    contains "the address given out" "@%2Frun%2Fx:77/osb_" "$(field uri "$out")"
    contains "with its TLS mode" "?sslmode=disable" "$(field uri "$out")"
}

# absent NAME FILE SECRETS: none of the lines of SECRETS is in FILE.
absent() {
    if [ ! -s "$2" ]; then
        not_ok "$1: nothing was recorded in $2"
    elif grep -qF -f "$3" "$2"; then
        not_ok "$1"
    else
        ok
    fi
}

secrets_stay_secret() {
    printf '%s\n%s\n' "$super_password" "$limited_password" >"$tmp/admin-passwords"
    cat "$tmp/admin-passwords" "$tmp/passwords" >"$tmp/all-passwords"
    absent "admin password on stdout" "$tmp/everything.out" "$tmp/admin-passwords"
    absent "password on stderr" "$tmp/everything.err" "$tmp/all-passwords"
    absent "password in the arguments of psql" "$tmp/psql.arguments" "$tmp/all-passwords"
    absent "password in the server's log" "$tmp/server/log" "$tmp/all-passwords"
    kill "$watcher"
    wait "$watcher" 2>/dev/null
    watcher=''
    absent "password in the process list" "$tmp/processes" "$tmp/all-passwords"
    contains "the process list was watched" "broker" "$(grep -m1 'broker provision' "$tmp/processes")"
}

main() {
    find_bindir || {
        echo "skipped: initdb, pg_ctl and psql are needed; set PG_BINDIR"
        exit 77
    }
    real_psql=$(command -v psql)
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/postgres-broker-XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 1' INT TERM HUP
    mkdir "$tmp/server" "$tmp/bin"
    # Passwords with everything that a shell, SQL or a connection string could stumble over.
    super_password="planted '\"\$HOME\\ %s=;$(random_hex 12)"
    limited_password="planted \`id\` :'x' &$(random_hex 12)"
    : >"$tmp/everything.out"
    start_server || exit 1
    password=$limited_password super <<'SQL' || exit 1
\getenv password password
CREATE ROLE limited LOGIN CREATEDB CREATEROLE PASSWORD :'password';
SQL

    # The broker finds a psql that notes its arguments first.
    cat >"$tmp/bin/psql" <<SHIM
#!/bin/sh
printf '%s\n' "\$@" >>"$tmp/psql.arguments"
exec "$real_psql" "\$@"
SHIM
    chmod +x "$tmp/bin/psql"
    PATH=$tmp/bin:$PATH
    while :; do
        ps -eo args
        sleep 0.1
    done >"$tmp/processes" 2>/dev/null &
    watcher=$!

    export PATH PG_HOST=127.0.0.1 PG_PORT="$port" PG_ADMIN_USER PG_ADMIN_PASSWORD
    for administrator in super limited; do
        PG_ADMIN_USER=$administrator
        eval "PG_ADMIN_PASSWORD=\$${administrator}_password"
        catalog_needs_nothing
        wrong_use_is_explained
        plain_v1_life
        tenants_are_isolated
        a_binding_may_be_read_only
        parameters_and_update
        many_at_once
        a_cut_run_can_be_finished_or_undone
        configuration_may_end_in_newlines
    done
    ids_may_be_any_text
    secrets_stay_secret
    finished=yes
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

main
