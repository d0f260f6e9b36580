#!/usr/bin/env python3
"""Each of two ranks is killed and stopped while prompts are read, in rounds, and in idleness: the server ends with a code.

    tests/serve/faults.py build/entrodraft mpirun [--allow-run-as-root]
"""

import http.client
import os
import pathlib
import signal
import sys
import threading
import time

from life import ranks_of
from server import PAIR, Server

TIMEOUT = 5  # --collective-timeout, seconds
LOADS = {"idleness": None,
         "prompts": {"prompt": "The ferry left the island. " * 60, "max_tokens": 1},
         "rounds": {"prompt": "It was", "max_tokens": 400, "ignore_eos": True, "temperature": 0}}


def ask(server, body):
    """Sends requests until the server is gone."""
    try:
        while server.complete(**body)[0] == 200:
            pass
    except (OSError, http.client.HTTPException):
        pass


def code_after(binary, mpirun, load, rank, number):
    """(exit code, seconds until the end)"""
    with Server(binary, [*PAIR, "--collective-timeout", TIMEOUT, "--batch-size", 4], mpirun, 2) as server:
        clients = [threading.Thread(target=ask, args=(server, LOADS[load])) for _ in range(4)] if LOADS[load] else []
        for client in clients:
            client.start()
        time.sleep(1)
        pids = ranks_of(server)
        begun = time.monotonic()
        os.kill(pids[rank], number)
        try:
            code = server.end(10 * TIMEOUT)
        finally:
            for pid in pids:  # a stopped rank would keep its clients waiting
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        seconds = time.monotonic() - begun
        for client in clients:
            client.join()
        return code, seconds


def main():
    binary, mpirun = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    failures = 0
    for load in LOADS:
        for rank in (0, 1):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                code, seconds = code_after(binary, mpirun, load, rank, number)
                good = code != 0 and seconds < 4 * TIMEOUT
                failures += not good
                print(f"{'passed' if good else 'FAILED'}: {number.name} of rank {rank} in {load}: code {code} after {seconds:.1f} s",
                      flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
