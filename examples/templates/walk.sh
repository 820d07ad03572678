#!/bin/sh
# Templates as a service, on a cluster: install the broker, the controller and its webhook; order as somebody who may
# edit a namespace, by kubectl and through the broker, while the controller is replaced; and remove it all.
#
# Needs kubectl, curl, openssl and a cluster with the image manciple:dev of `cargo xtask images`, and:
#
#   IMAGE        instead of busybox:1, for the web page
#   MANCIPLE     instead of manciple:dev
#
# Manciple is in the namespace manciple-templates-walk, templates and instances in templates-walk. Both are gone at the
# end, however that comes; the definitions of resources stay, and what people may do with them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=manciple-templates-walk market=templates-walk
image=${IMAGE:-busybox:1} manciple=${MANCIPLE:-manciple:dev}
webhook=mutatingwebhookconfiguration/$home
# Ids of the platform's: UUIDs.
id=7a6c1c1e-0d3f-4d52-9a3c-1f3a5d0f7b11 binding=7a6c1c1e-0d3f-4d52-9a3c-1f3a5d0f7b12

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'walk: %s\n' "$*" >&2; exit 1; }
at_home() { kubectl --namespace "$home" "$@"; }
in_market() { kubectl --namespace "$market" "$@"; }

# What is of the whole cluster, and this installation's.
of_cluster() {
    kubectl delete "$webhook" --ignore-not-found
    kubectl delete --ignore-not-found "clusterrolebinding/$home-broker" "clusterrolebinding/$home-controller" \
        "clusterrolebinding/$home-requesters-broker" "clusterrolebinding/$home-requesters-controller" \
        "clusterrole/$home-broker" "clusterrole/$home-controller" "clusterrole/$home-requesters"
}

# Whatever happened, nothing stays; what went wrong is shown before it goes.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    if [ $code -ne 0 ] && [ -n "${ours:-}" ]; then
        in_market get templateinstances,pods,events 2>&1 || :
        at_home get pods,serviceinstances.manciple.dev 2>&1 || :
        at_home logs deployment/manciple --tail=40 2>&1 || :
        at_home logs --selector app.kubernetes.io/name=manciple-controller --tail=40 2>&1 || :
        of_cluster || :
        # Nobody makes or removes anything any more: what was made goes with the namespace.
        at_home delete deployments --all --wait=false || :
        for held in $(in_market get templateinstances,secrets --output name 2>/dev/null); do
            in_market patch "$held" --type merge --patch '{"metadata":{"finalizers":null}}' || :
        done
        for held in $(at_home get serviceinstances.manciple.dev,servicebindings.manciple.dev --output name 2>/dev/null); do
            at_home patch "$held" --type merge --patch '{"metadata":{"finalizers":null}}' || :
        done
        kubectl delete brokertemplateinstance "$id" --ignore-not-found --wait=false || :
        kubectl delete namespace "$market" "$home" --ignore-not-found --wait=false || :
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

# refused WORDS COMMAND…: insists that it fails, with these words.
refused() {
    words=$1
    shift
    ! said=$("$@" 2>&1) || fail "it was not refused: $*: $said"
    case $said in *"$words"*) printf '%s\n' "$said" ;; *) fail "it was refused otherwise, not by $words: $said" ;; esac
}

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

# Follows the last operation of the instance until it has ended.
follow() {
    while :; do
        status=$(curl --config "$tmp/curl" "$url/v2/service_instances/$id/last_operation")
        case $status:$(cat "$tmp/answer") in
        200:*succeeded* | 410:*) return ;;
        200:*'in progress'*) sleep 0.3 ;;
        *) fail "the operation has not succeeded: $status: $(cat "$tmp/answer")" ;;
        esac
    done
}

# instance NAME PARAMETERS [REQUESTER]: one of the template web, as JSON.
instance() {
    printf '{"apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance", "metadata": {"name": "%s"},
        "spec": {"secret": {"name": "%s"}, %s "template": %s}}' "$1" "$2" "${3:+\"requester\": $3,}" \
        "$(in_market get templates.template.openshift.io web --output json)"
}

