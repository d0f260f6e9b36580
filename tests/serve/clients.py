#!/usr/bin/env python3
"""Clients that no one here wrote, against a server of the demo pair.

    tests/serve/clients.py build/entrodraft [--environments DIR] [--only NAME]

Each client has an environment of its own with pinned packages from PyPI, made where DIR lacks it. A client whose packages
cannot be had is skipped by name; 77 if none could be had.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import venv

from server import PAIR, Server

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = {"openai_client": ["openai==3.57.0"], "langchain_client": ["langchain-openai==1.7.4"], "aiohttp_client": ["aiohttp==3.14.1"],
           "lm_eval_client": ["lm-eval[api]==0.4.13"], "aiperf_client": ["aiperf==0.13.0"],
           "vllm_client": ["vllm==0.33.0"]}
LARGE = {"vllm_client"}  # 10 GB of packages: only if asked for


def environment_of(folder, packages):
    """The Python of an environment with the packages; None if they cannot be had."""
    python = folder / "bin/python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[-500:])
            return None
        (folder / "made").touch()
    return python


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--environments", type=pathlib.Path)
    parser.add_argument("--only", choices=CLIENTS)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        environments = (options.environments or pathlib.Path(scratch)).resolve()
        with Server(options.binary.resolve(), [*PAIR, "--dtype", "float32", "--chat-template", "chatml", "--batch-size", 8]) as server:
            for name, packages in CLIENTS.items():
                if options.only != name and (options.only or name in LARGE):
                    continue
                python = environment_of(environments / name, packages)
                if python is None:
                    print(f"skipped: {name}: {', '.join(packages)} cannot be had")
                    continue
                print(f"-- {name}, {', '.join(packages)}", flush=True)
                done = subprocess.run([python, HERE / "clients" / f"{name}.py", f"http://127.0.0.1:{server.port}/v1", "target"])
                results.append(done.returncode)
            server.drain()
            results.append(server.end())
    if len(results) == 1:
        return 77
    return 1 if any(results) else 0


if __name__ == "__main__":
    sys.exit(main())
