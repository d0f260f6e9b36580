#!/usr/bin/env python3
"""Asks the server of a job (serve.sbatch) and prints its answer as it comes. Needs nothing but Python.

    python3 slurm/ask.py DIRECTORY "Who was Ada Lovelace?" [--max-tokens 200]
"""

import argparse
import json
import pathlib
import sys
import urllib.request


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("question")
    parser.add_argument("--max-tokens", type=int, default=200)
    options = parser.parse_args()
    address = (options.directory / "address").read_text().strip()
    key = (options.directory / "key").read_text().split()[0]
    body = {"messages": [{"role": "user", "content": options.question}], "max_tokens": options.max_tokens, "stream": True}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            data = line.decode().removeprefix("data: ").strip()
            if data and data != "[DONE]":
                print(json.loads(data)["choices"][0]["delta"].get("content", ""), end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
