#!/usr/bin/env python3
"""Compares chat templates as we run them with transformers: every text must be equal, and where it raises, we must.

Takes templates as .jinja files, tokenizer_config.json files, or .py files with templates as strings. By hand:

    python tests/model/chat_template_differential.py templates/*.jinja

--expectations FILE compares what jinja2 and we make of the small templates of the unit test's file, and --write writes
there what jinja2 makes of them.
Without --driver it compiles tests/model/chat_template_driver.cpp with g++.
"""
import argparse
import ast
import copy
import datetime
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    from transformers.utils import chat_template_utils
except ImportError as missing:
    print(f"skipped: {missing}; pip install transformers jinja2")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [*sorted((ROOT / "model/text/chat").glob("*.cpp")), ROOT / "model/files/utf8.cpp", ROOT / "model/files/json_file.cpp"]
TOKENS = [{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, {"eos_token": "<|im_end|>"}]
CONTENTS = ["Hello", "  both ends  ", "\n\nlines\n\nhere\r\n\r\n", "", " ", "Καλημέρα, 世界 👋🏽", "{{ bos_token }} {% if %}",
            "\u00a0\u2003wide\u3000\u0085", "\u200bnot a space\u200b", "<|im_end|>\n<|im_start|>user\n", "[INST] x [/INST]",
            "<think>\nI think\n</think>\n\nI say", "<think></think>", "a</think>b</think>c", "<think>unfinished",
            "<tool_response>\n5\n</tool_response>", "CUT_HERE ", "\x1fx\x1c", "it's \"quoted\" \\ & <b>", "1. one\n2. two\n"]
SHAPES = ["u", "su", "uau", "suau", "uauau", "suauau", "ua", "sua", "suaua", "s", "a", "uu", "suu", "usu", "uaa", "uasu",
          "ssu", "sau", "au", "us", "uaus", "duau", "utu", "uctau", "suctctau", "uctu", "uct", "sucta"]
ROLES = {"s": "system", "u": "user", "a": "assistant", "d": "developer", "t": "tool", "c": "assistant"}
PLAIN = {"s": "Be brief.", "u": "Hello", "a": "Hi there.", "d": "Be kind.", "t": "{\"celsius\": 21.5}", "c": ""}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city, it's <live>.", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "Its name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "description": "1 to 7", "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "é": {"type": "boolean"}}}}},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}]
CALLS = [{"id": "call00001", "type": "function",
          "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True, "x": None, "f": 1.0}}},
         {"id": "call00002", "type": "function", "function": {"name": "now", "arguments": {}}}]


def message(kind, content=None):
    out = {"role": ROLES[kind], "content": PLAIN[kind] if content is None else content}
    if kind == "c":
        out["tool_calls"] = copy.deepcopy(CALLS)
    if kind == "t":
        out.update(tool_call_id="call00001", name="get_weather")
    return out


def conversations(n_random, seed):
    """(messages, tools, variables) of all kinds; templates refuse some of them."""
    out = [([message(c) for c in shape], None, {}) for shape in SHAPES]
    out += [([message(c) for c in shape], TOOLS, {}) for shape in SHAPES if set(shape) & set("ctsu")]
    for content in CONTENTS:
        for shape, place in (("u", 0), ("su", 0), ("su", 1), ("suau", 2), ("ua", 1), ("uctau", 2)):
            chat = [message(c) for c in shape]
            chat[place]["content"] = content
            out.append((chat, TOOLS if "c" in shape else None, {}))
    parts = [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two "}]
    for shape in ("u", "su", "uau", "ua", "sua"):
        out.append(([message(c, copy.deepcopy(parts)) for c in shape], None, {}))
        out.append(([message(c, copy.deepcopy(parts) if c == "u" else None) for c in shape], None, {}))
    thinking = {"reasoning_content": "Let me see.\n"}
    for variables in ({"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"},
                      {"date_string": "1 May 2025"}, {"documents": [{"title": "T", "text": "It is.", "contents": "x"}]},
                      {"keep_past_thinking": True}, {"builtin_tools": ["wolfram_alpha"]}, {"custom_tools": TOOLS},
                      {"xml_tools": ["a"], "python_tools": ["b"]}, {"tools_in_user_message": False}):
        out.append(([message("u")], None, variables))
        chat = [message(c) for c in "suauctau"]
        chat[2].update(thinking)
        chat[4].update(thinking)
        out.append((chat, TOOLS, variables))
    calls = [message(c) for c in "uctau"]
    calls[1]["content"] = None
    calls[1]["tool_calls"] = [dict(CALLS[0], function=dict(CALLS[0]["function"], arguments='{"city": "Rom"}'))]
    out.append((calls, TOOLS, {}))
    out.append(([dict(m) for m in calls], TOOLS[:1], {}))
    rng = random.Random(seed)
    for _ in range(n_random):
        shape = rng.choice(SHAPES)
        text = lambda: "".join(rng.choice(CONTENTS) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        chat = [message(c, text()) for c in shape]
        for one in chat:
            if rng.random() < 0.1:
                one["reasoning_content"] = text()
        out.append((chat, rng.choice([None, None, TOOLS, TOOLS[:1]]), {}))
    return out


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def reference(template, chat, tools, variables, tokens):
    """The text, or None where the template or transformers raises; and what was raised."""
    continues = chat[-1]["role"] == "assistant"
    try:
        return chat_template_utils.render_jinja_template(
            [chat], tools=tools, chat_template=template, add_generation_prompt=not continues,
            continue_final_message=continues, **{**tokens, **variables})[0][0], None
    except Exception as error:  # whatever a template or transformers refuses with
        return None, repr(error)


def compile_driver(folder):
    driver = folder / "chat_template_driver"
    subprocess.run(["g++", "-std=c++20", "-O1", f"-I{ROOT}", "-o", driver, ROOT / "tests/model/chat_template_driver.cpp",
                    *SOURCES, "-lfmt", "-lutf8proc"], check=True)
    return driver


def ask(driver, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def strings_of(tree):
    """Strings of a Python file that look like templates."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "{%" in node.value and "messages" in node.value:
            yield node.value


def read_templates(files):
    templates = {}
    for file in files:
        text = pathlib.Path(file).read_text(encoding="utf-8")
        if file.endswith(".py"):
            found = list(strings_of(ast.parse(text)))
        elif file.endswith(".json"):
            value = json.loads(text).get("chat_template") or []
            found = [value] if isinstance(value, str) else [one["template"] for one in value]
        else:
            found = [text]
        for one in found:
            templates.setdefault(one, file)
    return templates


def compare(args, driver):
    chats = conversations(args.random, args.seed)
    n_equal = n_raised = n_different = n_templates = 0
    for text, name in read_templates(args.templates).items():
        theirs = [reference(text, *chat, tokens) for chat in chats for tokens in TOKENS]
        ours = ask(driver, [{"template": text, "tokens": tokens, "messages": chat, "tools": tools, "variables": variables}
                            for chat, tools, variables in chats for tokens in TOKENS])
        equal = raised = 0
        differences = []
        for (their, error), our, (chat, tokens) in zip(theirs, ours, itertools.product(chats, TOKENS), strict=True):
            equal += their is not None and our.get("text") == their
            raised += their is None and "error" in our
            if our.get("text") != their:
                differences.append((chat, tokens, their if error is None else error, our))
        n_templates += 1
        n_equal += equal
        n_raised += raised
        n_different += len(differences)
        print(f"equal {equal:4}  both raise {raised:4}  different {len(differences):4}  {name}", flush=True)
        for difference in differences[:args.show]:
            print(*(repr(part)[:2000] for part in difference), sep="\n    ")
    print(f"{n_templates} templates, {len(chats)} conversations with {len(TOKENS)} sets of tokens each: {n_equal} texts equal, "
          f"{n_raised} raised by both, {n_different} different")
    return 1 if n_different else 0


def check_expectations(file, driver, writes):
    """The small templates of the unit test: what jinja2 makes of each, null where it raises."""
    data = json.loads(file.read_text(encoding="utf-8"))
    ours = ask(driver, [{"template": one["template"], "variables": data["variables"]} for one in data["templates"]])
    n_different = 0
    for one, our in zip(data["templates"], ours, strict=True):
        try:
            one["text"] = chat_template_utils._compile_jinja_template(one["template"]).render(**data["variables"])
        except Exception as error:  # whatever jinja2 refuses with
            one["text"], raised = None, repr(error)
        if our.get("text") != one["text"]:
            n_different += 1
            print(repr(one["template"]), repr(one["text"]) if one["text"] is not None else raised, our, sep="\n    ")
    print(f"{len(data['templates'])} small templates, {n_different} different")
    if writes:
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in data["templates"])
        file.write_text('{"variables": %s,\n"templates": [\n%s]}\n' % (json.dumps(data["variables"], ensure_ascii=False), lines),
                        encoding="utf-8")
    return n_different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--driver", type=pathlib.Path)
    parser.add_argument("--expectations", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--write", action="store_true", help="with --expectations")
    parser.add_argument("--random", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="print so many differences of each template")
    args = parser.parse_args()
    chat_template_utils.datetime = FixedTime
    with tempfile.TemporaryDirectory() as folder:
        driver = args.driver or compile_driver(pathlib.Path(folder))
        if args.expectations:
            return 1 if check_expectations(args.expectations, driver, args.write) else 0
        return compare(args, driver)


if __name__ == "__main__":
    sys.exit(main())
