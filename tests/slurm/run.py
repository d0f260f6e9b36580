#!/usr/bin/env python3
"""Runs the scripts of slurm/ on a real Slurm of several nodes on this machine, and prints a table.

    tests/slurm/run.py [--binary build/entrodraft] [--smoke] [--only NAME,NAME] [--keep]

Needs slurm-wlm, munge, libpmix-dev and Open MPI; without them it says so and exits 77, which ctest calls skipped.
Everything it starts lives in a temporary directory and ends with it, whatever happens. --keep leaves the directory.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

os.environ["PATH"] += ":/usr/sbin:/sbin"  # where slurmctld and munged are, also for those who are not root

import cases  # noqa: E402
from cluster import Cluster, Failure, missing_tools  # noqa: E402

SKIPPED = 77
LOG_LINES = 30
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)
LIMIT_SECONDS = {"smoke": 540, "all": 5100}  # a little less than ctest's, which would leave the cluster running


def parse_arguments():
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description="the scripts of slurm/ on a real Slurm on this machine")
    parser.add_argument("--binary", default=f"{source}/build/entrodraft")
    parser.add_argument("--smoke", action="store_true", help="three cases on two nodes")
    parser.add_argument("--only", help="names of cases, separated by commas")
    parser.add_argument("--keep", action="store_true", help="leave the directory of logs and results")
    arguments = parser.parse_args()
    arguments.source = source
    arguments.binary = os.path.abspath(arguments.binary)
    return arguments


def on_signal(number, _):
    raise SystemExit(128 + number)


def tail(file):
    with open(file, encoding="utf-8", errors="replace") as lines:
        return "".join(f"    {line.rstrip()}\n" for line in lines.readlines()[-LOG_LINES:])


def print_logs(directory):
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if (name.endswith(".log") or name == "munged.out") and os.path.getsize(path) > 0:
                print(f"  {os.path.relpath(path, directory)}:\n{tail(path)}", end="")


def run_case(case, bench):
    """Runs one; returns whether it passed. Prints its row."""
    began = time.monotonic()
    name = case.__name__.replace("_", " ")
    try:
        passed, note = True, case(bench)
    except (Failure, OSError, ValueError, KeyError) as failure:
        passed, note = False, f"{type(failure).__name__}: {failure}"
    print(f"{name:28} {time.monotonic() - began:6.1f} s  {'ok' if passed else 'FAILED':6}  {note}", flush=True)
    return passed


def run_cases(arguments, directory):
    chosen = cases.SMOKE if arguments.smoke else cases.ALL
    if arguments.only:
        names = arguments.only.replace("-", "_").split(",")
        chosen = [case for case in cases.ALL if case.__name__ in names]
    cluster = Cluster(f"{directory}/cluster", nodes=2 if arguments.smoke else 4, node_timeout=30)
    failed = []
    try:
        cluster.start()
        bench = cases.Bench(cluster, arguments.source, arguments.binary, f"{directory}/cases")
        for case in chosen:
            if not run_case(case, bench):
                failed.append(case.__name__)
                cluster.command("scancel", "--full", "--state=RUNNING,PENDING", f"--user={os.getuid()}", check=False)
    except BaseException:
        failed.append("the cluster itself")
        raise
    finally:
        for number in SIGNALS:  # a second one is not to stop the end
            signal.signal(number, signal.SIG_IGN)
        cluster.stop()
        if failed:
            print_logs(directory)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases passed")
    return 1 if failed else 0


def main():
    arguments = parse_arguments()
    missing = missing_tools()
    if missing:
        print(f"skipped: no {', '.join(missing)} here; apt-get install slurm-wlm munge libpmix-dev")
        return SKIPPED
    if not os.access(arguments.binary, os.X_OK):
        print(f"{arguments.binary} is not there: build it, or name one with --binary", file=sys.stderr)
        return 2
    for number in SIGNALS:
        signal.signal(number, on_signal)
    signal.alarm(LIMIT_SECONDS["smoke" if arguments.smoke else "all"])
    directory = tempfile.mkdtemp(prefix="entrodraft-slurm-")
    try:
        os.makedirs(f"{directory}/cases")
        return run_cases(arguments, directory)
    except Failure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    finally:
        if arguments.keep:
            print(f"left: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
