#!/usr/bin/env python3
"""Does what is installed work by itself? Installs a build into a directory and moves that elsewhere, packs it with cpack and
unpacks the packages; each tree must decode the demo prompt as the build does without loading or naming a file of the source
tree, and its examples, a project of their own, must find the libraries and give the same text.

    tests/install/run.py --build build [--skip-packages]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = "The old house stood at the end of the lane, and"
NEW_TOKENS = 16
# Of two libraries of a name, the installed tree's has to be found without help.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
failures = []


def expect(holds, what):
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures.append(what)


def run(*command, **options):
    """Its standard output; ends the test with its messages where it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=ENVIRONMENT, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def decoded(binary, models):
    return run(binary, "generate", "--target", models / "target", "--draft", models / "draft", "--prompt", PROMPT,
               "--max-new-tokens", NEW_TOKENS, "--threads", 1, "--quiet", cwd="/")


def one_of(paths, what):
    found = sorted(paths)
    if len(found) != 1:
        sys.exit(f"{len(found)} files are {what}: {found}")
    return found[0]


def check_tree(tree, build, text, name):
    """A tree with bin/, share/, lib/: wherever it lies."""
    binary, models = tree / "bin/entrodraft", tree / "share/entrodraft/demo"
    expect(decoded(binary, models) == text, f"{name}: decodes the demo prompt as the build does")
    libraries = run("ldd", binary)
    expect("not found" not in libraries, f"{name}: finds all its libraries")
    expect(str(ROOT) not in libraries and str(build) not in libraries, f"{name}: none of them lies in the source tree")
    for library in ("nccl",) if "nccl" in run("ldd", build / "entrodraft") else ():
        line = next(line for line in libraries.splitlines() if library in line)
        expect(str(tree) in line or " /lib" in line or " /usr/lib" in line, f"{name}: {line.strip()}")
    check_scripts(tree, name)
    for file in ("share/entrodraft/slurm/entrodraft.sbatch", "share/bash-completion/completions/entrodraft",
                 "share/zsh/site-functions/_entrodraft", "share/man/man1/entrodraft.1", "share/entrodraft/examples/generate.py",
                 "share/doc/entrodraft/README.md", "share/doc/entrodraft/docs/cli.md", "share/doc/entrodraft/NOTICE"):
        expect((tree / file).is_file() and (tree / file).stat().st_size > 0, f"{name}: has {file}")


def check_scripts(tree, name):
    """The scripts of bench/: presets.py runs the tree's program; report.py draws where its packages are."""
    bench = tree / "share/entrodraft/bench"
    told = run(sys.executable, bench / "presets.py", "thesis-final-token", "--texts", 5, cwd="/")
    expect("static:2.25, keep" in told and "SYNTHETIC" in told, f"{name}: presets.py replays with the tree's program")
    told = run(sys.executable, bench / "scaling.py", "--help", cwd="/")
    expect("hardware" in told or "usage" in told, f"{name}: scaling.py starts")
    told = run(sys.executable, bench / "scaling_model.py", "--hardware", bench / "hardware.json", cwd="/")
    expect("EXTRAPOLATION" in told, f"{name}: scaling_model.py carries the model to GPUs")
    told = run(sys.executable, bench / "theory.py", "--alpha", "0.8", cwd="/")
    expect("Figure 3" in told, f"{name}: theory.py tabulates the i.i.d. model")
    listed = (bench / "requirements.txt").read_text()
    expect("numpy" in listed and "matplotlib" in listed, f"{name}: says what report.py needs")
    done = subprocess.run([sys.executable, bench / "report.py", "--help"], capture_output=True, text=True, env=ENVIRONMENT)
    expect(done.returncode == 0 or str(bench / "requirements.txt") in done.stderr,
           f"{name}: report.py starts, or names what it needs and where that is listed")


def check_library(tree, work, text, name):
    """find_package(entrodraft) from another project."""
    texts = [file for file in (tree / "lib/cmake/entrodraft").glob("*.cmake") if str(ROOT) in file.read_text()]
    expect(not texts, f"{name}: its CMake files name nothing of the source tree")
    share, example = tree / "share/entrodraft", work / f"examples of {name}"
    run("cmake", "-G", "Ninja", "-S", share / "examples", "-B", example, f"-DCMAKE_PREFIX_PATH={tree}",
        "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", example)
    decoded_by_it = run(example / "speculative", share / "demo/target", share / "demo/draft", PROMPT, NEW_TOKENS, cwd="/")
    expect(decoded_by_it == text, f"{name}: examples/speculative.cpp, built against it, gives the same text")


def check_packages(build, work, text):
    packages = work / "packages"
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", packages, cwd=build)
    shutil.rmtree(packages / "_CPack_Packages", ignore_errors=True)
    archive = work / "archive"
    archive.mkdir()
    run("tar", "-xf", one_of(packages.glob("*.tar.gz"), "archives"), "-C", archive)
    check_tree(one_of(archive.glob("*/usr"), "a tree in the archive"), build, text, ".tar.gz")
    if not shutil.which("dpkg-shlibdeps"): # as launch/install.cmake
        print("no dpkg-shlibdeps (package dpkg-dev): no .deb is made")
        return
    debian = work / "debian"
    for package, needs in (("entrodraft", ("libopenmpi", "libc6", "libonig", "libboost-program-options")), ("entrodraft-dev", ("entrodraft (=",))):
        file = one_of(packages.glob(f"{package}_*.deb"), f"{package}'s")
        run("dpkg-deb", "-x", file, debian)
        depends = run("dpkg-deb", "-f", file, "Depends")
        expect(all(need in depends for need in needs), f"{file.name} depends on {depends.strip()}")
    check_tree(debian / "usr", build, text, ".deb")
    check_library(debian / "usr", work, text, ".deb")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--skip-packages", action="store_true", help="cmake --install alone")
    options = parser.parse_args()
    build = options.build.resolve()
    text = decoded(build / "entrodraft", ROOT / "model/demo")
    with tempfile.TemporaryDirectory(prefix="entrodraft-install-") as made:
        work = pathlib.Path(made)
        run("cmake", "--install", build, "--prefix", work / "first place")
        tree = work / "moved"
        os.rename(work / "first place", tree)
        check_tree(tree, build, text, "installed")
        check_library(tree, work, text, "installed")
        if not options.skip_packages:
            check_packages(build, work, text)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
