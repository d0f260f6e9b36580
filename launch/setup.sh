# What quickstart.sh and tests/run.sh share: find or install what a build needs, configure, build.
#
# Sourced, never run. Checks by what works (a command, a small program that links), not by package names, so
# that own installations count; installs Debian's packages where it may (root and apt-get), and otherwise
# says exactly which are missing. Nothing here runs twice: a configured build directory skips all checks.
# shellcheck shell=bash

kNcclVersion=2.30.7 # of the wheels nvidia-nccl-cu12 and nvidia-nccl-cu13; the first since 2.28 that waits by itself (dist/comm/nccl_guard.h)

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# links PROGRAM FLAGS...: whether a C++20 program of these lines compiles and links with the flags.
links() {
    local program=$1 linked result=0
    shift
    linked=$(mktemp) # never /dev/null, which some linkers replace where root runs them
    printf '%s\n' "$program" | "${CXX:-c++}" -std=c++20 -x c++ - -o "$linked" "$@" >/dev/null 2>&1 || result=1
    rm -f "$linked"
    return $result
}

cmake_is_new_enough() {
    local version
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    [ -n "$version" ] && printf '%s\n' 3.25 "$version" | sort -V -C
}

# on_path PROGRAM: also where administrators' programs lie.
on_path() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; }

# has PACKAGE: whether what this Debian package brings is here, from wherever.
has() {
    case $1 in
    g++) links 'int main() {}' ;;
    cmake) cmake_is_new_enough ;;
    ninja-build) command -v ninja || command -v ninja-build ;;
    pkg-config) command -v pkg-config ;;
    openmpi-bin) command -v mpirun || command -v mpiexec ;;
    libopenmpi-dev) command -v mpicc || command -v mpicxx ;;
    nlohmann-json3-dev) links '#include <nlohmann/json.hpp>
                               int main() {}' ;;
    libonig-dev) pkg-config --exists oniguruma ;;
    libutf8proc-dev) pkg-config --exists libutf8proc ;;
    zlib1g-dev) links '#include <zlib.h>
                       int main() { zlibVersion(); }' -lz ;;
    libboost-program-options-dev) links '#include <boost/program_options.hpp>
                                         int main() { boost::program_options::options_description all; }' \
                                  -lboost_program_options ;;
    libfmt-dev) links '#include <fmt/format.h>
                       int main() { fmt::print("{}", 1); }' -lfmt ;;
    libgtest-dev) links '#include <gtest/gtest.h>
                         int main(int n, char** v) { testing::InitGoogleTest(&n, v); }' -lgtest -pthread ;;
    libboost-context-dev) links '#include <boost/context/fiber.hpp>
                               int main() { boost::context::fiber fiber; }' -lboost_context ;;
    ccache) command -v ccache ;;
    clang-16) command -v clang++-16 ;;
    clang-tidy-16) command -v clang-tidy-16 ;;
    libclang-rt-16-dev) CXX=clang++-16 links 'int main() {}' -fsanitize=address ;;
    slurm-wlm) on_path slurmctld && on_path slurmd && on_path sbatch ;;
    munge) on_path munged ;;
    libpmix-dev) compgen -G '/usr/lib/*/pmix*/lib/libpmix.so' || links 'int main() {}' -lpmix ;;
    iproute2) on_path ip ;;
    python3-venv) python3 -c 'import venv, ensurepip' ;;
    esac >/dev/null 2>&1
}

# ensure PACKAGE...: installs those that are missing, or names them all in one line and ends.
ensure() {
    local package missing=()
    for package in "$@"; do
        has "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: ${missing[*]}"
        die "install them with: sudo apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || die "apt-get update failed: see above"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 || die "apt-get install failed: see above"
    for package in "${missing[@]}"; do
        has "$package" || die "$package is installed, but this machine's compiler or version does not fit it"
    done
}

# The same for what only saves time or lets a test run: installed where that may be done, not missed elsewhere.
ensure_if_possible() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then (ensure "$@") || true; fi
}

