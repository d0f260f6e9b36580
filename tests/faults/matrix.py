#!/usr/bin/env python3
"""Ranks that die, stop, throw, leave, hang or dawdle at every point of a run, and disks that fill up.

Each case runs a job of the golden pair under mpirun with one rank that fails (faulty_rank), and asks: did it end in
time, with the message and the exit code that docs/promises.md promises; is no process left; does the output hold whole
lines of the uninterrupted run's; and does --resume complete it to that run's, line by line? Prints a table.

    tests/faults/matrix.py --build build             all cases
    tests/faults/matrix.py --build build --short     those of the quick test run
    tests/faults/matrix.py --build build --only stop@score
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(SOURCE, "tests", "model", "golden")
TIMEOUT = 3  # --collective-timeout, seconds
LIMIT = TIMEOUT + 10  # a case that takes longer has failed
PROMPTS = 10
NEW_TOKENS = 24

POINTS = ["init", "start", "load", "prefill", "draft", "broadcast", "score", "output"]
# When a step comes again and again, the fault is in the midst of the run.
TIMES = {"prefill": 3, "draft": 20, "broadcast": 20, "score": 20, "output": 30}
ONLY_COORDINATOR = {"output"}
PLACE = r"\[rank \d+, host [^,\]]+(, round \d+)?, %s\] "


class Case:
    def __init__(self, kind, point, ranks, placement, victim):
        self.kind, self.point, self.ranks, self.placement, self.victim = kind, point, ranks, placement, victim

    def name(self):
        return "%s@%s" % (self.kind, self.point)

    def codes(self):
        """The exit codes of mpirun that are right."""
        return {"kill": [137], "leave": [3], "slow": [0], "none": [0]}.get(self.kind, [1])

    def message(self):
        """A pattern that stderr has to match; None: any."""
        victim = r"rank %d" % self.victim
        if self.kind in ("kill", "leave") and self.point == "init":
            return r"Primary job|mpirun|prterun"  # whichever of its messages comes first
        if self.kind == "kill":
            return r"signal 9"
        if self.kind == "exit" and self.point == "init":
            return r"the ranks have not found each other" # mpirun takes it for a program without MPI
        if self.kind in ("exit", "leave"):
            return r"mpirun|prterun"
        if self.kind == "throw":
            step = "start" if self.point in ("init", "start") else self.point
            return r"entrodraft: " + PLACE % step + "a fault on purpose"
        if self.kind == "stop":
            if self.point in ("init", "start"):
                return r"entrodraft: " + PLACE % "start" + "the ranks have not found each other|" + victim + r" \(host"
            return r"entrodraft: .*" + victim + r" \(host [^)]+\),? .*(stopped or dead)"
        if self.kind == "hang":
            if self.point in ("init", "start"):
                return r"the ranks have not found each other|" + victim + r" \(host"
            where = r"( \(host [^)]+\)(, which)? is alive but still in|, host .*has not ended for)"
            return r"entrodraft: .*" + victim + where
        if self.kind in ("full", "tmpfs"):
            return r"entrodraft: " + PLACE % "output" + r".*cannot be written: (File too large|No space left)"
        if self.kind == "truncated":
            return r"entrodraft: " + (PLACE % "load" if self.ranks > 1 else "") + r".*model.safetensors"
        if self.kind == "slow" and self.point == "score" and self.shares_the_target():
            return r"slowest: +" + victim + r" \(host"
        return None

    def shares_the_target(self):
        """Whether there is another rank to compare it with."""
        if self.placement == "dedicated":
            return self.ranks > 2 and self.victim != 0
        return self.ranks > 1


def all_cases(placements):
    cases = []
    for placement in placements:
        for ranks in (1, 2, 3, 4):
            if placement == "dedicated" and ranks < 2:
                continue
            victims = [0] if ranks == 1 else [0, ranks - 1]
            for kind in ("kill", "stop", "throw", "exit", "leave", "hang", "slow"):
                for point in POINTS:
                    for victim in victims:
                        if point in ONLY_COORDINATOR and victim != 0:
                            continue
                        if is_possible(kind, point, ranks):
                            cases.append(Case(kind, point, ranks, placement, victim))
            cases += [Case(kind, "output", ranks, placement, 0) for kind in ("full", "tmpfs")]
            cases += [Case("truncated", "load", ranks, placement, victim) for victim in victims]
    return cases


def is_possible(kind, point, ranks):
    if kind == "throw" and point == "init":
        return False  # before there is anything that could catch it: start is the first
    if kind == "slow":
        return point in ("prefill", "draft", "broadcast", "score", "output")
    if kind == "exit" and point == "init" and ranks == 1:
        return False  # a program that did nothing, and said that all went well
    if kind in ("stop", "hang") and ranks == 1:
        # Nobody else waits; only a round's own step has a deadline, and a stopped process no clock.
        return kind == "hang" and point not in ("init", "start", "load", "output")
    return True


def short_cases():
    chosen = [("kill", "load", 2, 1), ("kill", "score", 2, 1), ("kill", "draft", 2, 0), ("kill", "output", 1, 0),
              ("stop", "init", 2, 1), ("stop", "broadcast", 2, 0), ("stop", "score", 4, 3), ("throw", "start", 2, 1),
              ("throw", "score", 2, 1), ("exit", "prefill", 2, 1), ("leave", "draft", 2, 1), ("hang", "draft", 2, 0),
              ("hang", "score", 1, 0), ("slow", "score", 2, 1), ("full", "output", 2, 0), ("truncated", "load", 2, 1)]
    return [Case(kind, point, ranks, "colocated", victim) for kind, point, ranks, victim in chosen]


class Bench:
    """A directory for the runs, and how a job is started in it."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.directory = tempfile.mkdtemp(prefix="entrodraft-faults-")
        self.input = os.path.join(self.directory, "input.jsonl")
        with open(self.input, "w") as file:
            for i in range(PROMPTS):
                file.write(json.dumps({"id": "p%d" % i, "prompt": "The ferry left the island %d" % i}) + "\n")
        self.references = {}

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def models(self, ranks):
        # Four ranks divide the heads of one of the pair, not of the other.
        pair = ("llama-target", "llama-draft")
        return pair if ranks != 4 else pair[::-1]

    def arguments(self, case, output, target):
        arguments = ["generate", "--target", target, "--draft", os.path.join(GOLDEN, self.models(case.ranks)[1]),
                     "--input", self.input, "--output", output, "--max-new-tokens", str(NEW_TOKENS), "--ignore-eos",
                     "--stop-rule", "constant:2", "--threads", "1", "--collective-timeout",
                     str(60 if case.kind in ("slow", "none") else TIMEOUT)]
        if case.placement != "colocated":
            arguments += ["--draft-placement", case.placement]
        return arguments

    def target(self, case):
        return os.path.join(GOLDEN, self.models(case.ranks)[0])

    def start(self, case, program):
        """mpirun, its exit code, its stderr and how long it took."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        for first, count, directory in self.groups(case):
            command += ([":"] if first else []) + ["-n", str(count)] + (["-wdir", directory] if directory else [])
            command += program
        began = time.monotonic()
        with open(os.path.join(self.directory, "stderr"), "w+") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                                       start_new_session=True)
            try:
                code = process.wait(timeout=4 * LIMIT)
            except subprocess.TimeoutExpired:
                code = None
                for left in self.processes():
                    os.kill(left, 9)
                process.kill()
                process.wait()
            seconds = time.monotonic() - began
            stderr.seek(0)
            return code, stderr.read(), seconds

    def groups(self, case):
        if case.kind != "truncated":
            return [(0, case.ranks, None)]
        groups = [(0, case.victim, self.models_beside("whole", case)), (case.victim, 1, self.models_beside("cut", case)),
                  (case.victim + 1, case.ranks - case.victim - 1, self.models_beside("whole", case))]
        return [group for group in groups if group[1] > 0]

    def models_beside(self, name, case):
        """A directory that ranks run in, so that one relative name is another file on one of them."""
        directory = os.path.join(self.directory, "%s-%d" % (name, case.ranks))
        if not os.path.exists(directory):
            shutil.copytree(self.target(case), os.path.join(directory, "model"))
            if name == "cut":
                weights = os.path.join(directory, "model", "model.safetensors")
                os.truncate(weights, os.path.getsize(weights) * 3 // 4)
        return directory

    def processes(self):
        """Those that name this directory on their command line."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    if self.directory.encode() in file.read():
                        found.append(int(path.split("/")[2]))
            except OSError:
                pass
        return [process for process in found if process != os.getpid()]

    def reference(self, case):
        key = (case.ranks, case.placement)
        if key not in self.references:
            whole = Case("none", "none", case.ranks, case.placement, 0)
            output = os.path.join(self.directory, "whole-%d-%s.jsonl" % key)
            code, stderr, _ = self.start(whole, self.program(whole, output, self.target(whole), "entrodraft"))
            if code != 0:
                sys.exit("the uninterrupted run of %d ranks ended with %s:\n%s" % (case.ranks, code, stderr))
            self.references[key] = lines_of(output)
        return self.references[key]

    def program(self, case, output, target, binary="test_faulty_rank"):
        program = [os.path.join(self.build, binary)]
        if binary != "entrodraft":
            times = TIMES.get(case.point, 1)
            program.append("%d:%s@%s:%d" % (case.victim, case.kind, case.point, times))
        return program + self.arguments(case, output, target)


