#!/usr/bin/env python3
"""Completion as bash and zsh do it: a live shell on a terminal is given the beginning of a command line and the key that
inserts all that completion offers, and the words that come of it are looked at. Shells that are not there are left out; with
neither the test is skipped (77).

    tests/launch/completion.py BINARY
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT_SECONDS = 120
REFERENCE = pathlib.Path(__file__).resolve().parents[2] / "launch/cli/reference.py"
RULES = "the stop rules"  # as --help lists them
# What is typed, and which words come of it behind `entrodraft`: in any order from the last one on.
CASES = [
    ("gen", ["generate"]),
    ("bench lat", ["bench", "latency"]),
    ("sim", ["simulate"]),
    ("generate --temp", ["generate", "--temperature"]),
    ("bench latency --shar", ["bench", "latency", "--shards"]),
    ("simulate --temp", ["simulate", "--temp"]),
    ("generate --input prom", ["generate", "--input", "prompts.jsonl"]),
    ("generate --target prom", ["generate", "--target", "prom"]),  # a directory is wanted
    ("generate --target wei", ["generate", "--target", "weights"]),
    ("generate --device c", ["generate", "--device", "cpu", "cuda"]),
    ("generate --dtype b", ["generate", "--dtype", "bfloat16"]),
    ("inspect --dtype fl", ["inspect", "--dtype", "float32", "float16", "float8"]),
    ("generate --stop-rule ", ["generate", "--stop-rule", RULES]),
    ("generate --stop-rule=sta", ["generate", "--stop-rule=static"]),
    ("generate --draft DIR --acceptance gu", ["generate", "--draft", "DIR", "--acceptance", "gumbel"]),
    ("generate --draft-placement d", ["generate", "--draft-placement", "dedicated"]),
    ("generate --chat-template prom", ["generate", "--chat-template", "prompts.jsonl"]),
    ("generate --drafter su", ["generate", "--drafter", "suffix"]),
    ("generate --drafter ngram,su", ["generate", "--drafter", "ngram,suffix"]),
    ("bench compare --rules none,mov", ["bench", "compare", "--rules", "none,moving-average"]),
    ("generate --seed 1", ["generate", "--seed", "1"]),
]
# The shell, the keys that insert all that is offered and run the line, and what it is told first. What is typed while zsh
# completes is lost: there one key does both.
SHELLS = {
    "bash": (["bash", "--noprofile", "--norc", "-i"], "\x1b*\n",
             "bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 0'"),
    "zsh": (["zsh", "-f", "-i"], "\x18",
            "unsetopt zle_bracketed_paste prompt_sp; autoload -U compinit && compinit -u -d .zcompdump; "
            "complete-and-run() { zle complete-word; zle accept-line; }; "
            "zle -N complete-and-run; bindkey '^X' complete-and-run; "
            "zstyle ':completion:*' completer _all_matches _complete; zstyle ':completion:*' insert true"),
}


class Shell:
    def __init__(self, command, directory):
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb", "PS1": "> ", "LC_ALL": "C"}
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(directory)
            os.execvpe(command[0], command, environment)
        self.seen = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def await_text(self, pattern):
        """Waits for it in what was not yet looked at; the match."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            if not select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                sys.exit(f"no {pattern!r} within {LIMIT_SECONDS} s in {self.seen!r}")
            self.seen += os.read(self.terminal, 1 << 16).decode(errors="replace")
        self.seen = self.seen[found.end():]
        return found

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


def check(name, script, directory):
    command, keys, setting = SHELLS[name]
    shell = Shell(command, directory)
    shell.type(f"{setting}; entrodraft() {{ printf '<%s>' \"$@\"; echo '<<en''d>>'; }}; . {script}; echo rea''dy\n")
    shell.await_text(r"\nready\r?\n")
    wrong = []
    for typed, wanted in CASES:
        shell.type(f"entrodraft {typed}{keys}")
        words = re.findall(r"<([^<>]*)>", shell.await_text(r"(<[^<>]*>)*<<end>>").group(0).removesuffix("<<end>>"))
        words = [word.rstrip("=/") for word in words]
        at = len(typed.split()) - (0 if typed.endswith(" ") else 1)
        if words[:at] != wanted[:at] or sorted(words[at:]) != sorted(wanted[at:]):
            wrong.append(f"{name}: {typed!r} became {words}, not {wanted}")
    shell.end()
    return wrong


def cases_of(binary):
    """CASES, with the rules that the program has."""
    shown = subprocess.run([binary, "generate", "--help=all"], check=True, capture_output=True, text=True).stdout
    forms = re.search(r"Values follow a rule: ([^ ]+(?:, [^ ]+)*)\. Every", " ".join(shown.split()))[1]
    rules = [form.split(":")[0] for form in forms.split(", ")]
    return [(typed, [word for one in words for word in (rules if one == RULES else [one])]) for typed, words in CASES]


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    CASES[:] = cases_of(binary)
    shells = [name for name in SHELLS if shutil.which(name)]
    for name in SHELLS:
        if name not in shells:
            print(f"no {name}: its completion is not looked at")
    if not shells:
        return 77
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        (directory / "prompts.jsonl").touch()
        (directory / "weights").mkdir()
        pages = directory / "pages"
        subprocess.run([sys.executable, REFERENCE, binary, "--pages", pages], check=True)
        for name in shells:
            wrong += check(name, pages / f"entrodraft.{name}", directory)
    print("\n".join(wrong) or f"{len(CASES)} command lines in {' and '.join(shells)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
