#!/bin/sh
# Drives the broker, without a server in front of it, on a directory of its own; as an unprivileged
# user when started by root, who could remove anything.
#
#   BROKER_SHELL  the shell to run the broker with (sh)
#
# $plain and $quota are lists of flags, split on purpose; hostile ids look like mistakes.
# shellcheck disable=SC2086,SC2016,SC1003
set -u
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0 finished=no

ok() {
    passed=$((passed + 1))
}

not_ok() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$*"
}

# equal NAME EXPECTED ACTUAL
equal() {
    if [ "$2" = "$3" ]; then ok; else not_ok "$1: expected '$2', got '$3'"; fi
}

as_tenant() {
    if [ "$(id -u)" = 0 ]; then runuser -u nobody -- "$@"; else "$@"; fi
}

# run SUBCOMMAND FLAGS...: leaves out, err and code.
run() {
    as_tenant env FILES_ROOT="$root" timeout 30 "${BROKER_SHELL:-sh}" "$tmp/broker" "$@" \
        >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    out=$(cat "$tmp/out")
    err=$(cat "$tmp/err")
}

# succeeds NAME SUBCOMMAND...
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
    case $err in
    *"$reason"*) ok ;;
    *) not_ok "$label: '$reason' is not in '$err'" ;;
    esac
}

plain='--service-id manciple-files --plan-id manciple-files-plain'
quota='--service-id manciple-files --plan-id manciple-files-quota'

# field NAME: one credential of out. The broker writes no quotes inside values.
field() {
    printf '%s\n' "$out" | sed -n 's/.*"'"$1"'": "\([^"]*\)".*/\1/p'
}

leftovers() {
    find "$tmp/root" -mindepth 1 | wc -l | tr -d ' '
}

wrong_use_is_explained() {
    run catalog
    equal "the catalog lists both plans" 2 "$(printf '%s' "$out" | grep -o '"id": "manciple-files-[a-z]*"' | wc -l | tr -d ' ')"
    refuses "no subcommand" "use one of"
    refuses "unknown subcommand" "use one of" explode
    refuses "a function of the script" "use one of" write
    refuses "no instance id" "--instance-id is missing" provision $plain
    refuses "empty instance id" "--instance-id is missing" deprovision $plain --instance-id=
    refuses "no binding id" "--binding-id is missing" bind $plain --instance-id a
    refuses "no binding id" "--binding-id is missing" unbind $plain --instance-id a --binding-id ''
    refuses "flag without value" "--instance-id needs a value" provision $plain --instance-id
    refuses "unknown flag" "unknown flag --colour" provision $plain --colour red
    refuses "unknown plan" "no plan with the id" provision --plan-id huge --instance-id a
    refuses "bind without instance" "does not exist" bind $plain --instance-id none --binding-id b
    root='' refuses "no root" "not set to an absolute path" provision $plain --instance-id a
    root=relative refuses "relative root" "not set to an absolute path" provision $plain --instance-id a
    root='/a"b' refuses "root that is no JSON" "may hold letters" provision $plain --instance-id a
    root=/proc/nowhere refuses "root that cannot be" "/proc/nowhere" provision $plain --instance-id a
    equal "nothing was made of all this" 0 "$(leftovers)"
}

