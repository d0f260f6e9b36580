"""How does a pair scale with ranks and with where the draft is, and does the scaling model foresee it?

    python3 bench/scaling.py --ranks 1,2,4 --placements colocated,dedicated --target DIR --draft DIR
                            [--threads 1] [--turns 1] [--prompts FILE] [--keep DIR] [--output FILE]

A running job cannot change its ranks, so each setting is a job of its own: `bench latency` and, with --prompts,
`bench compare` under the launcher; then scaling_model.py over what they wrote. With --turns all settings are
measured several times in turn, and of each setting the file with the median t_target counts: noise then meets all
alike.
Ranks above the cores run and are marked so. Settings that cannot be (dedicated on one rank) are passed over, which is
said. Needs an idle machine and the standard library only.
"""

import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

import scaling_model
from gpus import SHAPES
from json_file import BadFile
from runs import DEMO, Parser, comma_list, file_name, program, report, run

MPIRUN = "mpirun --bind-to none -n {ranks}" + (" --allow-run-as-root" if os.geteuid() == 0 else "")
PLACEMENTS = ("colocated", "dedicated", "sharded")


def parse_options():
    parser = Parser(prog="scaling.py", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=comma_list(int), default=[1, 2], help="[1,2]")
    parser.add_argument("--placements", type=comma_list(str, PLACEMENTS), default=["colocated"], help="[colocated]")
    parser.add_argument("--target", default=str(DEMO / "target"))
    parser.add_argument("--draft", default=str(DEMO / "draft"))
    parser.add_argument("--threads", type=int, default=1, help="of each rank [1]")
    parser.add_argument("--binary", default=program())
    parser.add_argument("--launcher", default=MPIRUN, help=f"with {{ranks}} where their number goes [{MPIRUN}]")
    parser.add_argument("--turns", type=int, default=1, help="measurements of each setting [1]")
    parser.add_argument("--repetitions", type=int, default=200, help="passes of a measurement [200]")
    parser.add_argument("--shards", action="store_true", help="one rank times a shard of each number of ranks by "
                        "itself: predicts where caches hold a shard but not the whole")
    parser.add_argument("--prompts", help="JSON lines: bench compare runs on them too, greedily")
    parser.add_argument("--max-prompts", type=int, default=16, help="of --prompts [16]")
    parser.add_argument("--hardware", help="figures of GPUs to extrapolate to: bench/hardware.json")
    parser.add_argument("--shapes", type=comma_list(str, SHAPES), metavar="LIST", help="of --hardware: models, as of scaling_model.py")
    parser.add_argument("--keep", help="a directory for the files of the single runs")
    parser.add_argument("--output", type=file_name, help="JSON of scaling_model.py")
    options = parser.parse_args()
    if min(options.ranks) < 1 or options.threads < 1 or options.turns < 1:
        parser.error("--ranks, --threads and --turns are at least 1")
    if options.shapes and not options.hardware:
        parser.error("--shapes has no effect without --hardware FILE")
    if "{ranks}" not in options.launcher:
        parser.error("--launcher must say {ranks} where their number goes")
    return options


def bench(options, setting, *arguments):
    """One bench of a setting, under the launcher."""
    ranks, placement = setting
    launcher = shlex.split(options.launcher.replace("{ranks}", str(ranks)))
    if options.launcher == MPIRUN and ranks > os.cpu_count():
        launcher.insert(1, "--oversubscribe")  # not below: Open MPI's waits are slower with it
    run([*launcher, options.binary, "bench", *arguments, "--target", options.target, "--draft", options.draft,
         "--draft-placement", placement, "--threads", options.threads])


def settings_of(options):
    settings = []
    for ranks in sorted(set(options.ranks)):
        for placement in options.placements:
            if placement == "dedicated" and ranks == 1:
                print("dedicated needs a rank for the draft and one for the target: not run on 1 rank",
                      file=sys.stderr)
            elif (ranks, placement) not in settings:
                settings.append((ranks, placement))
    return settings


def median_of(files):
    """Of several measurements of a setting that with the median pass: a whole file, as its parts belong together."""
    passes = {file: json.loads(file.read_text())["t_target_ms"][0] for file in files}
    middle = statistics.median_low(passes.values())
    return next(file for file in files if passes[file] == middle)


def shard_list(settings):
    """Ranks that the target is sharded across in any setting: one rank times a shard of each by itself."""
    return ",".join(map(str, sorted({ranks - (placement == "dedicated") for ranks, placement in settings})))


def measure(options, settings, work):
    """Files of bench latency, one a setting; printed beside each is how far its turns lay apart."""
    files = {setting: [] for setting in settings}
    for turn in range(options.turns):
        for setting in settings if turn % 2 == 0 else reversed(settings):
            file = work / f"latency-{setting[0]}-{setting[1]}-{turn}.json"
            shards = ["--shards", shard_list(settings)] if options.shards and setting[0] == 1 else []
            bench(options, setting, "latency", "--rows", 16, "--repetitions", options.repetitions, "--output", file,
                  *shards)
            files[setting].append(file)
    for setting, measured in files.items():
        passes = sorted(json.loads(file.read_text())["t_target_ms"][0] for file in measured)
        print(f"{setting[0]} ranks, {setting[1]}: t_target(1) {', '.join(f'{each:.4f}' for each in passes)} ms")
    return {setting: median_of(measured) for setting, measured in files.items()}


def compare(options, costs, work):
    """Files of bench compare, with the costs that were measured for the setting."""
    files = []
    for setting, file in costs.items():
        output = work / f"compare-{setting[0]}-{setting[1]}.json"
        bench(options, setting, "compare", "--input", options.prompts, "--prompts", options.max_prompts,
              "--temperatures", 0, "--rules", "expected-gain", "--costs", file, "--output", output, "--quiet")
        files.append(output)
    return files


def main():
    options = parse_options()
    settings = settings_of(options)
    if not settings:
        raise SystemExit("no setting is left to measure")
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(options.keep or scratch)
        work.mkdir(parents=True, exist_ok=True)
        costs = measure(options, settings, work)
        files = list(costs.values()) + (compare(options, costs, work) if options.prompts else [])
        try:
            text, result = scaling_model.reported(files, options.hardware, options.shapes)
        except BadFile as error:
            raise SystemExit(f"scaling.py: {error}") from None
        report("\n" + text, result, options.output)


if __name__ == "__main__":
    main()
