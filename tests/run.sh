#!/usr/bin/env bash
# Installs what is missing, builds everything into build/ and runs the tests.
#   tests/run.sh              labels unit and mpi: under ten minutes on two cores
#   tests/run.sh --all        every label: fault, slurm, slow and gpu as well
# Further arguments are passed on to ctest, for instance -R layering.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/setup.sh
. launch/setup.sh

labels=(-L '^(unit|mpi)$')
if [ "${1:-}" = --all ]; then
    labels=()
    shift
fi

prepare ON
build all
exec ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" "${labels[@]}" "$@"
