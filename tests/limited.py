"""Commands that may hang: started under a limit of seconds, ended with all that they have started where it is up. Used by gpu_first.py;
standard library only."""

import os
import pathlib
import signal
import subprocess
import time


class Failed(Exception):
    """One line that says what did not come about."""


class OutOfTime(Failed):
    """A part's limit was reached; the text says in what."""


class Missing(Failed):
    """Something that this needs is not here: no fault of the GPU's."""


def children_of(pid):
    """All processes that descend from one, by /proc."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(pathlib.Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found - {pid}


def end(process):
    """Ends a process and what it has started: first asked, then killed."""
    for number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        for pid in {process.pid, *children_of(process.pid)}:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        try:
            process.communicate(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            continue


class Limit:
    """What a part's commands have left."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def run(self, command, *, codes=(0,), environment=None, most=None):
        """A command that has ended with one of the codes; it is ended where the limit, or `most` seconds, are up."""
        command = [str(part) for part in command]
        seconds = min(self.left(), most or self.left())
        if seconds <= 0:
            raise OutOfTime(f"no time was left for {' '.join(command)}")
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       errors="replace", env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            raise Missing(f"{command[0]}: {error.strerror}") from None
        try:
            process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            raise OutOfTime(f"still running after {seconds:.0f} s: {' '.join(command)}") from None
        if codes and process.returncode not in codes:
            told = [line.strip() for line in (process.stderr_text.strip() or process.stdout_text.strip()).splitlines() if line.strip("- ")]
            told = told if len(told) <= 5 else [*told[:3], "...", *told[-2:]]  # mpirun's own words come last
            raise Failed(f"exit code {process.returncode}: {' '.join(command)}: {' | '.join(told)}")
        return process
