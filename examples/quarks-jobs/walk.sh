#!/bin/sh
# What QuarksJobs do, on a cluster: install the controller, run each of the jobs that are here, and remove it all.
#
# Needs kubectl and a cluster with the image manciple:dev of `cargo xtask images`, and:
#
#   IMAGE        instead of busybox:1, for the jobs
#   CONTROLLER   a file with the controller's objects, instead of the overlay that is here
#   PROGRAM      manciple, for what people ask of `manciple job`; without it that is left out
#
# The controller is in the namespace manciple-quarks-walk, the jobs in quarks-jobs-walk. Both are gone at the end,
# however that comes; the definitions of resources stay.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=manciple-quarks-walk jobs=quarks-jobs-walk
image=${IMAGE:-busybox:1}

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'walk: %s\n' "$*" >&2; exit 1; }
at_home() { kubectl --namespace "$home" "$@"; }
in_jobs() { kubectl --namespace "$jobs" "$@"; }
controller() {
    verb=$1
    shift
    case ${CONTROLLER:-} in
    '') kubectl "$verb" --kustomize "$here" "$@" ;;
    *) kubectl "$verb" --filename "$CONTROLLER" "$@" ;;
    esac
}

# Whatever happened, nothing stays; what went wrong is shown before it goes.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    if [ $code -ne 0 ] && [ -n "${ours:-}" ]; then
        in_jobs get jobs,pods 2>&1 || :
        in_jobs get quarksjobs,extendedjobs --output wide 2>&1 || :
        at_home get pods 2>&1 || :
        at_home logs deployment/manciple-controller --tail=40 2>&1 || :
        controller delete --ignore-not-found --wait=false || :
        kubectl delete namespace "$jobs" "$home" --ignore-not-found --wait=false || :
    fi >&2
    exit $code
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# Each job that is here is run.
for file in "$here"/*.yaml; do
    name=${file##*/}
    case $name in
    controller.yaml | kustomization.yaml) ;;
    *) grep -qF "$name" "$0" || fail "nothing runs $name" ;;
    esac
done

# run FILE: applies what is in it, with the image of this walk.
run() { sed "s|image: busybox:1|image: $image|" "$here/$1" | in_jobs apply --filename -; }

# now JOB: tells an errand to run.
now() { in_jobs patch quarksjob "$1" --type merge --patch '{"spec":{"trigger":{"strategy":"now"}}}'; }

# until WHAT COMMAND…: repeats it until it succeeds.
until_so() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "it is never so: $what"
        sleep 1
    done
}

# of JOB PATH: a member of a QuarksJob.
of() { in_jobs get quarksjob "$1" --output "jsonpath={$2}"; }

# ended JOB RUN REASON: waits for the end of a run, which has this reason.
ended() {
    path=".status.history[?(@.id==$2)].reason"
    has_ended() { [ -n "$(of "$1" "$2")" ]; }
    until_so "run $2 of $1 has ended" has_ended "$1" "$path"
    reason=$(of "$1" "$path")
    [ "$reason" = "$3" ] || fail "run $2 of $1 ended with $reason, not $3"
    in_jobs get quarksjob "$1"
}

# value SECRET KEY: what it holds.
value() { in_jobs get secret "$1" --output "jsonpath={.data.$2}" | base64 -d; }

# holds SECRET KEY VALUE
holds() { [ "$(value "$1" "$2")" = "$3" ] || fail "the Secret $1 holds other than $3 as its $2"; }

# The logs of the controller's replicas name every right that they were without. One may just be on its way out.
no_right_is_missing() {
    logs=
    for pod in $(at_home get pods --selector app.kubernetes.io/name=manciple-controller --output name); do
        logs="$logs$(at_home logs "$pod" --tail=-1 2>/dev/null || :)"
    done
    case $logs in
    *[Ff]orbidden*) fail "the controller has not all the rights that it needs" ;;
    *'it is monitored'*) ;;
    *) fail "the controller does not say what it monitors" ;;
    esac
}

