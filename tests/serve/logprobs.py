#!/usr/bin/env python3
"""Log-probabilities of a stream come with the text of their tokens, and together equal those of the answer without a stream.

    tests/serve/logprobs.py build/entrodraft mpirun [--allow-run-as-root] --
"""

import pathlib
import sys

from server import DEMO, Server

SETTINGS = [("plain", [], 1), ("draft", ["--draft", DEMO / "draft"], 1), ("draft, two ranks", ["--draft", DEMO / "draft"], 2),
            ("two replicas", ["--draft", DEMO / "draft", "--replicas", 2], 2)]
COMMON = {"temperature": 0, "max_tokens": 40}
MANY_BYTES = {"regex": "a?[\u00e9\u20ac\U0001f600]{6} [a-z]+"}
THOUGHT = {"regex": "<think>\n[a-z ]{12}\n</think>\n\n[A-Z][a-z ]{12}\\."}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}}
CALL = {"regex": '<tool_call>\\{"name": "add", "arguments": \\{"a": [0-9]\\}\\}</tool_call>'}
ENDS = {"stop string": "stop", "bytes and stop string": "stop", "thought": "stop", "call": "tool_calls"}
# Fields of requests; those of a chat have log-probabilities by other fields.
REQUESTS = {
    "text": {},
    "long stop string": {"stop": ["e sea and nothing like it"]},  # begins often
    "stop string": {"stop": ["r was open", "Year"]},
    "bytes": MANY_BYTES,
    "bytes and stop string": {**MANY_BYTES, "stop": ["\u00e9\u00e9!", "\u00e9 an"]},
    "cut character": {**MANY_BYTES, "max_tokens": 2},
    "samples": {"n": 2, "temperature": 1, "seed": 5},
}
OF_CHAT = {"thought": THOUGHT, "thought and stop string": {**THOUGHT, "stop": ["k>\n\nZ", "</t!"]},
           "cut call": {"tools": [TOOL], "tool_choice": "required"}, "call": {"tools": [TOOL], "max_tokens": 80, **CALL}, "text beside tools": {"tools": [TOOL]}}
OF_TEXT = {"prompts": {"prompt": ["The ferry left", "It was"]}, "echo": {"echo": True}, "echo of bytes": {"echo": True, "prompt": "\u00e9\u20ac\U0001f600"},
           "echo, stop at once": {"echo": True, "stop": [" ", "e", "a", "o", "i", ","]}, "echo alone": {"echo": True, "logprobs": None}}


def text_of(choice):
    """All that a choice, or a choice of an event, shows of the text."""
    part = choice.get("message") or choice.get("delta") or choice
    calls = "".join(call["function"]["arguments"] for call in part.get("tool_calls") or [])
    return (part.get("reasoning_content") or "") + (part.get("text") or part.get("content") or "") + calls


def mistakes(server, path, body, end=None):
    """How a stream differs from the answer without a stream."""
    status, whole = server.ask("POST", path, body)
    if status != 200:
        return [f"refused: {whole}"]
    wrong = []
    for choice in whole["choices"]:
        if end and choice["finish_reason"] != end:
            wrong.append(f"ends with {choice['finish_reason']}, not {end}")
        n_texts, together, text = 0, {}, ""
        for event in server.stream(path, **body):
            for part in event["choices"]:
                if part["index"] != choice["index"]:
                    continue
                text += text_of(part)
                n_texts += bool(text_of(part))
                lists = part["logprobs"] or {}
                if any(not values for values in lists.values()):
                    wrong.append("an empty list")
                if text_of(part) and not lists and choice["logprobs"] and "stop" not in body:
                    wrong.append(f"none with {text_of(part)!r}")
                for name, values in lists.items():
                    together[name] = together.get(name, []) + values
        if text != text_of(choice):
            wrong.append(f"text {text!r}, not {text_of(choice)!r}")
        if choice["logprobs"] is None:
            wrong += ["some are not asked for"] if together else []
            continue
        if together != choice["logprobs"]:
            wrong.append(f"{together} instead of {choice['logprobs']}")
        tokens = choice["logprobs"].get("tokens", choice["logprobs"].get("content"))
        if not body.keys() & {"regex", "stop", "tools", "echo"} and n_texts < len(tokens) - 1:  # a chat holds back blanks at the beginning
            wrong.append(f"{n_texts} events with text for {len(tokens)} tokens")
    return wrong


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    binary, mpirun = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:at]
    failed = False
    for name, options, ranks in SETTINGS:
        wrong, n = [], 0
        with Server(binary, ["--target", DEMO / "target", "--chat-template", "chatml", "--batch-size", 4, *options], mpirun, ranks) as server:
            for case, fields in {**REQUESTS, **OF_TEXT}.items():
                body = {**COMMON, "prompt": "The ferry left", "logprobs": 2, **fields}
                wrong += [f"completion, {case}: {mistake}" for mistake in mistakes(server, "/v1/completions", body, ENDS.get(case))]
                n += 1
            for case, fields in {**REQUESTS, **OF_CHAT}.items():
                body = {**COMMON, "messages": [{"role": "user", "content": "The ferry left"}], "logprobs": True, "top_logprobs": 2, **fields}
                wrong += [f"chat, {case}: {mistake}" for mistake in mistakes(server, "/v1/chat/completions", body, ENDS.get(case))]
                n += 1
            server.drain()
            if server.end() != 0:
                wrong.append(server.stderr())
        print(f"{name}: {n} requests, {len(wrong)} wrong", *(mistake[:600] for mistake in wrong[:5]), sep="\n  ", flush=True)
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
