#!/usr/bin/env python3
"""kill -9 at random moments, again and again, then --resume: nothing may be lost, doubled or said differently.

For 2 and 4 ranks with 1 and 2 replicas, and for greedy and gumbel text, a run is killed at a random moment (one rank, or
all of them and their launcher), resumed, killed again, and so on until a run ends by itself. After each death the file
must hold whole lines, a beginning of what an uninterrupted run writes, and OUTPUT.settings a hash for each; at the end
all of it: id, text, token_ids, finish_reason and errors. A launcher that hangs although all its ranks have ended is not ours to mend (Open MPI 4.1.4's
does, once in some hundred deaths): it is killed and counted, and seldom enough it is no failure. Standard library only.

  kill_and_resume.py BINARY MPIRUN.. -- --repetitions N [--seed S]
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(os.path.dirname(HERE), "model", "golden")
LINES = 60
PROMPTS = ["The ferry left", "The island", "One morning the", "Nobody saw", "Once more"]
MOST_DEATHS = 40  # of one output: a run that never ends is a failure
MOST_HANGS = 2  # of launchers, of the whole test
hung_launchers = []


def write_input(path):
    with open(path, "w", encoding="utf-8") as file:
        for i in range(LINES):
            if i % 17 == 9:
                file.write("this is no JSON\n")
            else:
                budget = 150 if i % 7 == 3 else 4 + i % 23  # long ones among short ones: others run ahead
                line = {"id": f"p{i}", "prompt": PROMPTS[i % len(PROMPTS)] + f" {i}", "max_new_tokens": budget}
                file.write(json.dumps(line) + "\n")


def ranks_of(launcher):
    """Process ids of the ranks: children, and theirs, of the launcher."""
    found, parents = [], [launcher]
    while parents:
        listing = subprocess.run(["ps", "-o", "pid=", "--ppid", ",".join(map(str, parents))],
                                 capture_output=True, text=True, check=False)
        parents = [int(pid) for pid in listing.stdout.split()]
        found += parents
    return found


def session_of(launcher):
    """Process ids of the launcher and all that it started, orphans too; the dead that nobody has reaped are none."""
    listing = subprocess.run(["ps", "-o", "pid=,stat=", "--sid", str(launcher)], capture_output=True, text=True,
                             check=False)
    processes = [line.split() for line in listing.stdout.splitlines()]
    return [int(pid) for pid, state in processes if not state.startswith("Z")]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_once(command, deadly_after, rng):
    """Exit code, or None where the run was killed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, messages = process.communicate(timeout=deadly_after)
        return process.returncode, messages.decode(errors="replace")
    except subprocess.TimeoutExpired:
        pass
    ranks = ranks_of(process.pid)
    kills_one = ranks and rng.random() < 0.7
    if kills_one:
        kill(rng.choice(ranks))
    else:  # and those that the launcher was still starting
        while left := session_of(process.pid):
            for pid in left:
                kill(pid)
            time.sleep(0.05)
    try:
        _, messages = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        left = subprocess.run(["ps", "-o", "pid,ppid,stat,wchan,args", "--sid", str(process.pid)], capture_output=True,
                              text=True, check=False).stdout
        alive = session_of(process.pid)
        for pid in alive:
            kill(pid)
        if kills_one and alive == [process.pid] and len(hung_launchers) < MOST_HANGS:
            hung_launchers.append(process.pid)
            print(f"the launcher hung, all its ranks having ended:\n{left}", flush=True)
            return None, process.communicate()[1].decode(errors="replace")
        died = "a rank" if kills_one else "all ranks"
        raise SystemExit(f"a run did not end within 60 s of the death of {died}: {' '.join(command)}\n{left}")
    for pid in ranks:  # those of a launcher that was killed may take a moment
        for _ in range(600):
            if not os.path.exists(f"/proc/{pid}"):
                break
            time.sleep(0.1)
        else:
            raise SystemExit(f"process {pid} outlives its job: " + " ".join(command))
    code = process.returncode
    return (code if code in (0, 3) else None), messages.decode(errors="replace")


def lines_of(path):
    with open(path, "rb") as file:
        data = file.read()
    torn = data and not data.endswith(b"\n")
    lines = [json.loads(line) for line in (data[:data.rfind(b"\n") + 1]).splitlines()]
    for line in lines:
        line.pop("stats", None)
    return lines, torn


def hashes_of(output):
    """Whole lines of hashes in the file of settings, which is there before the first line of the output."""
    with open(output + ".settings", "rb") as file:
        return file.read().count(b"\n") - 1


def kill_until_done(command, whole, seconds, output, rng):
    """Deaths it took."""
    for deaths in range(MOST_DEATHS):
        # Late enough, in the end, for some run to come through.
        deadly_after = rng.uniform(0.1, 0.9) * seconds * (1 + deaths / 6)
        resumed = command + (["--resume"] if os.path.exists(output) else [])
        code, messages = run_once(resumed, deadly_after, rng)
        lines, torn = lines_of(output) if os.path.exists(output) else ([], False)
        if lines != whole[:len(lines)]:
            raise SystemExit(f"after {deaths + 1} deaths the output is no beginning of the whole: {output}\n{messages}")
        if lines and (known := hashes_of(output)) < len(lines):
            raise SystemExit(f"after {deaths + 1} deaths {output}.settings knows {known} of {len(lines)} lines")
        if code is not None:
            if code != 3 or torn or lines != whole:
                raise SystemExit(f"a resumed run ended with code {code} and {len(lines)} lines:\n{messages}")
            return deaths
    raise SystemExit(f"no run came through in {MOST_DEATHS}: {messages}")


def main():
    split = sys.argv.index("--")
    binary, mpirun = sys.argv[1], sys.argv[2:split]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(sys.argv[split + 1:])
    rng = random.Random(options.seed)
    texts = {"greedy": ["--temperature", "0"],
             "gumbel": ["--temperature", "1", "--acceptance", "gumbel", "--seed", "5"]}
    print(f"{'ranks':>5} {'replicas':>8} {'text':>7} {'outputs':>7} {'deaths':>6}")
    with tempfile.TemporaryDirectory() as directory:
        prompts = os.path.join(directory, "prompts.jsonl")
        write_input(prompts)
        for ranks in (2, 4):
            for replicas in (1, 2):
                for name, sampling in texts.items():
                    base = mpirun + ["-n", str(ranks), binary, "generate", "--target", GOLDEN + "/llama-target",
                                     "--draft", GOLDEN + "/llama-draft", "--input", prompts, "--threads", "1",
                                     "--ignore-eos", "--replicas", str(replicas), "--quiet",
                                     "--collective-timeout", "30"] + sampling
                    reference = os.path.join(directory, f"whole-{ranks}-{replicas}-{name}.jsonl")
                    began = time.monotonic()
                    ended = subprocess.run(base + ["--output", reference], capture_output=True, text=True, check=False)
                    seconds = time.monotonic() - began
                    whole, _ = lines_of(reference)
                    if ended.returncode != 3 or len(whole) != LINES:
                        raise SystemExit(f"the uninterrupted run ended with {ended.returncode}: {ended.stderr}")
                    deaths = 0
                    for repetition in range(options.repetitions):
                        output = os.path.join(directory, f"out-{ranks}-{replicas}-{name}-{repetition}.jsonl")
                        deaths += kill_until_done(base + ["--output", output], whole, seconds, output, rng)
                    print(f"{ranks:>5} {replicas:>8} {name:>7} {options.repetitions:>7} {deaths:>6}", flush=True)


if __name__ == "__main__":
    main()
