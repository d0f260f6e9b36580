#!/usr/bin/env python3
"""Log-probabilities of a prompt (echo) are those that its tokens have as a text, to the last bit, whoever drafts.

    tests/serve/echo.py build/entrodraft mpirun [--allow-run-as-root] --
"""

import pathlib
import sys

from server import DEMO, Server

SETTINGS = [("plain", [], 1), ("draft", ["--draft", DEMO / "draft"], 1), ("draft, two ranks", ["--draft", DEMO / "draft"], 2),
            ("tree", ["--draft", DEMO / "draft", "--tree", "eagle2:4:4"], 1), ("look-ups", ["--drafter", "ngram"], 1)]


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    binary, mpirun = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:at]
    wrong, first = [], None
    for name, options, ranks in SETTINGS:
        with Server(binary, ["--target", DEMO / "target", "--batch-size", 4, *options], mpirun, ranks) as server:
            prompt = server.ask("POST", "/tokenize", {"prompt": "The ferry left the island"})[1]["tokens"]
            written = server.complete(prompt=prompt, max_tokens=40, temperature=0, logprobs=3)[1]["choices"][0]
            text = server.ask("POST", "/tokenize", {"prompt": written["text"], "add_special_tokens": False})[1]["tokens"]
            status, echoed = server.complete(prompt=prompt + text, max_tokens=5, temperature=0, logprobs=3, echo=True)
            of_prompt, of_text = echoed["choices"][0]["logprobs"], written["logprobs"]
            n = len(prompt)
            checks = {
                "status": status == 200,
                "first": of_prompt["token_logprobs"][0] is None and of_prompt["top_logprobs"][0] is None,
                "length": len(of_prompt["tokens"]) == n + len(text) + 5,
                "usage": echoed["usage"] == {"prompt_tokens": n + len(text), "completion_tokens": 5, "total_tokens": n + len(text) + 5},
                "text": echoed["choices"][0]["text"].startswith("The ferry left the island" + written["text"]),
                "logprobs": of_prompt["token_logprobs"][n:n + len(text)] == of_text["token_logprobs"],
                "top": of_prompt["top_logprobs"][n:n + len(text)] == of_text["top_logprobs"],
                "offsets": "".join(of_prompt["tokens"])[:of_prompt["text_offset"][n]] == "The ferry left the island",
                "same": first in (None, of_prompt) or ranks > 1,
            }
            first = first or of_prompt
            go_on = server.complete(prompt=prompt + text, max_tokens=5, temperature=0)[1]["choices"][0]["text"]
            checks["continuation"] = echoed["choices"][0]["text"].endswith(go_on)
            refused = server.complete(prompt="x", echo=True, logprobs=1, presence_penalty=1)
            checks["refusal"] = refused[0] == 400 and "presence_penalty" in refused[1]["error"]["message"]
            only = server.complete(prompt="The ferry left", max_tokens=3, temperature=0, echo=True)[1]["choices"][0]
            checks["echo alone"] = only["text"].startswith("The ferry left") and only["logprobs"] is None
            server.drain()
            checks["end"] = server.end() == 0
        failed = [check for check, holds in checks.items() if not holds]
        print(f"{name}: {'passed' if not failed else 'wrong: ' + ', '.join(failed)}", flush=True)
        wrong += failed
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
