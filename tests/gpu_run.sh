#!/usr/bin/env bash
# The few minutes of a borrowed GPU.
#   tests/gpu_run.sh pack FOLDER [--build build] [--nccl DIR]   # here: all that has to travel (tests/gpu_carry.py)
#   FOLDER/run tests/gpu_run.sh first OUT                       # there: 540 s, what tells most
#   FOLDER/run tests/gpu_run.sh second OUT                      # there: 180 s, the rest
# Each leaves a file of JSON lines in OUT (first.jsonl, second.jsonl), and prints a table of at most 12,000 characters at
# its end. Further arguments go to tests/gpu_first.py. FOLDER/run --nccl VERSION takes one of the NCCLs that it has.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# minutes SECONDS PARTS LIMITS OUT NAME ARGUMENT...
minutes() {
    local seconds=$1 parts=$2 limits=$3 out=$4 name=$5
    shift 5
    mkdir -p "$out"
    python3 "$here/gpu_first.py" --seconds "$seconds" --parts "$parts" --limits "$limits" --output "$out/$name.jsonl" \
        --table 12000 "$@"
}

case ${1:-} in
pack) folder=${2:?a folder} && shift 2 && exec python3 "$here/gpu_carry.py" --output "$folder" "$@" ;;
first) minutes 540 machine,micro,tests,nccl,passes,switches,kernels,chains,prompts,texts \
    machine=20,micro=15,tests=60,nccl=50,passes=120,switches=50,kernels=80,chains=40,prompts=60,texts=45 \
    "${2:?a folder}" first "${@:3}" ;;
second) minutes 180 ranks,several,rounds,library,sanitizer ranks=25,several=40,rounds=40,library=45,sanitizer=30 \
    "${2:?a folder}" second "${@:3}" ;;
*) sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