a_life() {
    succeeds "provision" provision $plain --instance-id one
    equal "provision answers JSON" '{}' "$out"
    root="$root
" succeeds "provision again, by a root read from a file" provision $plain --instance-id one
    succeeds "bind" bind $plain --instance-id one --binding-id b1
    path=$(field path) token=$(field token)
    equal "token length" 48 "${#token}"
    equal "for its owner only" 0 "$(find "$root" -mindepth 1 ! -perm 600 ! -perm 700 | wc -l | tr -d ' ')"
    as_tenant touch "$path/kept"
    succeeds "bind again, flag=value" bind --service-id=x --plan-id=y --instance-id=one --binding-id=b1
    equal "same token" "$token" "$(field token)"
    equal "the token is on disk" 1 "$(grep -rlF "$token" "$root" | wc -l | tr -d ' ')"
    succeeds "second binding" bind $plain --instance-id one --binding-id b2
    if [ "$(field token)" = "$token" ]; then not_ok "bindings share a token"; else ok; fi
    succeeds "unbind" unbind $plain --instance-id one --binding-id b1
    equal "unbind answers JSON" '{}' "$out"
    equal "the token is gone" '' "$(grep -rlF "$token" "$root")"
    succeeds "unbind again" unbind $plain --instance-id one --binding-id b1
    succeeds "unbind of what never was" unbind $plain --instance-id never --binding-id b1
    succeeds "provision keeps data" provision $plain --instance-id one
    equal "data is kept" "$path/kept" "$(ls "$path/kept")"

    # What a tenant may leave behind.
    echo precious >"$tmp/precious"
    as_tenant sh -c 'cd "$1" && ln -s "$2" link && mkdir -p locked/deep && touch -- locked/deep/-f &&
        chmod 0 locked/deep && chmod 500 locked' sh "$path" "$tmp"
    succeeds "deprovision with a binding left" deprovision $plain --instance-id one
    equal "all is gone" 0 "$(leftovers)"
    equal "nothing beyond is" precious "$(cat "$tmp/precious")"
    succeeds "deprovision again" deprovision $plain --instance-id one
    refuses "bind after deprovision" "does not exist" bind $plain --instance-id one --binding-id b1
}

quotas_count() {
    succeeds "provision" provision $quota --instance-id q
    succeeds "bind" bind $quota --instance-id q --binding-id b
    path=$(field path)
    echo 10 >"${path%/data}/quota"
    as_tenant dd if=/dev/zero of="$path/big" bs=1024 count=50 2>/dev/null
    refuses "over its quota" "over its quota" bind $quota --instance-id q --binding-id b2
    succeeds "unbind" unbind $quota --instance-id q --binding-id b
    succeeds "deprovision" deprovision $quota --instance-id q
    equal "nothing is left" 0 "$(leftovers)"
}

ids_may_be_anything() {
    long=$(printf '%10000s' '' | tr ' ' x)
    newline='two
lines'
    for id in "it's" 'say "hi"' ../../escape / . .. -rf --plan-id "\$(touch $tmp/pwned)" "\`touch $tmp/pwned\`" \
        'привіт 🦀' "$(printf 'a\377b')" "$newline" "$long" '%s%n%1$s' 'back\slash\' ' ' '*'; do
        short=$(printf '%.20s' "$id")
        succeeds "provision $short" provision $plain --instance-id "$id"
        equal "$short is kept" "$id" "$(cat "$root"/*/id)"
        succeeds "bind $short" bind $plain --instance-id "$id" --binding-id "$id"
        equal "$short has a token" 48 "$(field token | tr -d '\n' | wc -c | tr -d ' ')"
        succeeds "unbind $short" unbind $plain --instance-id "$id" --binding-id "$id"
        equal "$short has none" 0 "$(find "$root"/*/tokens -type f | wc -l | tr -d ' ')"
        succeeds "deprovision $short" deprovision $plain --instance-id "$id"
        equal "$short left nothing" 0 "$(leftovers)"
    done
    if [ -e "$tmp/pwned" ]; then not_ok "an id was run as a command"; else ok; fi
}

main() {
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/files-broker-XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 1' INT TERM HUP
    root=$tmp/root
    mkdir -m 777 "$root"
    # The source tree may be closed to the unprivileged user.
    cp "$here/broker" "$tmp/broker"
    chmod 755 "$tmp" "$tmp/broker"
    wrong_use_is_explained
    a_life
    quotas_count
    ids_may_be_anything
    finished=yes
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

clean_up() {
    trap - EXIT INT TERM HUP
    [ "$finished" = yes ] || {
        echo "FAILED: the tests did not run to their end"
        echo "$passed passed, $((failed + 1)) failed"
    }
    rm -rf "$tmp"
}

main