# requester NAME: whom an instance is made for.
requester() { in_market get templateinstance "$1" --output 'jsonpath={.spec.requester.username}'; }

# The logs name every right that somebody was without.
no_right_is_missing() {
    for of in manciple manciple-controller; do
        for pod in $(at_home get pods --selector app.kubernetes.io/name=$of --output name); do
            case $(at_home logs "$pod" --tail=-1 2>/dev/null || :) in
            *[Ff]orbidden* | *' may not '*) fail "$pod has not all the rights that it needs" ;;
            esac
        done
    done
}

say "What is waited for: passwords, and a certificate of the webhook's that is its own authority"
kubectl wait --for delete "namespace/$home" "namespace/$market" --timeout 120s 2>/dev/null || :
kubectl create namespace "$home"
ours=yes
kubectl create namespace "$market"
kubectl label namespace "$market" "manciple.dev/walk=$market"
umask 077
secret >"$tmp/platform.password"
secret >"$tmp/operator.password"
at_home create secret generic manciple-credentials \
    --from-file "$tmp/platform.password" --from-file "$tmp/operator.password"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=manciple-webhook \
    -addext "subjectAltName=DNS:manciple-webhook.$home.svc" -keyout "$tmp/tls.key" -out "$tmp/tls.crt" 2>/dev/null
at_home create secret tls manciple-webhook --cert "$tmp/tls.crt" --key "$tmp/tls.key"

say "Install: definitions, rights, broker, controller, webhook; and whom the API server believes"
kubectl apply --kustomize "$here/../../deploy/crds"
case $manciple in
manciple:dev) kubectl apply --kustomize "$here" ;;
*) kubectl kustomize "$here" | sed "s|image: manciple:dev|image: $manciple|" | kubectl apply --filename - ;;
esac
kubectl patch "$webhook" --type json --patch \
    '[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "'"$(base64 -w0 "$tmp/tls.crt")"'"}]'
at_home rollout status deployment/manciple-controller --timeout 300s
at_home rollout status deployment/manciple --timeout 300s

say "Alice and Bob may edit the namespace, as OpenShift's users do"
for user in alice bob; do
    in_market create rolebinding "$user" --clusterrole edit --user "walk-$user"
done
may() { in_market auth can-i create templateinstances.template.openshift.io --as walk-alice >/dev/null; }
until_so "who may edit a namespace may make instances in it" may
made() { in_market apply --as walk-alice --filename "$here/web.yaml"; }
until_so "the API server asks the webhook" made

say "An instance of Alice's own, who says nothing of herself: the webhook does"
in_market create secret generic shop-parameters --from-literal NAME=shop --from-literal "IMAGE=$image" --as walk-alice
instance shop shop-parameters | in_market create --as walk-alice --filename -
[ "$(requester shop)" = walk-alice ] || fail "the requester is $(requester shop), not walk-alice"
in_market wait --for condition=Ready templateinstance/shop --timeout 180s
in_market get templateinstance shop

say "Nobody orders in another's name, or changes what another has ordered"
instance mine shop-parameters '{"username": "walk-alice"}' >"$tmp/mine.json"
refused 'you do not have permission to set username' in_market create --as walk-bob --filename "$tmp/mine.json"
refused 'field is immutable' in_market patch templateinstance shop --as walk-bob --type merge \
    --patch '{"spec": {"requester": {"username": "walk-bob"}}}'

say "Reach the broker, as the platform, for Alice"
kubectl --namespace "$home" port-forward deployment/manciple :8080 >"$tmp/forward" &
forward=$!
until port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$tmp/forward") && [ -n "$port" ]; do
    kill -0 "$forward" || fail "no port is forwarded"
    sleep 0.1
