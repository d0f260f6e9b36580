#!/usr/bin/env python3
"""A folder with a build that runs on a machine which has neither MPI nor the libraries of this one: for gpu_first.py on a borrowed GPU.

    python3 tests/gpu_carry.py [--build build] --output FOLDER      # here
    FOLDER/run tests/gpu_first.py --output first.jsonl              # there, in a checkout of the same sources

Holds the program, the tests of GPU code and of NCCL, mpirun, and their libraries, stripped: some 40 MB. Not in it: glibc, which has to be as new
there as here, the driver, NCCL and cuBLASLt (of 200 and 500 MB): the machine's are found by LD_LIBRARY_PATH, in its toolkit or beside torch. Tests read files by the path of the
sources here, which `run` makes a link to the checkout. Open MPI as Debian has it, for the ranks of one host; standard library only.
"""

import argparse
import pathlib
import re
import shutil
import stat
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("entrodraft", "test_gpu_on_device", "test_gpu_on_stand_in", "test_dist_mpi")
THERE = re.compile(r"/(ld-linux[-\w]*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libcuda|libnccl|libcublasLt)\.so")  # of the other machine
NETWORKS = re.compile(r"libfabric|libucp|libibverbs|librdmacm|libpsm|libucs")  # of many hosts

RUN = """#!/bin/sh
# Runs a Python script or a program with what is in this folder: see tests/gpu_carry.py.
here=$(cd "$(dirname "$0")" && pwd)
for nccl in "$here"/lib /usr/lib/x86_64-linux-gnu /usr/local/lib/python3*/*-packages/nvidia/nccl/lib /opt/*/lib/python3*/site-packages/nvidia/nccl/lib; do
    [ ! -e "$nccl/libnccl.so.2" ] || break
done
for cublas in "$here"/lib /usr/local/cuda/lib64 /usr/local/lib/python3*/*-packages/nvidia/*/lib /opt/*/lib/python3*/site-packages/nvidia/*/lib; do
    [ ! -e "$cublas/libcublasLt.so.13" ] && [ ! -e "$cublas/libcublasLt.so.12" ] || break
done
export PATH="$here/bin:$PATH" LD_LIBRARY_PATH="$here/lib:$nccl:$cublas:${{LD_LIBRARY_PATH:-}}"
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/openmpi" OPAL_PKGDATADIR="$here/share" \\
    OPAL_SYSCONFDIR="$here/share" PMIX_INSTALL_PREFIX="$here" PMIX_LIBDIR="$here/lib" PMIX_PKGLIBDIR="$here/pmix" PMIX_PKGDATADIR="$here/share"
export PMIX_MCA_gds=hash OMPI_MCA_btl=self,vader OMPI_MCA_plm_rsh_agent=sh # which no other host is there to be reached by
[ -e "{sources}" ] || {{ mkdir -p "$(dirname "{sources}")" && ln -s "$PWD" "{sources}"; }}
python3 "{sources}/tests/model/recipes.py" || exit 1
case $1 in
*gpu_first.py) script=$1 && shift && exec python3 "$script" --build "$here/bin" "$@" ;;
*) exec "$@" ;;
esac
"""


def needed(file):
    """Libraries of a program or library that are to be carried; None where one is not here."""
    listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
    if "not found" in re.sub(r"(libcuda|libnccl|libcublasLt)\.so[.\d]* => not found", "", listed):
        return None
    return {pathlib.Path(path) for path in re.findall(r"=> (/\S+)", listed) if not THERE.search(path)}


def copy(file, folder, name=None):
    """A stripped copy."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or file.name)
    shutil.copy(file.resolve(), path)
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    subprocess.run(["strip", "--strip-unneeded", path], check=False, capture_output=True)
    return path


def main():
    parser = argparse.ArgumentParser(prog="gpu_carry.py", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    folder = options.output
    mpirun = shutil.which("mpirun")
    programs = [options.build / name for name in PROGRAMS if (options.build / name).exists()]
    if not programs or not mpirun:
        raise SystemExit(f"gpu_carry.py: {options.build} has no program, or mpirun is not here: build first")
    paths = subprocess.run(["ompi_info", "--path", "pkglibdir", "--path", "pkgdatadir", "--parsable"], capture_output=True, text=True,
                           check=True).stdout
    components, data = (pathlib.Path(re.search(rf"path:{name}:(.*)", paths).group(1)) for name in ("pkglibdir", "pkgdatadir"))
    cache = (options.build / "CMakeCache.txt").read_text()
    sources = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M).group(1)
    libraries = set()
    for program in programs:
        libraries |= needed(program) or set()
        copy(program, folder / "bin")
    libraries |= needed(mpirun) or set()
    copy(pathlib.Path(mpirun), folder / "bin", "mpirun")
    pmix = next(iter(pathlib.Path("/usr/lib").glob("*/pmix2/lib/pmix")), None)
    for plugins, name in ((components, "openmpi"), (pmix, "pmix")):
        for plugin in sorted(plugins.glob("*.so")) if plugins else ():
            libs = needed(plugin)
            if libs is not None and not any(NETWORKS.search(lib.name) for lib in libs):
                libraries |= libs
                copy(plugin, folder / name)
    for library in libraries:
        copy(library, folder / "lib")
    shutil.copytree(data, folder / "share", dirs_exist_ok=True)
    run = folder / "run"
    run.write_text(RUN.format(sources=sources))
    run.chmod(0o755)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB, {len(programs)} programs, {len(libraries)} libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
