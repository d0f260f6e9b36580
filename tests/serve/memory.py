#!/usr/bin/env python3
"""Many small requests: the server's memory in the last half of them does not grow by more than 1 %.

    tests/serve/memory.py build/entrodraft [--requests 100000]
"""

import argparse
import json
import pathlib
import sys
import threading

from server import PAIR, Server

CLIENTS = 8


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=100000)
    options = parser.parse_args()
    with Server(options.binary.resolve(), [*PAIR, "--batch-size", CLIENTS]) as server:
        failed = []

        def client(number, n):
            connection = server.connect()
            for i in range(n):
                body = {"prompt": f"It was {(number * n + i) % 977}", "max_tokens": 8, "temperature": i % 2, "stream": i % 3 == 0}
                connection.request("POST", "/v1/completions", json.dumps(body))
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    failed.append(answer.status)

        def serve(n):
            clients = [threading.Thread(target=client, args=(number, n // CLIENTS)) for number in range(CLIENTS)]
            for each in clients:
                each.start()
            for each in clients:
                each.join()
            return resident_bytes(server.process.pid)

        half, whole = serve(options.requests // 2), serve(options.requests // 2)
        growth = whole / half - 1
        print(f"{options.requests} requests, {len(failed)} failed: {half / 2**20:.1f} MiB after half, {whole / 2**20:.1f} MiB "
              f"after all, {100 * growth:+.2f} %")
        server.drain()
        return 1 if failed or growth > 0.01 or server.end() != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
