#!/usr/bin/env python3
"""Figures of the code's form, one a line: what a change of the house is to make smaller.

    tests/form.py [--build build] [--list knots|pairs|functions|classes|tensors|openings]

Functions and classes by Universal Ctags; options by the program's help. Product code is dist, model, spec and launch.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULES = ("dist", "model", "spec", "launch")
CODE = (".h", ".cpp", ".inl", ".cu", ".cuh")
OPENING = re.compile(r"^\W*(Of|Those|What|That of|How|Whether)\b")


def tracked(*suffixes):
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [pathlib.Path(name) for name in names if name.endswith(suffixes) and (ROOT / name).exists()]


def product():
    return {file: (ROOT / file).read_text() for file in tracked(*CODE) if file.parts[0] in MODULES}


def room(file):
    return file.with_suffix("")


def includes(sources):
    """{room: rooms that it includes}"""
    graph = collections.defaultdict(set)
    for file, text in sources.items():
        graph[room(file)] |= {room(pathlib.Path(name)) for name in re.findall(r'#include "([^"]+)"', text)} - {room(file)}
    known = set(graph)
    return {each: others & known for each, others in graph.items()}


def knots(graph):
    """Rooms that include each other by way of others, the largest groups first."""
    order, low, stack, found, count = {}, {}, [], [], [0]
    sys.setrecursionlimit(10000)

    def visit(node):
        order[node] = low[node] = count[0]
        count[0] += 1
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(map(str, stack[at:])))
            del stack[at:]

    for node in graph:
        if node not in order:
            visit(node)
    return sorted(found, key=len, reverse=True)


def pairs(graph):
    """Folders that include each other."""
    edges = {(str(one.parent), str(other.parent)) for one, others in graph.items() for other in others if one.parent != other.parent}
    return sorted((one, other) for one, other in edges if one < other and (other, one) in edges)


def tags(sources):
    """(functions with their lines, classes with their members), the largest first."""
    command = ["ctags", "--languages=C++", "--langmap=C++:+.cu.cuh.inl", "--fields=+ne", "--output-format=json", "--c++-kinds=fcsm", "-f", "-",
               *map(str, sources)]
    functions, members = [], collections.Counter()
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        if tag["kind"] == "function" and "end" in tag:
            functions.append((tag["end"] - tag["line"] + 1, f"{tag['path']}:{tag['name']}"))
        elif tag["kind"] == "member" and tag.get("scopeKind") in ("class", "struct"):
            members[f"{tag['path']}:{tag['scope']}"] += 1
    return sorted(functions, reverse=True), members.most_common()


def tensors(sources):
    """Files that name what one kind of layer holds: those of linear attention's first matrix, and of cross attention's."""
    named = {name: [str(file) for file, text in sources.items() if re.search(rf"\b{name}\b", text)] for name in ("linear_in", "cross_key_value")}
    return named


def comments(sources):
    return [line.strip() for text in sources.values() for line in text.splitlines() if line.strip().startswith("//")]


def sentences():
    """Words of each sentence of the documents, without code and tables."""
    lengths = []
    for file in [pathlib.Path("README.md"), *tracked(".md")]:
        if file.parts[0] not in ("README.md", "docs") and not (len(file.parts) == 2 and file.name == "README.md"):
            continue
        text = re.sub(r"^( {4}|\|).*$", "", re.sub(r"```.*?```", "", (ROOT / file).read_text(), flags=re.S), flags=re.M)
        lengths += [len(part.split()) for part in re.split(r"(?<=[.?!])\s+|\n\s*\n|\n\s*- ", text) if part.split()]
    return lengths


def options_of(program, command):
    shown = json.loads(subprocess.run([program, "help", "--json"], capture_output=True, text=True, check=True).stdout)
    return [option for each in shown["commands"] if each["name"] == command for group in each["groups"] for option in group["options"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--list", choices=("knots", "pairs", "functions", "classes", "tensors", "openings"))
    given = parser.parse_args()
    if not shutil.which("ctags"):
        print("skipped: ctags is not here (package universal-ctags)")
        return 77
    sources = product()
    graph = includes(sources)
    functions, classes = tags(sources)
    told = comments(sources)
    openings = [line for line in told if OPENING.match(line)]
    listed = {"knots": knots(graph), "pairs": pairs(graph), "functions": [each for each in functions if each[0] > 50],
              "classes": [each for each in classes if each[1] > 12], "tensors": list(tensors(sources).items()), "openings": openings}
    if given.list:
        for each in listed[given.list]:
            print(each if isinstance(each, str) else " ".join(map(str, each)))
        return 0
    per_module = {module: sum(len(text.splitlines()) for file, text in sources.items() if file.parts[0] == module) for module in MODULES}
    words = sorted(sentences())
    figures = {
        "product lines": f"{sum(per_module.values()):,} ({', '.join(f'{module} {lines:,}' for module, lines in per_module.items())})",
        "files": len(sources), "functions above 50 lines": len(listed["functions"]), "classes above 12 members": len(listed["classes"]),
        "virtual methods": sum(len(re.findall(r"^\s+virtual ", text, re.M)) for text in sources.values()),
        "folders that include each other": len(listed["pairs"]), "knots (files)": [len(each) for each in listed["knots"]],
        "files that name a layer's matrix": {name: len(files) for name, files in tensors(sources).items()},
        "options of generate": len(options_of(given.build / "entrodraft", "generate")),
        "comment lines": len(told), "of them open with Of, Those, What, That of, How, Whether": len(openings),
        "words of a sentence in documents, median and p90": [statistics.median(words), words[int(0.9 * len(words))]],
        "words of bench/NOTES.md": len((ROOT / "bench/NOTES.md").read_text().split())}
    for name, value in figures.items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