say "Install: the definitions of our resources, and the controller in a namespace of its own"
kubectl apply --kustomize "$here/../../deploy/crds"
# One that went wrong may still be on its way out.
kubectl wait --for delete "namespace/$home" "namespace/$jobs" --timeout 120s 2>/dev/null || :
kubectl create namespace "$home"
ours=yes
kubectl create namespace "$jobs"
kubectl label namespace "$jobs" \
    "quarks.cloudfoundry.org/monitored=$jobs" quarks.cloudfoundry.org/qjob-service-account=default
controller apply
at_home rollout status deployment/manciple-controller --timeout 300s

say "One that runs each minute: looked at again below"
run schedule.yaml

say "An errand: told to run, twice"
run errand.yaml
now backup
ended backup 1 Completed
[ "$(of backup .spec.trigger.strategy)" = manual ] || fail "an errand is to be manual again"
now backup
ended backup 2 Completed

# The overlay that is here is strict.
if [ -z "${CONTROLLER:-}" ]; then
    say "What would do nothing where it stands is to be mended first"
    in_jobs patch quarksjob backup --type merge --patch \
        '{"spec":{"trigger":{"strategy":"now"},"template":{"backoffLimit":2}}}'
    waits() { of backup '.status.conditions[?(@.type=="Waiting")].message' | grep "$1"; }
    until_so "it says what is wrong" waits 'spec.template.backoffLimit: does nothing here'
    in_jobs patch quarksjob backup --type merge --patch '{"spec":{"template":{"backoffLimit":null}}}'
    ended backup 3 Completed
fi

if [ -n "${PROGRAM:-}" ]; then
    say "The same by the program: run it, list it, read its history and what it has printed"
    job() { "$PROGRAM" job "$@" --namespace "$jobs"; }
    job run backup --timeout 300s
    job list | grep -q '^backup .*Completed' || fail "the list does not say how backup ended: $(job list)"
    job history backup
    job history backup | grep -q Completed || fail "the history does not say how backup ended"
    job logs backup | grep 'everything is safe' || fail "the log does not say what backup has printed"
fi

say "A one-off, and its output"
run one-off.yaml
in_jobs wait --for condition=Succeeded quarksjob/password --timeout 180s
[ "$(of password .status.completed)" = true ] || fail "it is completed before it says so"
holds database username shop
[ "$(in_jobs get secret database --output jsonpath='{.metadata.labels.tier}')" = storage ] ||
    fail "the Secret has not the label that its file says"

say "One that follows its configuration"
run config.yaml
ended page 1 Completed
holds page html '<p>Good morning</p>'
in_jobs patch configmap greeting --patch '{"data":{"WORDS":"Good evening"}}'
ended page 2 Completed
holds page html '<p>Good evening</p>'

say "One that hangs, and is replaced when its configuration is mended"
run replace.yaml
hangs() { in_jobs get pods --selector quarks.cloudfoundry.org/qjob-name=import --output name \
    --field-selector status.phase=Running | grep -q .; }
until_so "the first run hangs" hangs
in_jobs patch configmap server --patch '{"data":{"ADDRESS":"db.example"}}'
ended import 2 Completed
[ "$(of import '.status.history[?(@.id==1)].reason')" = Replaced ] || fail "the first run was to be replaced"

say "One that waits for a Secret, and not for another"
run mounts.yaml
waits_for_ca() { of certificate-bundle '.status.conditions[?(@.type=="Waiting")].message' |
    grep -qx 'it waits for secret/ca'; }
until_so "it says what it waits for" waits_for_ca
in_jobs create secret generic ca --from-literal ca.crt=authority
ended certificate-bundle 1 Completed
holds bundle authorities authority
[ "$(in_jobs get secret bundle --output 'jsonpath={.metadata.annotations.example\.org/renewed-by}')" = certificate-bundle ] ||
    fail "the Secret bundle is not annotated"

say "Versions: each new one is read"
run versions.yaml
ended token 1 Completed
ended reader 1 Completed
holds seen token "$(value token-v1 token)"
now token
ended token 2 Completed
ended reader 2 Completed
holds seen token "$(value token-v2 token)"