done
url=http://127.0.0.1:$port/brokers/template.openshift.io
who=$(printf '{"username": "walk-alice", "groups": ["system:authenticated"]}' | base64 -w0)
# In a file: what stands in a command line, others can read.
cat >"$tmp/curl" <<CONFIG
user = "platform:$(cat "$tmp/platform.password")"
header = "X-Broker-API-Version: 2.17"
header = "X-Broker-API-Originating-Identity: kubernetes $who"
header = "Content-Type: application/json"
output = "$tmp/answer"
write-out = "%{http_code}"
silent
show-error
max-time = 60
CONFIG
service=$(in_market get templates.template.openshift.io web --output 'jsonpath={.metadata.uid}')
offered() { ask 200 GET catalog && grep -q "$service" "$tmp/answer"; }
until_so "the template is offered" offered

say "Order it: the broker's TemplateInstance comes through the webhook"
wanted="\"service_id\": \"$service\", \"plan_id\": \"$service\""
# order REPLICAS
order() {
    ask 202 PUT "service_instances/$id?accepts_incomplete=true" "{$wanted, \"organization_guid\": \"-\",
        \"space_guid\": \"-\", \"parameters\": {\"NAME\": \"blog\", \"IMAGE\": \"$image\", \"REPLICAS\": \"$1\"},
        \"context\": {\"platform\": \"kubernetes\", \"namespace\": \"$market\"}}"
}
order 1

say "The controller that leads is taken away meanwhile; whoever asks the webhook is answered all the same"
leads() {
    held=$(at_home get leases --output 'jsonpath={.items[*].spec.holderIdentity}')
    for pod in $(at_home get pods --selector app.kubernetes.io/name=manciple-controller \
        --output 'jsonpath={.items[*].metadata.name}'); do
        case " $held" in *" $pod-"*) echo "$pod" ;; esac
    done
}
gone=$(leads)
[ -n "$gone" ] || fail "no controller leads"
at_home delete pod "$gone" --wait=false
instance another shop-parameters >"$tmp/another.json"
end=$(($(date +%s) + 7))
while [ "$(date +%s)" -lt "$end" ]; do
    in_market create --as walk-alice --dry-run=server --filename "$tmp/another.json" >/dev/null
    sleep 0.1
done
follow
[ "$(requester "$id")" = walk-alice ] || fail "the requester is $(requester "$id"), not walk-alice"
another_leads() { leader=$(leads) && [ -n "$leader" ] && [ "$leader" != "$gone" ]; }
until_so "somebody leads in the place of $gone" another_leads

say "Bind: what its objects expose"
ask 201 PUT "service_instances/$id/service_bindings/$binding" "{$wanted}"
grep -q '"password"' "$tmp/answer" || fail "there are no credentials"
ask 200 DELETE "service_instances/$id/service_bindings/$binding?service_id=$service&plan_id=$service"

say "Change it: the webhook lets the broker's change pass, and Bob's not"
ask 202 PATCH "service_instances/$id?accepts_incomplete=true" \
    "{\"service_id\": \"$service\", \"parameters\": {\"REPLICAS\": \"2\"}}"
follow
replicas=$(in_market get deployment blog --output 'jsonpath={.spec.replicas}')
[ "$replicas" = 2 ] || fail "there are $replicas replicas, not 2"
refused 'field is immutable' in_market patch templateinstance "$id" --as walk-bob --type merge \
    --patch '{"spec": {"secret": {"name": "shop-parameters"}}}'
in_market get templateinstances

say "Give both back"
in_market delete templateinstance shop --as walk-alice --wait=false
ask 202 DELETE "service_instances/$id?accepts_incomplete=true&service_id=$service&plan_id=$service"
follow
is_gone() { [ -z "$(in_market get templateinstance shop --ignore-not-found --output name)" ]; }
until_so "the instance is gone" is_gone

say "The record of another is deleted by an operator: it goes in Alice's name"
order 0
follow
at_home delete serviceinstances.manciple.dev --all --timeout 180s
left=$(in_market get deployments,configmaps,templateinstances,brokertemplateinstances --output name |
    grep -E "/(shop|blog|$id)\$" || :)
[ -z "$left" ] || fail "there is still $left"
no_right_is_missing

say "Remove"
kill "$forward"
at_home delete deployments --all --timeout 180s
of_cluster
# Its pods may take all the time that they have.
kubectl delete namespace "$market" "$home" --timeout 300s

say "Done"
