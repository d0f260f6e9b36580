#!/usr/bin/env bash
# Installs what is missing, builds everything into build/ and runs the tests.
#   tests/run.sh              labels quick, unit, mpi, hosts and smoke: half an hour on two slow cores
#   tests/run.sh --also stand_in --also models --also stand_in_models --also real   these labels too: code for GPUs on the CPU;
#                             every family, head and quantised form; both; a real model of 93 MB
#   tests/run.sh --quick      label quick: a minute where the build is there
#   tests/run.sh --slurm      all of these; installs Slurm first where it may, without which smoke skips
#   tests/run.sh --all        every label: nightly, fault, slurm, slow and gpu as well; installs Slurm and Python's packages too
#   tests/run.sh --strict     after one of these or alone: compiler warnings are errors
#   tests/run.sh -DENTRODRAFT_CUDA=ON   settings of CMake, after these: GPU code where no GPU is
# Further arguments are passed on to ctest, for instance -R Layering.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/setup.sh
. launch/setup.sh

names='quick|unit|mpi|hosts|smoke'
wanted=(iproute2)
case ${1:-} in
--quick) names=quick && shift ;;
--slurm) wanted=("${kSlurmPackages[@]}") && shift ;;
--all)
    names='.*'
    wanted=("${kSlurmPackages[@]}")
    install_python_packages numpy gguf && rm -f build/entrodraft-setup # tests run with the Python of .venv then
    shift
    ;;
esac
while [ "${1:-}" = --also ]; do names+="|$2" && shift 2; done
settings=()
if [ "${1:-}" = --strict ]; then
    settings=(-DENTRODRAFT_WARNINGS_AS_ERRORS=ON)
    shift
fi
while [[ ${1:-} == -D* ]]; do settings+=("$1") && shift; done

prepare ON "${settings[@]}"
ensure_if_possible "${wanted[@]}"
report_missing "${kSlurmPackages[@]}"
build all
exec ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" -L "^($names)\$" "$@"
