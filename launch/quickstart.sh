#!/usr/bin/env bash
# From nothing to text: installs what is missing, builds build/entrodraft and continues a prompt with the
# demo pair on two ranks. GPU code is built where a GPU is, or with -DENTRODRAFT_CUDA=ON as the first argument (settings of
# CMake come first). Further arguments are passed on to `entrodraft generate`, for instance
#   launch/quickstart.sh --prompt "It was a dark night" --stop-rule static --max-new-tokens 200
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/setup.sh
. launch/setup.sh

# given OPTION ARGUMENTS...: whether the arguments set the option.
given() {
    local option=$1 argument
    shift
    for argument in "$@"; do
        case $argument in "$option" | "$option"=*) return 0 ;; esac
    done
    return 1
}

[ -f model/demo/target/model.safetensors ] || die "model/demo/target holds no model.safetensors: is this a full checkout?"

settings=()
while [[ ${1:-} == -D* ]]; do settings+=("$1") && shift; done
prepare OFF "${settings[@]}"
build entrodraft

options=(--bind-to none)
[ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
[ "$(nproc)" -ge 2 ] || options+=(--oversubscribe)

arguments=()
given --target "$@" || arguments+=(--target model/demo/target)
given --draft "$@" || arguments+=(--draft model/demo/draft)
given --prompt "$@" || given --input "$@" || arguments+=(--prompt "The old house stood at the end of the lane, and")

exec mpirun -n 2 "${options[@]}" build/entrodraft generate "${arguments[@]}" "$@"