say "A Secret for each key"
run fan-out.yaml
ended users 1 Completed
holds users-alice role admin
holds users-bob role guest

say "Versions for each container, by a prefix"
run prefix.yaml
ended keys 1 Completed
holds keys-public-v1 key 'for everybody'
holds keys-private-v1 key 'for nobody else'

say "A failure, and what it leaves"
run failure.yaml
ended check 1 BackoffLimitExceeded
holds report verdict 'two tables are missing'
[ "$(of check .status.completed)" = false ] || fail "what failed is not completed"
of check .status.lastRun.message
echo

say "One run of three pods"
run completions.yaml
ended shards 1 Completed
[ "$(in_jobs get pods --selector quarks.cloudfoundry.org/qjob-name=shards --output name | wc -l)" -eq 3 ] ||
    fail "three pods were to do the work"

say "One whose pods go with it"
run delete.yaml
ended sweep 1 Completed
no_pods() { [ -z "$(in_jobs get pods --selector quarks.cloudfoundry.org/qjob-name=sweep --output name)" ]; }
until_so "the pods of sweep are gone" no_pods

say "One that is over though a container beside it never ends"
run mesh.yaml
ended upload 1 Completed
holds uploaded files 3

say "Output that a sidecar brings home"
run sidecar.yaml
ended export 1 Completed
[ "$(value rows rows | wc -c)" -eq 20000 ] || fail "rows are missing"

say "Inputs: of one run, and of no other"
run inputs.yaml
in_jobs patch quarksjob dump --type merge --patch \
    '{"spec":{"trigger":{"strategy":"now","inputs":[{"name":"TABLE","value":"users"}]}}}'
ended dump 1 Completed
holds dumped table users
now dump
ended dump 2 Completed
holds dumped table all
in_jobs delete quarksjob dump --timeout 120s
is_gone() { ! in_jobs get secret dumped >/dev/null 2>&1; }
until_so "the Secret has gone with what made it" is_gone

say "Inputs that stand in a ConfigMap and in a Secret, which is waited for"
run inputs-from.yaml
waits_for_login() { of copy '.status.conditions[?(@.type=="Waiting")].message' |
    grep -qx 'it waits for secret/source-login'; }
until_so "it says what it waits for" waits_for_login
in_jobs create secret generic source-login --from-literal password=open-sesame
ended copy 1 Completed
holds copied from old.example
holds copied letters 11
! in_jobs get quarksjob copy --output yaml | grep -q open-sesame || fail "the QuarksJob shows what the Secret holds"
now copy
ended copy 2 Completed
holds copied from new.example
holds copied letters 0

say "One that waits for the success of another"
run depends.yaml
ended schema 1 Completed
ended seed 1 Completed
now schema
ended schema 2 Completed
ended seed 2 Completed

say "A ConfigMap"
run config-map.yaml
ended measure 1 Completed
[ "$(in_jobs get configmap size --output 'jsonpath={.data.rows}')" = 12345678901234567890 ] ||
    fail "the ConfigMap size does not hold what was measured"

say "An ExtendedJob: three runs, of whose versions two are kept"
run extended.yaml
issued() { in_jobs get secrets --selector fissile.cloudfoundry.org/container-name=ca --output 'jsonpath={.items[*].metadata.name}'; }
for version in 1 2 3; do
    is_issued() { issued | grep -q "issued-ca-v$version"; }
    until_so "the Secret issued-ca-v$version is there" is_issued
    succeeded() { [ "$(in_jobs get ejob certificate --output 'jsonpath={.status.completed}')" = true ]; }
    until_so "run $version of the ExtendedJob has ended" succeeded
    [ $version -eq 3 ] || in_jobs patch ejob certificate --type merge --patch '{"spec":{"trigger":{"strategy":"now"}}}'
done
two_are_kept() { [ "$(issued)" = "issued-ca-v2 issued-ca-v3" ]; }
until_so "the last two versions are kept" two_are_kept

