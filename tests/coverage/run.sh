#!/usr/bin/env bash
# Which lines and branches the tests reach, by module: builds build-coverage/ and runs labels quick, unit and mpi in it, but for the
# exactness of spec over ranks, which takes half an hour there and reaches what its unit tests reach.
#   tests/coverage/run.sh [ctest arguments]
# Needs gcovr (Debian, PyPI). Pages with every line: build-coverage/html/index.html. Exit code 1 where a module of dist, model
# and spec has fewer than 90 of 100 lines reached; failing tests are said and do not end it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v gcovr >/dev/null; then
    echo "no coverage: needs gcovr (apt-get install gcovr, or pip install gcovr)" >&2
    exit 77
fi
build=build-coverage
[ -f $build/build.ninja ] || cmake --preset coverage >/dev/null
cmake --build $build >&2
find $build -name '*.gcda' -delete
ctest --test-dir $build -L '^(quick|unit|mpi)$' -E '^spec_[124]_ranks$' -j "$(nproc)" "$@" >$build/tests.log 2>&1 ||
    { echo "some tests failed:" && sed -n '/The following tests FAILED/,$p' $build/tests.log; } >&2

mkdir -p $build/html
gcovr --root . --object-directory $build --filter '(dist|model|spec|launch)/' --exclude '.*_test\.cpp' \
    --exclude-unreachable-branches --exclude-throw-branches --gcov-ignore-parse-errors \
    --json-summary $build/coverage.json --html-details $build/html/index.html >/dev/null
python3 - $build/coverage.json <<'PYTHON'
import json
import sys

LEAST = {"dist": 0.9, "model": 0.9, "spec": 0.9, "launch": 0}
modules = {module: [0, 0, 0, 0] for module in LEAST}
for file in json.load(open(sys.argv[1]))["files"]:
    counts = modules.get(file["filename"].split("/")[0])
    if counts:
        for i, key in enumerate(("line_covered", "line_total", "branch_covered", "branch_total")):
            counts[i] += file[key]
print(f"{'module':8} {'lines':>8} {'reached':>9} {'branches':>9} {'reached':>9}")
short = []
for module, (lines, all_lines, branches, all_branches) in modules.items():
    print(f"{module:8} {all_lines:8} {lines / max(1, all_lines):9.1%} {all_branches:9} {branches / max(1, all_branches):9.1%}")
    if lines < LEAST[module] * all_lines or all_lines == 0:
        short.append(module)
if short:
    sys.exit(f"fewer than 90 % of lines reached in {', '.join(short)}")
PYTHON
