"""What do the results say, looked at as pictures? One HTML page and PNGs from whatever files there are.

    python3 bench/report.py --output DIR [--title TEXT] [--text ID] [--draft D] [--perfetto FILE] FILE...

Files are results (entrodraft generate --output), recordings (record), what bench latency, bench compare, simulate,
scaling_model.py, theory.py and presets.py write with --output and tune with --report, rounds (--trace) and time lines (--timeline), in
any number and order: what a file holds says what it is.
DIR gets report.html, which needs no other file, and its figures as PNGs; those of an earlier report are replaced.
--text chooses the text of figures along a text, --draft one draft of recordings and simulations that have several,
--perfetto writes the traces and time lines as one Chrome trace, for ui.perfetto.dev.
Needs numpy and matplotlib 3.7 or later.
"""

import argparse
import io
import json
import pathlib
import re
import sys

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"
try:
    from figures import (chrome_trace, drawing, inputs as given, of_costs, of_presets, of_recordings, of_rules, of_speed,
                         of_theory, of_time, page)
except ImportError as missing:
    sys.exit(f"report.py: needs numpy and matplotlib 3.7 or later (pip install -r {REQUIREMENTS}): {missing}")

GROUPS = [("Speed", of_speed.PLOTS), ("Published experiments", of_presets.PLOTS),
          ("Entropy and acceptance", of_recordings.PLOTS), ("Stop rules", of_rules.PLOTS), ("Costs", of_costs.PLOTS),
          ("Ranks and time", of_time.PLOTS), ("The i.i.d. model", of_theory.PLOTS)]
PAGE = "report.html"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"report.py: {message}; see --help\n")


def draft_number(text):
    """From 0, as in files; on the command line drafts count from 1, as those of simulate do."""
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a draft, from 1")
    return int(text) - 1


def parse(arguments):
    parser = Parser(prog="report.py", description=__doc__.splitlines()[0])
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--output", metavar="DIR", type=pathlib.Path, required=True, help="for page and figures")
    parser.add_argument("--title", default="entrodraft report")
    parser.add_argument("--text", metavar="ID", help="of recordings and traces, for figures along a text [the first]")
    parser.add_argument("--draft", metavar="D", type=draft_number, help="the D-th draft alone, from 1 [all]")
    parser.add_argument("--perfetto", metavar="FILE", type=pathlib.Path, help="Chrome trace of traces and time lines")
    options = parser.parse_args(arguments)
    twice = [file for index, file in enumerate(options.files) if file in options.files[:index]]
    if twice:
        parser.error(f"{twice[0]} is given twice")
    return parser, options


def check(parser, options, inputs):
    """Options that would have no effect are refused."""
    if options.draft is not None:
        known = n_drafts_of(inputs)
        if options.draft >= known:
            parser.error(f"--draft {options.draft + 1}: the recordings and simulations given have {known} drafts")
    if options.text is not None:
        found = any(given.text_of_recording(source.data, options.text) for source in inputs.of("recording"))
        if not found and not any(given.rounds_of_text(source.data, options.text) for source in inputs.of("trace")):
            parser.error(f"--text {options.text}: no recording or trace given has a text of that id")
    if options.perfetto and not (inputs.of("trace") or inputs.of("timeline")):
        parser.error("--perfetto: no trace and no time line is given")


def n_drafts_of(inputs):
    counts = [source.data.n_drafts for source in inputs.of("recording")]
    for kind, field in (("simulation", "settings"), ("tuning", "simulated")):
        for source in inputs.of(kind):
            counts += [(setting.get("draft") or 0) + 1 for setting in source.data[field]]
    return max(counts, default=0)


def file_name(name, of, taken):
    """A PNG's name: plain letters, and none twice."""
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", name if of in ("", "all") else f"{name}-{of}").strip("-.")[:100]
    number, file = 1, f"{stem}.png"
    while file.lower() in taken:
        number, file = number + 1, f"{stem}-{number + 1}.png"
    taken.add(file.lower())
    return file


def draw(inputs, choice, directory):
    """Draws and writes every figure that has input: [(heading, [(plot, [(drawing, file, png)])])], and those left."""
    groups, not_drawn, taken = [], [], set()
    for heading, plots in GROUPS:
        drawn = []
        for plot in plots:
            pictures = []
            for each in plot.figures(inputs, choice):
                file = file_name(plot.name, each.of, taken)
                picture = io.BytesIO()
                each.figure.savefig(picture, format="png", dpi=drawing.DPI, metadata={"Software": None})
                (directory / file).write_bytes(picture.getvalue())
                pictures.append((each, file, picture.getvalue()))
            if pictures:
                drawn.append((plot, pictures))
            else:
                not_drawn.append(plot)
        if drawn:
            groups.append((heading, drawn))
    return groups, not_drawn


def main(arguments=None):
    parser, options = parse(arguments)
    try:
        inputs = given.read_all(options.files)
        check(parser, options, inputs)
        options.output.mkdir(parents=True, exist_ok=True)
        with drawing.settings():
            groups, not_drawn = draw(inputs, drawing.Choice(options.text, options.draft), options.output)
        rows = [(source.path, given.KINDS[source.kind], given.facts_of(source), source.warnings)
                for source in inputs.sources]
        (options.output / PAGE).write_text(page.made_of(options.title, rows, groups, not_drawn), encoding="utf-8")
        if options.perfetto:
            sources = [source for source in inputs.sources if source.kind in ("trace", "timeline")]
            options.perfetto.write_text(json.dumps(chrome_trace.merged(sources)) + "\n", encoding="utf-8")
    except given.InputError as error:
        return f"report.py: {error}"
    except OSError as error:
        return f"report.py: {error.filename or options.output}: {error.strerror}"
    for source in inputs.sources:
        for warning in source.warnings:
            print(f"report.py: warning: {source.path}: {warning}", file=sys.stderr)
    n_figures = sum(len(pictures) for _, plots in groups for _, pictures in plots)
    print(f"{options.output / PAGE}: {n_figures} figures; {len(not_drawn)} kinds not drawn for want of input",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
