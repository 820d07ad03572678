#!/bin/sh
# The broker of settings on a cluster: install, catalog, provision, bind, unbind, an order that fails, deprovision,
# remove; and one of its two replicas is killed while it works.
#
# Needs kubectl, curl and the image settings-broker:dev of `cargo xtask images` in the cluster. Everything is in the
# namespace settings-broker, which is gone at the end, however that comes; the definitions of our resources stay.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
namespace=settings-broker broker=settings-broker
service=7d0c6a52-settings

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'walk: %s\n' "$*" >&2; exit 1; }
in_namespace() { kubectl --namespace "$namespace" "$@"; }

# Whatever happened, nothing stays; what went wrong is shown before it goes.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    if [ $code -ne 0 ] && [ -n "${ours:-}" ]; then
        in_namespace get pods,configmaps,serviceinstances.manciple.dev,servicebindings.manciple.dev 2>&1 || :
        in_namespace get events --field-selector type=Warning 2>&1 || :
        in_namespace logs --selector "app.kubernetes.io/name=$broker" --tail=20 --prefix 2>&1 || :
        in_namespace delete deployment "$broker" --ignore-not-found --wait=false || :
        # The broker is not asked any more: what it made goes with the namespace.
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

# until_so WHAT COMMAND…: repeats it until it succeeds.
until_so() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "it is never so: $what"
        sleep 1
    done
}

# ask STATUS METHOD PATH [BODY]: leaves the answer in the file `answer`; its status has to be this.
ask() {
    expected=$1 method=$2 path=$3
    set -- ${4:+--data "$4"}
    status=$(curl --config "$tmp/curl" --request "$method" "$@" "$url/v2/$path")
    [ "$status" = "$expected" ] ||
        fail "$method $path was answered $status, not $expected: $(cat "$tmp/answer")"
}

# provision INSTANCE PLAN PARAMETERS
provision() {
    ask 202 PUT "service_instances/$1?accepts_incomplete=true" "{\"service_id\": \"$service\", \"plan_id\": \"$2\",
        \"organization_guid\": \"-\", \"space_guid\": \"-\", \"parameters\": $3}"
}

# Follows the last operation of an instance until it has ended.
follow() { until_so "the operation of $1 has ended" has_ended "$1"; }
has_ended() {
    status=$(curl --config "$tmp/curl" "$url/v2/service_instances/$1/last_operation")
    case $status:$(cat "$tmp/answer") in
    200:*succeeded* | 410:*) ;;
    200:*'in progress'*) return 1 ;;
    *) fail "the operation has not succeeded: $status: $(cat "$tmp/answer")" ;;
    esac
}

has_failed() {
    ask 200 GET "service_instances/$1/last_operation"
    grep -q '"state":"failed"' "$tmp/answer"
}

# last_operation INSTANCE FIELD: of its resource.
last_operation() {
    in_namespace get serviceinstances.manciple.dev \
        --output "jsonpath={.items[?(@.spec.instanceID==\"$1\")].status.lastOperation.$2}"
}

# What the broker has made: its instances' ConfigMaps, as NAME COLOUR.
made() {
    in_namespace get configmaps --selector app.kubernetes.io/managed-by=settings \
        --output 'jsonpath={range .items[*]}{.metadata.name} {.data.colour}{"\n"}{end}'
}

# The colours of what there is are these.
are() {
    found=$(made | cut -d ' ' -f 2 | sort | xargs)
    [ "$found" = "$1" ] || fail "the colours of what was made are '$found', not '$1'"
}

say "Install: the definitions of our resources, a password that nobody guesses, and the broker"
kubectl apply --kustomize "$here/../../deploy/crds"
# One that went wrong may still be on its way out.
kubectl wait --for delete "namespace/$namespace" --timeout 120s 2>/dev/null || :
kubectl create namespace "$namespace"
ours=yes
umask 077
od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n' >"$tmp/password"
in_namespace create secret generic "$broker" --from-file "$tmp/password"
kubectl apply --kustomize "$here/kubernetes"
in_namespace rollout status "deployment/$broker" --timeout 300s
is_behind() { kubectl get --raw "/api/v1/namespaces/$namespace/services/$broker:http/proxy/readyz" 2>/dev/null; }
until_so "the Service leads to the broker" is_behind

