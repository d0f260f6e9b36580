#!/usr/bin/env bash
# Installs what is missing, builds everything into build/ and runs the tests.
#   tests/run.sh              labels unit, mpi, hosts and smoke: under fifteen minutes on two cores
#   tests/run.sh --slurm      the same; installs Slurm first where it may, without which smoke skips
#   tests/run.sh --all        every label: fault, slurm, slow and gpu as well; installs Slurm too
#   tests/run.sh --strict     after one of these or alone: compiler warnings are errors
#   tests/run.sh -DENTRODRAFT_CUDA=ON   settings of CMake, after these: GPU code where no GPU is
# Further arguments are passed on to ctest, for instance -R layering.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/setup.sh
. launch/setup.sh

labels=(-L '^(unit|mpi|hosts|smoke)$')
slurm=report_slurm
case ${1:-} in
--all) labels=() ;;&
--all | --slurm) slurm=prepare_slurm && shift ;;
esac
settings=()
if [ "${1:-}" = --strict ]; then
    settings=(-DENTRODRAFT_WARNINGS_AS_ERRORS=ON)
    shift
fi
while [[ ${1:-} == -D* ]]; do settings+=("$1") && shift; done

prepare ON "${settings[@]}"
$slurm
build all
exec ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" "${labels[@]}" "$@"