def lines_of(path):
    """Results without their times; a torn last line counts as none."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        text = file.read()
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    return [{name: line.get(name) for name in ("id", "text", "token_ids", "finish_reason")} for line in lines]


def run(bench, case):
    """(seconds, exit code, message, journal, why it failed)"""
    whole = bench.reference(case)
    place = os.path.join(bench.directory, "small") if case.kind == "tmpfs" else bench.directory
    if case.kind == "tmpfs" and not mount_small(place):
        return 0, None, "no tmpfs can be mounted here", "", None
    output = os.path.join(place, "output.jsonl")
    target = "model" if case.kind == "truncated" else bench.target(case)
    try:
        code, stderr, seconds = bench.start(case, bench.program(case, output, target))
        problems = []
        if code is None or (case.kind != "slow" and seconds > LIMIT):
            problems.append("took %.0f s" % seconds)
        if code not in case.codes():
            problems.append("exit code %s, not %s" % (code, case.codes()))
        if case.message() and not re.search(case.message(), stderr):
            problems.append("no message like %s" % case.message())
        own = [line for line in stderr.splitlines() if line.startswith("entrodraft: ")]
        if len(own) > 1 and case.point not in ("init", "start"):  # before ranks can see each other
            problems.append("%d messages" % len(own))
        left = remaining(bench)
        if left:
            problems.append("processes left: %s" % left)
        written = lines_of(output)
        if written != whole[:len(written)]:
            problems.append("lines that are not the uninterrupted run's")
        journal = "%d of %d" % (len(written), len(whole))
        if case.kind == "tmpfs" and os.path.exists(output):
            shutil.copy(output, os.path.join(bench.directory, "output.jsonl"))
    finally:
        if case.kind == "tmpfs":
            subprocess.run(["umount", place], check=False)
    output = os.path.join(bench.directory, "output.jsonl")
    again = Case("none", "none", case.ranks, case.placement, 0)
    resumed, errors, _ = bench.start(again, bench.program(again, output, bench.target(case), "entrodraft") + ["--resume"])
    if resumed != 0 or lines_of(output) != whole:
        problems.append("--resume gave code %s and %d lines: %s" % (resumed, len(lines_of(output)), errors[-300:]))
    else:
        journal += ", resumed"
    if os.path.exists(output):
        os.remove(output)
    message = own[0] if own else first_words(stderr)
    return seconds, code, message, journal, "; ".join(problems) + ("\n" + stderr if problems else "")


def mount_small(place):
    os.makedirs(place, exist_ok=True)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", place], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def remaining(bench):
    """Processes of the job two seconds after its end, which are then ended."""
    for _ in range(20):
        left = bench.processes()
        if not left:
            return []
        time.sleep(0.1)
    for process in left:
        os.kill(process, 9)
    return left


def first_words(stderr):
    lines = [line.strip() for line in stderr.splitlines() if line.strip(" -\n")]
    told = [line for line in lines if re.search("signal|exit|slowest", line)]
    return (told or lines or [""])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="directory with entrodraft and test_faulty_rank")
    parser.add_argument("--short", action="store_true", help="the cases of the quick test run")
    parser.add_argument("--only", default="", help="KIND@POINT, or a part of it")
    parser.add_argument("--ranks", type=int, help="only jobs of so many ranks")
    parser.add_argument("--placements", default="colocated,dedicated", help="separated by commas")
    options = parser.parse_args()
    cases = short_cases() if options.short else all_cases(options.placements.split(","))
    cases = [case for case in cases if options.only in case.name() and options.ranks in (None, case.ranks)]
    bench = Bench(options.build)
    failed = 0
    print("%-18s %5s %6s %-10s %7s %4s  %-14s %s" %
          ("case", "ranks", "faulty", "placement", "seconds", "code", "lines", "message"))
    try:
        for case in cases:
            seconds, code, message, journal, problem = run(bench, case)
            print("%-18s %5d %6d %-10s %7.1f %4s  %-14s %s" % (case.name(), case.ranks, case.victim, case.placement,
                                                               seconds, code, journal, message[:200]), flush=True)
            if problem:
                failed += 1
                print("  FAILED: " + problem.replace("\n", "\n    "), flush=True)
    finally:
        bench.close()
    print("%d cases, %d failed" % (len(cases), failed))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
