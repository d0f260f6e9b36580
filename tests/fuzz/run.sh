#!/usr/bin/env bash
# Fuzzes every target with libFuzzer, AddressSanitizer and UBSan, and prints a table of executions and findings.
#   tests/fuzz/run.sh SECONDS             each target for so long, two at a time
#   tests/fuzz/run.sh SECONDS TARGET...   these alone, for instance safetensors pickle
#   tests/fuzz/run.sh SECONDS --keep ...  inputs that reach new code join the committed corpus, minimised
#   tests/fuzz/run.sh --configure         only configures build-fuzz, for what else is built there
# Inputs that crash, hang or take too much memory stay in build-fuzz/findings/. Exit code 1 where there is any;
# 77 where there is no clang with libFuzzer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:?how many seconds a target?}
shift
keep=
if [ "${1:-}" = --keep ]; then
    keep=yes
    shift
fi

find_clang() {
    local candidate
    for candidate in clang++ clang++-19 clang++-16; do # from 15 on: std::source_location
        command -v "$candidate" >/dev/null || continue
        if printf '%s\n' '#include <source_location>' 'std::source_location here = std::source_location::current();' \
            'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
            "$candidate" -std=c++20 -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

clang=$(find_clang)
if [ -z "$clang" ]; then
    echo "no fuzzing: needs clang 15 or later with libFuzzer (Debian 12: clang-16 libclang-rt-16-dev)" >&2
    exit 77
fi

build=build-fuzz
if [ ! -f $build/build.ninja ]; then
    cmake --preset fuzz -DCMAKE_CXX_COMPILER="$clang" >/dev/null
fi
[ "$seconds" != --configure ] || exit 0
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for source in tests/fuzz/*/*_fuzz.cpp; do
        targets+=("$(basename "$source" _fuzz.cpp)")
    done
fi
cmake --build $build --target "${targets[@]/#/fuzz_}" >&2

findings=$build/findings
mkdir -p $findings
export ASAN_OPTIONS=allocator_may_return_null=0:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1

# fuzz TARGET: its log in findings/TARGET.log, what it found beside that.
fuzz() {
    local target=$1 corpus=tests/fuzz/corpus/$1 grown=$build/corpus/$1 dictionary=tests/fuzz/dictionaries/$1.dict
    mkdir -p "$corpus" "$grown"
    local options=(-max_total_time="$seconds" -timeout=10 -report_slow_units=3600 -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1
        -artifact_prefix="$findings/$target-")
    [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
    local TIMEFORMAT='cpu seconds: %0U'
    { time "$build/fuzz_$target" "${options[@]}" "$grown" "$corpus" || true; } >"$findings/$target.log" 2>&1
    if [ -n "$keep" ]; then
        "$build/fuzz_$target" -merge=1 -max_len=2000 "$corpus" "$grown" >>"$findings/$target.log" 2>&1 || true
    fi
}

running=0
for target in "${targets[@]}"; do
    fuzz "$target" &
    running=$((running + 1))
    if [ $running = 2 ]; then
        wait -n
        running=1
    fi
done
wait

found=0
printf '%-18s %12s %8s %8s %8s %10s\n' target executions a_second cpu_s edges findings
for target in "${targets[@]}"; do
    log=$findings/$target.log
    count=$(find $findings -name "$target-*" | wc -l)
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log" | tail -1)
    cpu=$(sed -n 's/^cpu seconds: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    printf '%-18s %12s %8s %8s %8s %10s\n' "$target" "${executions:-none}" "${rate:-}" "${cpu:-}" "${edges:-}" "$count"
    if [ -z "$executions" ]; then
        echo "$target did not run to its end; the end of $log:"
        tail -5 "$log"
        count=$((count + 1))
    fi
    found=$((found + count))
done
exit $((found > 0))
