#!/usr/bin/env python3
"""docs/cli.md, the manual page and completion follow from what the program declares. Is docs/cli.md, which is committed, up to
date, does each command's section name all of its options, and is the manual page clean roff (where groff is)?

    tests/launch/reference.py BINARY
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    binary, pages = pathlib.Path(sys.argv[1]), tempfile.TemporaryDirectory()
    subprocess.run([sys.executable, ROOT / "launch/cli/reference.py", binary, "--pages", pages.name], check=True)
    checked = subprocess.run([sys.executable, ROOT / "launch/cli/reference.py", binary, "--check"], capture_output=True, text=True)
    wrong = [] if checked.returncode == 0 else [checked.stdout + checked.stderr]

    declared = json.loads(subprocess.run([binary, "help", "--json"], check=True, capture_output=True, text=True).stdout)
    markdown = (ROOT / "docs/cli.md").read_text()
    manual = pathlib.Path(pages.name) / "entrodraft.1"
    n_options = 0
    for command in declared["commands"]:
        section = markdown.partition(f"\n## {command['name']}\n")[2].partition("\n## ")[0]
        for option in (option for group in command["groups"] for option in group["options"]):
            n_options += 1
            if f"`--{option['name']}" not in section:
                wrong.append(f"docs/cli.md does not describe --{option['name']} of {command['name']}")
            if r"\-\-" + option["name"].replace("-", r"\-") not in manual.read_text():
                wrong.append(f"the manual page does not describe --{option['name']}")
    if n_options < 100:
        wrong.append(f"only {n_options} options are declared")

    if shutil.which("groff"):
        read = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-z", manual], capture_output=True, text=True)
        if read.returncode != 0 or read.stdout or read.stderr:
            wrong.append(f"groff of the manual page: {read.returncode} {read.stdout} {read.stderr}")
    else:
        print("no groff: the manual page is not read")
    print("\n".join(wrong) or f"{n_options} options of {len(declared['commands'])} commands")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
