#!/usr/bin/env bash
# From nothing to text: installs what is missing, builds build/entrodraft and continues a prompt with the
# demo pair on two ranks. GPU code is built where a GPU is, or with -DENTRODRAFT_CUDA=ON as the first argument (settings of
# CMake come first). Further arguments are passed on to `entrodraft generate`, for instance
#   launch/quickstart.sh --prompt "It was a dark night" --stop-rule static --max-new-tokens 200
# With --real before them, a real model answers a question: SmolLM2-135M-Instruct (93 MB, Apache-2.0), whose file comes from a
# Python package and is kept in .models/. Look-ups in its own text draft for it.
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
real=OFF
if [ "${1:-}" = --real ]; then real=ON && shift; fi
prepare OFF "${settings[@]}"
build entrodraft
[ $real = OFF ] || python3 launch/real_model.py .models || die "no real model: see above"

options=(--bind-to none)
[ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
[ "$(nproc)" -ge 2 ] || options+=(--oversubscribe)

target=model/demo/target drafting=(--draft model/demo/draft)
prompt=(--prompt "The old house stood at the end of the lane, and") chat=()
if [ $real = ON ]; then
    target=.models/smollm2-135m-instruct.gguf drafting=(--drafter ngram)
    prompt=(--prompt "Name three primary colors, then explain in one sentence how they mix.") chat=(--chat)
fi
arguments=()
given --target "$@" || arguments+=(--target "$target")
given --draft "$@" || given --drafter "$@" || arguments+=("${drafting[@]}")
given --prompt "$@" || given --input "$@" || arguments+=("${prompt[@]}")
given --chat "$@" || given --input "$@" || given --target "$@" || arguments+=("${chat[@]}")

exec mpirun -n 2 "${options[@]}" build/entrodraft generate "${arguments[@]}" "$@"
