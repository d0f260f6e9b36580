#!/usr/bin/env python3
"""The n-th allocation, read, open, mapping, write or MPI call fails, n swept from the first to the last.

Each run decodes the golden pair's prompts into a file. Whatever fails, the run has to end in time with an exit code of
the program's own, with one message of ours, and with whole lines of the uninterrupted run's in the output; where it ends
with 0, the output is all of it. Prints a table.

    tests/faults/nth_failure.py --build build                  every kind, up to 200 values of n each
    tests/faults/nth_failure.py --build build --max 12        a short sweep
    tests/faults/nth_failure.py --build build --only mpi:17    one case, with its messages
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests/model/golden"
LIMIT = 30  # seconds
KINDS = {"new": (0, 0), "read": (0, 0), "open": (0, 0), "map": (0, 0), "write": (0, 0),
         "mpi": (2, 1)}  # ranks (0: without mpirun), and the one it fails on
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
OWN_CODES = {0, 1, 2, 3}


def write_prompts(path):
    lines = [json.dumps({"id": i, "prompt_token_ids": [i + 1, i + 2, 7]}) + "\n" for i in range(6)]
    path.write_text("".join(lines))


class Sweep:
    def __init__(self, build, work):
        self.binary, self.library = build / "entrodraft", build / "tests/libnth_failure.so"
        self.work, self.whole = work, None
        write_prompts(work / "prompts.jsonl")

    def run(self, kind, n):
        """Exit code (None: it had not ended in time), stderr, and the ids of the tokens that were written."""
        ranks, victim = KINDS[kind]
        output, count = self.work / "out.jsonl", self.work / "count"
        for file in (output, count):
            file.unlink(missing_ok=True)
        values = {"NTH_KIND": kind, "NTH": str(n), "NTH_RANK": str(victim), "NTH_COUNT": str(count)}
        preload = {"LD_PRELOAD": str(self.library), **values}
        command = [str(self.binary), "generate", "--target", str(GOLDEN / "llama-target"), "--draft",
                   str(GOLDEN / "llama-draft"), "--input", str(self.work / "prompts.jsonl"), "--output", str(output),
                   "--max-new-tokens", "12", "--threads", "1", "--collective-timeout", "5"]
        environment = dict(os.environ)
        if ranks:
            passed = [part for name, value in preload.items() for part in ("-x", f"{name}={value}")]
            # Over MPI and not over shared memory: that is what is to fail.
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", *AS_ROOT, "-n", str(ranks), *passed, *command]
        else:
            environment.update(preload)
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
        except subprocess.TimeoutExpired as error:
            return None, str(error.stderr or ""), None
        text = output.read_text() if output.exists() else ""
        return ended.returncode, ended.stderr, text

    def calls(self, kind):
        code, messages, text = self.run(kind, 0)
        if code != 0:
            raise SystemExit(f"without a failure the run ends with {code}: {messages}")
        self.whole = [self.essence(line) for line in text.splitlines()]
        return int((self.work / "count").read_text())

    @staticmethod
    def essence(line):
        value = json.loads(line)
        return value["id"], value.get("token_ids"), value.get("error") is not None

    def verify(self, code, messages, text):
        """What is wrong, or an empty string."""
        if code is None:
            return "it hung"
        if code not in OWN_CODES:
            return f"exit code {code}"
        if text and not text.endswith("\n"):
            return "half a line was left"
        try:
            lines = [self.essence(line) for line in text.splitlines()]
        except (json.JSONDecodeError, KeyError):
            return "a line is no result"
        good = [line for line in lines if not line[2]]
        if any(line not in self.whole for line in good):
            return "a line differs from the uninterrupted run's"
        if code == 0 and lines != self.whole:
            return "it ended with 0 and an output that is not whole"
        if code in (1, 2) and sum(line.startswith("entrodraft: ") for line in messages.splitlines()) == 0:
            return "no message"
        if "/dev/shm" in messages:
            return "it blames /dev/shm, which has room"
        return ""


def chosen(calls, most):
    """Up to `most` of 1 .. calls: the first ones densely, then evenly."""
    if calls <= most:
        return list(range(1, calls + 1))
    dense = most // 3
    rest = most - dense
    return sorted(set(range(1, dense + 1)) | {dense + round((calls - dense) * (i + 1) / rest) for i in range(rest)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--max", type=int, default=200, help="values of n a kind [200]")
    parser.add_argument("--only", default="", help="KIND or KIND:N")
    options = parser.parse_args()
    kind, _, n = options.only.partition(":")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        sweep = Sweep(options.build.resolve(), pathlib.Path(scratch))
        print(f"{'kind':8} {'calls':>8} {'tried':>6} {'unharmed':>9} {'refused':>8} {'wrong':>6}")
        for each in [kind] if kind else KINDS:
            calls = sweep.calls(each)
            values = [int(n)] if n else chosen(calls, options.max)
            ends, wrong = {"unharmed": 0, "refused": 0}, []
            for value in values:
                code, messages, text = sweep.run(each, value)
                if n:
                    print(messages)
                why = sweep.verify(code, messages, text)
                if why:
                    wrong.append((value, why, messages.strip().splitlines()[-1:]))
                else:
                    ends["unharmed" if code == 0 else "refused"] += 1
            print(f"{each:8} {calls:8} {len(values):6} {ends['unharmed']:9} {ends['refused']:8} {len(wrong):6}", flush=True)
            for value, why, last in wrong:
                print(f"    {each}:{value}: {why}; {' '.join(last)[:160]}")
            failed += len(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
