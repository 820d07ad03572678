#!/bin/sh
# The life of a service instance on a cluster: install, provision, bind, unbind, deprovision, remove.
#
# Needs kubectl, curl and the images of `cargo xtask images` in the cluster. Everything is in the namespace
# manciple-walk, which is gone at the end, however that comes; the definitions of our resources stay.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
namespace=manciple-walk
service=manciple-files plan=manciple-files-plain

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'walk: %s\n' "$*" >&2; exit 1; }
in_namespace() { kubectl --namespace "$namespace" "$@"; }

# Whatever happened, nothing stays; what went wrong is shown before it goes.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    if [ $code -ne 0 ] && [ -n "${ours:-}" ]; then
        in_namespace get pods,jobs,serviceinstances.manciple.dev,servicebindings.manciple.dev 2>&1 || :
        in_namespace logs deployment/manciple --tail=40 2>&1 || :
        # The broker is not asked any more: what it made stays.
        for held in $(in_namespace get serviceinstances.manciple.dev,servicebindings.manciple.dev --output name 2>/dev/null); do
            in_namespace patch "$held" --type merge --patch '{"metadata":{"finalizers":null}}' || :
        done
        kubectl delete namespace "$namespace" --ignore-not-found --wait=false || :
    fi >&2
    [ -z "${forward:-}" ] || kill "$forward" 2>/dev/null || :
    rm -rf "$tmp"
    exit $code
}
tmp=$(mktemp -d)
trap clean_up EXIT
trap 'exit 1' INT TERM

# Text that nobody guesses.
secret() { od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# ask STATUS METHOD PATH [BODY]: leaves the answer in the file `answer`; its status has to be this.
ask() {
    expected=$1 method=$2 path=$3
    set -- ${4:+--data "$4"}
    status=$(curl --config "$tmp/curl" --request "$method" "$@" "$url/v2/$path")
    [ "$status" = "$expected" ] ||
        fail "$method $path was answered $status, not $expected: $(cat "$tmp/answer")"
}

# Prints what was answered.
show() { cat "$tmp/answer"; echo; }

# Follows the last operation of an instance until it has ended.
follow() {
    while :; do
        status=$(curl --config "$tmp/curl" "$url/v2/service_instances/$1/last_operation")
        case $status:$(cat "$tmp/answer") in
        200:*succeeded* | 410:*) return ;;
        200:*'in progress'*) sleep 0.3 ;;
        *) fail "the operation has not succeeded: $status: $(cat "$tmp/answer")" ;;
        esac
    done
}

say "Install: the definitions of our resources, and Manciple in a namespace of its own"
kubectl apply --kustomize "$here/../../deploy/crds"
# One that went wrong may still be on its way out.
kubectl wait --for delete "namespace/$namespace" --timeout 120s 2>/dev/null || :
kubectl create namespace "$namespace"
ours=yes
umask 077
secret >"$tmp/platform.password"
secret >"$tmp/operator.password"
in_namespace create secret generic manciple-credentials \
    --from-file "$tmp/platform.password" --from-file "$tmp/operator.password"
kubectl apply --kustomize "$here"
in_namespace rollout status deployment/manciple --timeout 300s

say "Reach it, as the platform"
kubectl --namespace "$namespace" port-forward deployment/manciple :8080 >"$tmp/forward" &
forward=$!
until port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$tmp/forward") && [ -n "$port" ]; do
    kill -0 "$forward" || fail "no port is forwarded"
    sleep 0.1
done
url=http://127.0.0.1:$port
# In a file: what stands in a command line, others can read.
cat >"$tmp/curl" <<CONFIG
user = "platform:$(cat "$tmp/platform.password")"
header = "X-Broker-API-Version: 2.17"
header = "Content-Type: application/json"
output = "$tmp/answer"
write-out = "%{http_code}"
silent
show-error
max-time = 60
CONFIG
ask 200 GET catalog
show

wanted="\"service_id\":\"$service\",\"plan_id\":\"$plan\""
order="{$wanted,\"organization_guid\":\"walk\",\"space_guid\":\"walk\"}"
query="service_id=$service&plan_id=$plan"

say "Provision"
ask 202 PUT 'service_instances/shop?accepts_incomplete=true' "$order"
in_namespace get serviceinstances.manciple.dev
follow shop
in_namespace get serviceinstances.manciple.dev

say "Bind: the credentials"
ask 201 PUT service_instances/shop/service_bindings/web "{$wanted}"
show
grep -q '"token"' "$tmp/answer" || fail "there are no credentials"
in_namespace get servicebindings.manciple.dev

say "Unbind"
ask 200 DELETE "service_instances/shop/service_bindings/web?$query"

say "Deprovision"
ask 202 DELETE "service_instances/shop?accepts_incomplete=true&$query"
follow shop

say "To delete a resource is to deprovision, too"
ask 202 PUT 'service_instances/blog?accepts_incomplete=true' "$order"
follow blog
in_namespace delete serviceinstances.manciple.dev --all --timeout 180s

say "Nothing is left but what says so: Manciple's own, records of what is gone, and for a minute the names of Jobs"
tries=0
while :; do
    left=$(in_namespace get serviceinstances.manciple.dev,servicebindings.manciple.dev --output name)
    [ -n "$left" ] || break
    tries=$((tries + 1))
    [ $tries -lt 120 ] || fail "there is still $left"
    sleep 0.5
done
in_namespace get configmaps,secrets

say "Remove"
kill "$forward"
kubectl delete --kustomize "$here" --timeout 180s
# Its pods may take all the time that they have.
kubectl delete namespace "$namespace" --timeout 300s

say "Done"
