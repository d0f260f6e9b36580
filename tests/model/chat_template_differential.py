#!/usr/bin/env python3
"""Compares the named chat forms with chat templates as transformers renders them: every text must be equal.

Takes templates as .jinja files, tokenizer_config.json files, or JSON lists of {"names": [..], "text": ".."}; finds the
form that renders all conversations as a template does, and prints a line for each. By hand:

    python tests/model/chat_template_differential.py templates/*.jinja

--write-table FILE writes model/chat/known_chat_templates.h for the templates that a form equals;
--write-goldens FILE the conversations and texts that the unit test reads. Neither holds any template's text.
Where a template renders and the form refuses, the template drops a message or the conversation is out of order.
Without --driver it compiles tests/model/chat_template_driver.cpp with g++.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = "chat_forms chat_renderer chat_template utf8 json_file".split()
DATE = "26 Jul 2024"
TOKENS = [{"bos_token": "<s>", "eos_token": "</s>"}, {"eos_token": "<|im_end|>"}]
CONTENTS = ["Hello", "Who are you?", "  both ends  ", "\n\nlines\n\nhere\r\n\r\n", "", " ", "Καλημέρα, 世界 👋🏽",
            "\u00a0\u2003wide\u3000\u0085", "\u200bnot a space\u200b", "<|im_end|>\n<|im_start|>user\n", "{{ bos_token }}",
            "[INST] x [/INST]", "<think>\nI think\n</think>\n\nI say", "<think></think>", "half</think>whole",
            "a</think>b</think>c", "<think>unfinished", "<tool_response>\n5\n</tool_response>", "CUT_HERE ", "\x1fx\x1c"]
SHAPES = ["u", "su", "uau", "suau", "uauau", "suauau", "ua", "sua", "suaua", "s", "a", "uu", "suu", "usu", "uaa", "uasu",
          "ssu", "sau", "au", "us", "uaus"]
ORDERLY = {"u", "su", "uau", "suau", "uauau", "suauau", "ua", "sua", "suaua"}
MAKERS = ("meta-", "mistralai/", "Qwen/", "google/", "microsoft/", "tiiuae/", "deepseek-ai/", "HuggingFace")
ROLES = {"s": "system", "u": "user", "a": "assistant"}
GOLDEN_CHATS = [
    ("u", "Hello"), ("su", "Be brief.", "Hello"), ("uau", "Hello", "Hi there.", "Who are you?"),
    ("suauau", "Be brief.", "One", "Two", "Three", "Four", "Five"), ("ua", "Count.", "One, two,  "),
    ("sua", "Be brief.", "Count.", "  One"), ("su", "", "Hello"), ("u", " \u3000\u00a0Καλημέρα, 世界 👋🏽\n\nhere\r\n\x1f "),
    ("uau", "<|im_end|>\n{{ bos_token }}", "<think>\n\nI think\n</think>\n\nI say", "And?"),
    ("ua", "Think.", "<think>\nI think\n</think>\n\nI say"), ("uu", "One", "Two"), ("usu", "One", "Be brief.", "Two")]


def conversations(n_random, seed):
    plain = {"s": "Be brief.", "u": "Hello", "a": "Hi there."}
    out = [(shape, [{"role": ROLES[c], "content": plain[c]} for c in shape]) for shape in SHAPES]
    for content in CONTENTS:
        for shape in ("u", "su", "suau", "suaua"):
            for place in range(len(shape)):
                chat = [{"role": ROLES[c], "content": plain[c]} for c in shape]
                chat[place]["content"] = content
                out.append((shape, chat))
    rng = random.Random(seed)
    for _ in range(n_random):
        shape = rng.choice(SHAPES)
        parts = lambda: "".join(rng.choice(CONTENTS) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        out.append((shape, [{"role": ROLES[c], "content": parts()} for c in shape]))
    return out


def reference(template, chat, tokens):
    """The text, or None where the template raises."""
    continues = chat[-1]["role"] == "assistant"
    try:
        return render_jinja_template([chat], chat_template=template, add_generation_prompt=not continues,
                                     continue_final_message=continues, date_string=DATE, **tokens)[0][0]
    except Exception:  # whatever a template or transformers refuses with
        return None


def compile_driver(folder):
    driver = folder / "chat_template_driver"
    subprocess.run(["g++", "-std=c++20", "-O1", f"-I{ROOT / 'include'}", "-o", driver,
                    ROOT / "tests/model/chat_template_driver.cpp", *(ROOT / f"model/{s}.cpp" for s in SOURCES)], check=True)
    return driver


class Driver:
    def __init__(self, path):
        self.path = path
        self.forms = subprocess.run([path, "names"], capture_output=True, text=True, check=True).stdout.split()

    def ask(self, lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run([self.path], input=text, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    def render(self, form, chats, tokens):
        return self.ask([{"form": form, "bos": tokens.get("bos_token"), "eos": tokens.get("eos_token"), "date": DATE,
                          "messages": chat} for chat in chats])


def may_refuse(template, shape, chat, text, tokens):
    """Whether a form may refuse what a template renders: out of order, or a message that the template drops or rewrites."""
    if shape not in ORDERLY:
        return True
    if chat[-1]["role"] == "assistant" and not text.rstrip().endswith(chat[-1]["content"].strip()):
        return True
    if chat[0]["role"] != "system":
        return False
    text = reference(template, [{"role": "system", "content": "MARK"}, *chat[1:]], tokens)
    return text is not None and "MARK" not in text


def compare(template, tokens, theirs, ours, chats):
    """Number of equal texts and of refusals that only we make; None and a case where they differ."""
    equal = stricter = 0
    for (shape, chat), text, answer in zip(chats, theirs, ours):
        if text is None and "error" in answer:
            continue
        if text is not None and answer.get("text") == text:
            equal += 1
        elif text is not None and "error" in answer and may_refuse(template, shape, chat, text, tokens):
            stricter += 1
        else:
            return None, (chat, text, answer)
    return (equal, stricter), None


def read_templates(files):
    templates = {}
    for file in files:
        text = pathlib.Path(file).read_text(encoding="utf-8")
        if file.endswith(".jinja"):
            templates.setdefault(significant_part(text), []).append(pathlib.Path(file).stem)
            continue
        data = json.loads(text)
        if isinstance(data, dict):
            found = data.get("chat_template")
            several = found if isinstance(found, list) else [{"name": "default", "template": found}]
            data = [{"names": [pathlib.Path(file).parent.name], "text": one["template"]} for one in several
                    if one["name"] == "default" and one["template"]]
        for entry in data:
            templates.setdefault(significant_part(entry["text"]), []).extend(entry["names"])
    return templates


def significant_part(text):
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.endswith("\n"):
        text = text[:-1]
    return text[:-1] if text.endswith("%}\n") else text


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="+")
    parser.add_argument("--driver", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", help="print where this form first differs from each template")
    parser.add_argument("--write-table", type=pathlib.Path)
    parser.add_argument("--write-goldens", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, Driver(args.driver or compile_driver(pathlib.Path(folder))))


def run(args, driver):
    chats = conversations(args.random, args.seed)
    plain = [chat for _, chat in chats]
    ours = {form: [driver.render(form, plain, tokens) for tokens in TOKENS] for form in driver.forms}
    rows, goldens, compared, unrecognised = [], {}, 0, 0
    for text, names in read_templates(args.templates).items():
        theirs = [[reference(text, chat, tokens) for chat in plain] for tokens in TOKENS]
        best = None
        for form in driver.forms:
            counts, difference = [], None
            for tokens, t, o in zip(TOKENS, theirs, ours[form]):
                count, difference = compare(text, tokens, t, o, chats)
                if count is None:
                    break
                counts.append(count)
            if form == args.show and difference:
                print(names[0], "differs from", form, *map(repr, difference), sep="\n    ")
            if difference is None and counts[0][0] > 15:
                stricter = sum(count[1] for count in counts)
                if best is None or stricter < best[1]:
                    best = (form, stricter, sum(count[0] for count in counts))
        recognised = driver.ask([{"template": text}])[0]["form"]
        print(f"{best[0] if best else '-':24} equal {best[2] if best else 0:5}  stricter {best[1] if best else 0:4}  "
              f"recognised as {recognised}  {', '.join(sorted(set(names))[:3])}", flush=True)
        if recognised != (best[0] if best else None):
            unrecognised += 1
        if best is None:
            continue
        compared += best[2]
        rows.append((driver.forms.index(best[0]), best[0], text, sorted(set(names))))
        goldens.setdefault(best[0], text)
    print(f"{compared} texts equal over {len(rows)} templates and {len(goldens)} of {len(driver.forms)} forms; "
          f"{unrecognised} templates are not recognised as their form; without a template:",
          *(form for form in driver.forms if form not in goldens))
    if args.write_table:
        write_table(args.write_table, rows)
    if args.write_goldens:
        write_goldens(args.write_goldens, goldens, driver)


TABLE = """// The chat templates that are known, each by the hash of its text, and the named form that renders as it does. Holds no
// template. Made by tests/model/chat_template_differential.py, which compared form and template on many conversations;
// with each row, models or collections that carry it. Included by chat_template.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace entrodraft::model {

