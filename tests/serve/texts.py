#!/usr/bin/env python3
"""Requests at random times, sizes and orders, some cancelled: each text is that of `generate` alone, none is lost or mixed.

    tests/serve/texts.py build/entrodraft mpirun [--allow-run-as-root] -- [--requests 60]
"""

import argparse
import json
import pathlib
import random
import sys
import threading
import time

from server import PAIR, Server, texts_alone

PROMPTS = ["The ferry left", "It was a dark night", "In the morning", "He said that", "The door of the house",
           "Nobody knew why", "She opened the letter and", "When the rain had ended"]
LAYOUTS = [("one rank", 1, []), ("two ranks", 2, []), ("four ranks", 4, []), ("two replicas", 2, ["--replicas", 2])]


def request_of(chance):
    body = {"prompt": chance.choice(PROMPTS), "max_tokens": chance.choice([1, 3, 8, 20, 40]),
            "temperature": chance.choice([0, 0, 0.7, 1]), "seed": chance.randrange(1000), "n": chance.choice([1, 1, 1, 2, 3])}
    if body["temperature"] == 0:
        body["n"] = 1
    if chance.random() < 0.2:
        body["stop"] = [chance.choice([" the", ".", "\n"])]
    if chance.random() < 0.3:
        body["stop_rule"] = chance.choice(["constant:tokens=2", "static:1", "svip", "static:1:of=adjusted", "expected-gain"])
    return body


def texts_of_chunks(chunks, n):
    texts = [""] * n
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    return texts


def client(server, chance, number, body, results):
    time.sleep(chance.random() * 4)
    kind = chance.random()
    try:
        if kind < 0.2:  # leaves before the text ends
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps({**body, "max_tokens": 400, "stream": kind < 0.1}))
            if kind < 0.1:
                connection.getresponse().read(10)
            time.sleep(chance.random() * 0.1)
            connection.close()
            results[number] = "cancelled"
        elif kind < 0.6:
            results[number] = texts_of_chunks(server.stream(**body), body["n"])
        else:
            status, answer = server.complete(**body)
            choices = sorted(answer["choices"], key=lambda choice: choice["index"]) if status == 200 else []
            results[number] = [choice["text"] for choice in choices] if status == 200 else answer
    except Exception as error:  # noqa: BLE001: it is the result
        results[number] = f"failed: {error!r}"


def run(binary, mpirun, ranks, options, requests, wanted, seed):
    chance = random.Random(seed)
    results = {}
    with Server(binary, [*PAIR, "--batch-size", 4, "--max-waiting", 1000, *options], mpirun, ranks) as server:
        clients = [threading.Thread(target=client, args=(server, random.Random(chance.random()), number, body, results))
                   for number, body in enumerate(requests)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        server.drain()
        code = server.end()
        stderr = server.stderr()
    wrong = [f"{number}: {results.get(number)} is not {texts}" for number, texts in wanted.items()
             if results.get(number) not in (texts, "cancelled")]
    if code != 0:
        wrong.append(f"the server ended with {code}: {stderr}")
    return wrong, sum(result == "cancelled" for result in results.values())


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    binary, mpirun = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:at]
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(sys.argv[at + 1:])
    chance = random.Random(options.seed)
    requests = [request_of(chance) for _ in range(options.requests)]
    wanted = texts_alone(binary, requests)
    failed = False
    for name, ranks, more in LAYOUTS:
        wrong, cancelled = run(binary, mpirun, ranks, more, requests, wanted, options.seed)
        print(f"{name}: {len(requests)} requests, {cancelled} cancelled, {len(wrong)} wrong", *wrong[:5], sep="\n  ", flush=True)
        failed = failed or bool(wrong) or cancelled == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
