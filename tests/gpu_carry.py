#!/usr/bin/env python3
"""A folder with all that tests/gpu_first.py needs on a borrowed machine with a GPU, without MPI, compilers or network.

    python3 tests/gpu_carry.py [--build build] [--nccl DIR] --output FOLDER     # here
    FOLDER/run [--nccl VERSION] tests/gpu_first.py --output first.jsonl         # there, or tests/gpu_run.sh

FOLDER holds `run` and one archive, which `run` unpacks beside it once: the program, the tests of GPU code and of NCCL, mpirun, and their
libraries, stripped; what these tests and scripts read of the sources, not the rest; and, from `--nccl DIR`, the copies of NCCL that lie
there (DIR/VERSION/lib/libnccl.so.2), one of which `--nccl VERSION` takes. 60 MiB at most, or nothing is made. Not in it: glibc, which
has to be as new there as here, the driver, cuBLASLt and, without --nccl, NCCL (of 500 and 200 MB): the machine's are found by
LD_LIBRARY_PATH, in its toolkit or beside torch. Tests read files by the path of the sources here, which `run` makes a link to what it
carries. Open MPI as Debian has it, for the ranks of one host; standard library only.
"""

import argparse
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("entrodraft", "test_gpu_on_device", "test_gpu_on_stand_in", "test_dist_mpi")
THERE = re.compile(r"/(ld-linux[-\w]*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libcuda|libnccl|libcublasLt)\.so")  # of the other machine
MAX_BYTES = 60 << 20
SOURCES = ("tests/gpu_*", "tests/limited.py", "tests/launch/cuda.py", "tests/launch/public_shapes", "tests/model/recipes.py",
           *(f"tests/model/{kind}" for kind in ("golden", "families", "quantized", "encoder_decoders", "heads")),
           ":(glob)bench/*.py", "bench/hardware.json", "bench/peers", "model/demo/target", "model/demo/draft", ":(glob)model/demo/*.jsonl")
NETWORKS = re.compile(r"libfabric|libucp|libibverbs|librdmacm|libpsm|libucs")  # of many hosts

RUN = """#!/bin/sh
# Runs a Python script or a program with what is in this folder: see tests/gpu_carry.py.
folder=$(cd "$(dirname "$0")" && pwd)
here=$folder/unpacked
[ -d "$here" ] || {{ rm -rf "$here.part" && mkdir "$here.part" && python3 -m tarfile -e "$folder/carried.tar.xz" "$here.part" && mv "$here.part" "$here"; }} || exit 1
if [ "$1" = --nccl ]; then
    nccl=$here/nccl/$2/lib && shift 2
    [ -e "$nccl/libnccl.so.2" ] || {{ echo "carried are: $(ls "$here/nccl" 2>/dev/null || echo no NCCL)" >&2; exit 2; }}
else
    for nccl in /usr/lib/x86_64-linux-gnu /usr/local/lib/python3*/*-packages/nvidia/nccl/lib /opt/*/lib/python3*/site-packages/nvidia/nccl/lib \\
        "$here"/nccl/*/lib; do
        [ ! -e "$nccl/libnccl.so.2" ] || break
    done
fi
for cublas in /usr/local/cuda/lib64 /usr/local/lib/python3*/*-packages/nvidia/*/lib /opt/*/lib/python3*/site-packages/nvidia/*/lib; do
    [ ! -e "$cublas/libcublasLt.so.13" ] && [ ! -e "$cublas/libcublasLt.so.12" ] || break
done
export PATH="$here/bin:$PATH" LD_LIBRARY_PATH="$nccl:$here/lib:$cublas:${{LD_LIBRARY_PATH:-}}"
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/openmpi" OPAL_PKGDATADIR="$here/share" \\
    OPAL_SYSCONFDIR="$here/share" PMIX_INSTALL_PREFIX="$here" PMIX_LIBDIR="$here/lib" PMIX_PKGLIBDIR="$here/pmix" PMIX_PKGDATADIR="$here/share"
export PMIX_MCA_gds=hash OMPI_MCA_btl=self,vader OMPI_MCA_plm_rsh_agent=sh # which no other host is there to be reached by
[ -e "{sources}" ] || {{ mkdir -p "$(dirname "{sources}")" && ln -s "$here/sources" "{sources}"; }}
python3 "{sources}/tests/model/recipes.py" || exit 1
case $1 in
*gpu_first.py) script=$here/sources/$1 && shift && exec python3 "$script" --build "$here/bin" "$@" ;;
*gpu_run.sh) script=$here/sources/$1 && shift && exec bash "$script" "$@" --build "$here/bin" ;;
*.py) script=$here/sources/$1 && shift && exec python3 "$script" "$@" ;;
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


def tracked():
    """Files of git that are to be carried, of the sources that this script lies in."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(name) for name in listed.split("\0") if name]


def gather(options, folder):
    """Everything, in its places."""
    mpirun = shutil.which("mpirun")
    programs = [options.build / name for name in PROGRAMS if (options.build / name).exists()]
    if not programs or not mpirun:
        raise SystemExit(f"gpu_carry.py: {options.build} has no program, or mpirun is not here: build first")
    paths = subprocess.run(["ompi_info", "--path", "pkglibdir", "--path", "pkgdatadir", "--parsable"], capture_output=True, text=True,
                           check=True).stdout
    components, data = (pathlib.Path(re.search(rf"path:{name}:(.*)", paths).group(1)) for name in ("pkglibdir", "pkgdatadir"))
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
    for file in tracked():
        (folder / "sources" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / "sources" / file)
    for library in sorted(options.nccl.glob("*/lib/libnccl.so.2")) if options.nccl else ():
        copy(library, folder / "nccl" / library.parts[-3] / "lib", library.name)


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def main():
    parser = argparse.ArgumentParser(prog="gpu_carry.py", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--nccl", type=pathlib.Path, metavar="DIR", help="copies of NCCL, as DIR/VERSION/lib/libnccl.so.2 [none]")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="FOLDER", help="is not there yet, or is one of before")
    options = parser.parse_args()
    if options.nccl and not any(options.nccl.glob("*/lib/libnccl.so.2")):
        parser.error(f"--nccl {options.nccl}: no VERSION/lib/libnccl.so.2 there")
    cache = (options.build / "CMakeCache.txt").read_text()
    sources = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M).group(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder, archive = pathlib.Path(scratch) / "all", pathlib.Path(scratch) / "carried.tar.xz"
        gather(options, folder)
        with tarfile.open(archive, "w:xz", preset=1) as tar:
            for each in sorted(folder.iterdir()):
                tar.add(each, each.name)
        for part in sorted(folder.iterdir()):
            print(f"{part.name + ':':10}{size_of(part) / 2**20:6.1f} MiB")
        packed = archive.stat().st_size
        print(f"{'packed:':10}{packed / 2**20:6.1f} MiB of {MAX_BYTES >> 20}")
        if packed > MAX_BYTES:
            raise SystemExit("gpu_carry.py: that is more than can be carried")
        options.output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(options.output / "unpacked", ignore_errors=True)
        shutil.copy(archive, options.output)
    run = options.output / "run"
    run.write_text(RUN.format(sources=sources))
    run.chmod(0o755)
    if not options.nccl:
        print("without NCCL: --nccl DIR carries copies of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