struct KnownChatTemplate {
    std::uint64_t hash; // 64-bit FNV-1a of the text's significant part
    std::size_t n_bytes;
    std::string_view form;
};

inline constexpr KnownChatTemplate kKnownChatTemplates[] = {
%s};

} // namespace entrodraft::model
"""


def write_table(file, rows):
    lines = []
    for _, form, text, names in sorted(rows):
        data = text.encode()
        carriers = ", ".join(sorted(names, key=lambda name: not name.startswith(MAKERS))[:3])
        row = f'    {{0x{fnv1a(data):016x}, {len(data)}, "{form}"}},'
        line = f"{row} // {carriers}\n"
        lines.append(line if len(line) <= 113 else f"    // {carriers}\n{row}\n")  # clang-format aligns them
    file.write_text(TABLE % "".join(lines))


def write_goldens(file, templates, driver):
    """What a template of each form makes of GOLDEN_CHATS: texts, or null where the form refuses or the template raises."""
    chats = [[{"role": ROLES[c], "content": content} for c, content in zip(shape, contents)]
             for shape, *contents in GOLDEN_CHATS]
    forms = {}
    for form, template in templates.items():
        answers = driver.render(form, chats, TOKENS[0])
        forms[form] = [reference(template, chat, TOKENS[0]) if "text" in answer else None
                       for chat, answer in zip(chats, answers)]
    lines = [f"{json.dumps(form)}: {json.dumps(texts, ensure_ascii=False)}" for form, texts in forms.items()]
    file.write_text('{"tokens": %s,\n"chats": %s,\n"forms": {\n%s}}\n' % (
        json.dumps(TOKENS[0]), json.dumps(chats, ensure_ascii=False), ",\n".join(lines)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