say "Which replica carries out what is ordered? The other is asked"
leads() { in_namespace get leases --output 'jsonpath={.items[*].spec.holderIdentity}'; }
is_led() { leader=$(leads) && [ -n "$leader" ]; }
until_so "somebody leads" is_led
other=$(in_namespace get pods --selector "app.kubernetes.io/name=$broker" --output name | grep -v "/$leader\$")
echo "$leader leads, $other is asked"
kubectl --namespace "$namespace" port-forward "$other" :8080 >"$tmp/forward" &
forward=$!
until port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$tmp/forward") && [ -n "$port" ]; do
    kill -0 "$forward" || fail "no port is forwarded"
    sleep 0.1
done
url=http://127.0.0.1:$port
# In a file: what stands in a command line, others can read.
cat >"$tmp/curl" <<CONFIG
header = "X-Broker-API-Version: 2.17"
header = "Content-Type: application/json"
output = "$tmp/answer"
write-out = "%{http_code}"
silent
show-error
max-time = 60
CONFIG
ask 401 GET catalog
printf 'user = "platform:%s"\n' "$(cat "$tmp/password")" >>"$tmp/curl"

say "Catalog"
ask 200 GET catalog
cat "$tmp/answer"
echo

say "Provision: an instance is a ConfigMap"
provision shop e2b1-at-once '{"values": {"colour": "green"}}'
follow shop
in_namespace get serviceinstances.manciple.dev
made
are green

say "Bind: the credentials; and unbind"
binding=service_instances/shop/service_bindings/web
ask 201 PUT "$binding" "{\"service_id\": \"$service\", \"plan_id\": \"e2b1-at-once\"}"
cat "$tmp/answer"
echo
grep -q '"colour":"green"' "$tmp/answer" || fail "the credentials do not hold the settings"
in_namespace get servicebindings.manciple.dev
ask 200 DELETE "$binding?service_id=$service&plan_id=e2b1-at-once"

say "An order fails that cannot be carried out, and an Event says why"
provision odd e2b1-at-once '{"values": {"not a key": "of a ConfigMap"}}'
until_so "the order of odd has failed" has_failed odd
told() {
    in_namespace get events --field-selector type=Warning,reason=ProvisionFailed,involvedObject.kind=ServiceInstance \
        --output 'jsonpath={.items[*].message}'
}
is_told() { [ -n "$(told)" ]; }
until_so "an Event says why the order failed" is_told
told
echo
are green

say "The replica that leads is killed while it provisions: another goes on, with a second attempt"
# Longer than it takes to kill it, on a busy machine too.
provision blog e2b1-later '{"seconds": 40, "values": {"colour": "blue"}}'
has_begun() { [ "$(last_operation blog description)" = waiting ]; }
until_so "$leader provisions" has_begun
in_namespace logs "$leader" --tail=-1 >"$tmp/log"
in_namespace delete "pod/$leader" --grace-period 0 --force --wait=false
follow blog
are "blue green"
attempt=$(last_operation blog attempt)
[ "$attempt" = 2 ] || fail "blog was provisioned by attempt $attempt, not 2"
another_leads() { [ -n "$(leads)" ] && [ "$(leads)" != "$leader" ]; }
until_so "another leads than $leader" another_leads

say "Deprovision"
ask 202 DELETE "service_instances/shop?accepts_incomplete=true&service_id=$service&plan_id=e2b1-at-once"
follow shop
are blue

say "To delete the resource is to deprovision, too"
in_namespace delete serviceinstances.manciple.dev --all --timeout 180s
are ""
ask 404 GET service_instances/blog

say "No right was missing"
in_namespace rollout status "deployment/$broker" --timeout 300s
for pod in $(in_namespace get pods --selector "app.kubernetes.io/name=$broker" --output name); do
    in_namespace logs "$pod" --tail=-1 >>"$tmp/log"
done
[ -s "$tmp/log" ] || fail "nothing was logged"
! grep -E '[Ff]orbidden| may not ' "$tmp/log" || fail "the broker has not all the rights that it needs"

say "Remove"
kill "$forward"
kubectl delete --kustomize "$here/kubernetes" --timeout 180s
# Nobody asks them any more: the namespace is not to wait for the time that they have.
in_namespace delete pods --all --grace-period 0 --force
kubectl delete namespace "$namespace" --timeout 300s

say "Done"