say "An ExtendedJob that follows its configuration"
run extended-config.yaml
has_zone() { [ "$(value records-write zone 2>/dev/null)" = "$1" ]; }
until_so "the zone is north" has_zone north
in_jobs patch configmap zones --patch '{"data":{"ZONE":"south"}}'
until_so "the zone is south" has_zone south

say "An ExtendedJob that fails, and what it leaves"
run extended-failure.yaml
is_found() { in_jobs get secret found-disk >/dev/null 2>&1; }
until_so "the Secret found-disk is there" is_found
holds found-disk verdict 'a disk is full'

say "ExtendedJobs that run for each pod that becomes ready, or comes, or goes"
run pod-state.yaml
run pod-states.yaml
is_followed() { in_jobs get ejob "$1" --output yaml | grep -q manciple.dev/runs; }
for name in smoke announce greet farewell; do until_so "the pods are followed by $name" is_followed "$name"; done
run pod-state-pod.yaml
has_run() { [ "$(in_jobs get ejob "$1" --output 'jsonpath={.status.lastRun.trigger}')" = pod-state ]; }
for name in announce greet smoke; do until_so "$name has run for the pod" has_run "$name"; done
! has_run farewell || fail "farewell has run, and the pod is there"
# It has no ear for SIGTERM.
in_jobs delete pod web --grace-period 1 --timeout 120s
until_so "farewell has run for the pod" has_run farewell

say "One that fails, is not told twice, and of which one Job is kept"
run forbid.yaml
goes_on() { in_jobs get pods --selector quarks.cloudfoundry.org/qjob-name=probe --output name \
    --field-selector status.phase=Running | grep -q .; }
until_so "it goes on" goes_on
now probe
is_taken() { [ "$(of probe .spec.trigger.strategy)" = manual ]; }
until_so "the trigger is passed over" is_taken
ended probe 1 BackoffLimitExceeded
now probe
ended probe 2 BackoffLimitExceeded
one_is_kept() { [ "$(in_jobs get jobs --output name | grep -c /probe-)" -eq 1 ]; }
until_so "one Job is kept" one_is_kept
[ "$(of probe '.status.history[*].id' | wc -w)" -eq 2 ] || fail "it ran for what it was told while it ran"

say "Never two at a time, whoever acts: the controller is replaced while the first run goes on"
run queue.yaml
taken() { [ "$(of migrate .spec.trigger.strategy)" = manual ]; }
until_so "the first run is recorded" taken
no_right_is_missing
now migrate
at_home rollout restart deployment/manciple-controller
ended migrate 1 Completed
ended migrate 2 Completed
first=$(of migrate '.status.history[?(@.id==1)].endedAt')
second=$(of migrate '.status.history[?(@.id==2)].startedAt')
[ "$(printf '%s\n%s\n' "$first" "$second" | sort | head -n 1)" = "$first" ] ||
    fail "the second run began at $second, before the first had ended at $first"
at_home rollout status deployment/manciple-controller --timeout 300s

say "The one that runs each minute has run, and keeps one Job"
# The first of them may be forgotten by now.
has_run_well() { [ "$(of beat .status.lastRun.reason)" = Completed ]; }
until_so "it has run" has_run_well
[ "$(of beat .status.lastRun.trigger)" = schedule ] || fail "it ran for something else"
kept() {
    of_beat=$(in_jobs get jobs --selector quarks.cloudfoundry.org/qjob-name=beat \
        --output jsonpath='{range .items[?(@.status.succeeded==1)]}x{end}')
    [ "$of_beat" = x ]
}
until_so "of those that have ended one Job is there" kept

say "What there is now: no Job but those that are kept, and no right was missing"
in_jobs get quarksjobs
in_jobs get events --field-selector type=Warning
only_those() { [ "$(in_jobs get jobs --output name | grep -vcE '/(check|beat|inspect|probe)-')" -eq 0 ]; }
until_so "only the Jobs that failed or are kept are there" only_those
no_right_is_missing

say "Remove"
in_jobs delete quarksjobs,extendedjobs --all --timeout 180s
controller delete
# Its pods may take all the time that they have.
kubectl delete namespace "$jobs" "$home" --timeout 300s

say "Done"