# The path of an nvcc that runs, empty where there is none.
find_nvcc() {
    local candidate
    for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
        if [ -n "$candidate" ] && "$candidate" --version >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

nccl_is_here() {
    local packages
    [ ! -e .venv/nccl/nvidia/nccl/include/nccl.h ] || return 0
    for packages in .venv/lib/python3*/site-packages; do # torch's own, where there is one
        [ ! -e "$packages/torch" ] || [ ! -e "$packages/nvidia/nccl/include/nccl.h" ] || return 0
    done
    links '#include <nccl.h>
           int main() { ncclGetVersion(nullptr); }' "-I${1%/bin/nvcc}/include" -lnccl
}

# install_python_packages PACKAGE...: from PyPI into .venv. Its status says whether that worked.
install_python_packages() {
    if [ ! -x .venv/bin/python ]; then
        ensure_if_possible python3-venv
        python3 -m venv .venv >&2 || return 1
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" >&2
}

# install_nccl NVCC: NCCL from PyPI into .venv/nccl, where no torch replaces it by its own later; where one is here already,
# its NCCL serves. Its status says whether NCCL is here afterwards.
install_nccl() {
    local major
    nccl_is_here "$1" && return 0
    major=$("$1" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    case $major in
    12 | 13) ;;
    *) say "CUDA ${major:-of unknown version}: no NCCL wheel is known for it (12 and 13 have one)" && return 1 ;;
    esac
    say "installing nvidia-nccl-cu$major $kNcclVersion into .venv/nccl (200 to 300 MB)"
    install_python_packages --no-deps --target .venv/nccl "nvidia-nccl-cu$major==$kNcclVersion"
}

# prepare TESTS SETTING...: afterwards build/ is configured (release, and so set); TESTS is ON, or OFF for "only if it
# costs nothing". build/entrodraft-setup remembers what for, so that a second run checks nothing.
prepare() {
    local tests=$1 cuda=OFF nvcc= done_for=
    shift
    # GPU code takes minutes and 200 MB of NCCL: only where there is a GPU, or where it is asked for.
    case " $* " in
    *" -DENTRODRAFT_CUDA=OFF "*) ;;
    *" -DENTRODRAFT_CUDA=ON "*) nvcc=$(find_nvcc) ;;
    *) [ ! -e /proc/driver/nvidia/version ] || nvcc=$(find_nvcc) ;;
    esac
    [ -z "$nvcc" ] || cuda=ON
    local needed=(g++ cmake ninja-build pkg-config openmpi-bin libopenmpi-dev nlohmann-json3-dev
        libonig-dev libutf8proc-dev zlib1g-dev libfmt-dev libboost-program-options-dev)
    local known="nvcc $nvcc needs ${needed[*]}"
    [ ! -f build/build.ninja ] || done_for=$(cat build/entrodraft-setup 2>/dev/null || true)
    case "$tests$*, $done_for" in
    "OFF, tests OFF $known" | "OFF, tests ON $known" | "ON, tests ON $known") return 0 ;;
    esac
    [ "$tests" = OFF ] || needed+=(libgtest-dev libboost-context-dev)
    ensure "${needed[@]}"
    [ "$tests" = OFF ] || ensure_if_possible ccache # who runs tests builds again
    if has libgtest-dev && has libboost-context-dev; then tests=ON; fi
    if [ $cuda = ON ] && ! install_nccl "$nvcc"; then
        say "NCCL could not be installed: building for CPUs only although nvcc is here; remove build/ to try again"
        cuda=OFF
    fi
    rm -f build/entrodraft-setup
    cmake --preset release -DENTRODRAFT_TESTS="$tests" -DENTRODRAFT_CUDA=$cuda ${nvcc:+-DCMAKE_CUDA_COMPILER="$nvcc"} \
        "$@" >&2
    echo "tests $tests $known" >build/entrodraft-setup
}

kSlurmPackages=(slurm-wlm munge libpmix-dev iproute2) # tests/slurm; tests/hosts needs the last alone

# report_missing PACKAGE...: says which tests will skip, if any.
report_missing() {
    local package missing=()
    for package in "$@"; do
        has "$package" || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || say "tests of Slurm or of several hosts are skipped: ${missing[*]} missing"
}

# show_progress LOG SECONDS: keeps what a build prints in LOG, and says how far it is ("[12/56]") so often.
show_progress() {
    local line status done_so_far='' said=$SECONDS
    while true; do
        status=0
        IFS= read -r -t 1 line || status=$?
        if [ $status = 0 ]; then
            printf '%s\n' "$line" >>"$1"
            case $line in '['*/*']'*) done_so_far=${line%%]*}] ;; esac
        elif [ $status -gt 128 ]; then # nothing came, or not yet a whole line
            printf '%s' "$line" >>"$1"
        else
            return 0
        fi
        if [ -n "$done_so_far" ] && [ $((SECONDS - said)) -ge "$2" ]; then
            say "building: $done_so_far"
            said=$SECONDS
        fi
    done
}

# build TARGET...: its lines on a terminal; elsewhere how far it is, every 20 s, and its lines if it fails.
build() {
    local log status
    [ -x build/entrodraft ] || say "building $* (minutes the first time)"
    if [ -t 2 ]; then
        cmake --build build --target "$@" >&2
        return
    fi
    log=$(mktemp)
    set +e
    cmake --build build --target "$@" 2>&1 | show_progress "$log" 20
    status=${PIPESTATUS[0]}
    set -e
    [ "$status" = 0 ] || { cat "$log" >&2; rm -f "$log"; die "the build failed: see above"; }
    rm -f "$log"
}
