"""Do measured passes of several rank counts agree with the scaling model, and what does it say of GPUs?

    python3 bench/scaling_model.py FILE... [--hardware FILE] [--shapes LIST] [--bandwidth-share SHARE] [--output FILE] [--json]

Files are JSON of `bench latency --output` and, where there is any, `bench compare --output`: one of each for a number of
ranks, threads and placement. bench/scaling.py and slurm/scaling.sbatch measure them. The model (docs/promises.md, Cost):

    t(n) = compute(n) + all-reduces * (alpha(n) + bytes * beta(n)),  and broadcast + gather beside a pass
    compute(n) by reading:   compute(base) * limit(n) / limit(base), limits of `bench latency`: what the ranks could read
                             and compute at best, all of them at once
    compute(n) by division:  compute(base) * base / n
    compute(n) by shard:     shard(n) * limit(n) / limit(shard(n) alone), where the base's rank has timed a shard of n
                             by itself: with what does not shrink, and what the caches hold once it is sharded

Ranks of one host share its caches and its memory's bandwidth, which division leaves out. Nothing is fitted to the pass
that is predicted. On GPUs, from the figures of --hardware, each with its source:

    t(n)         = bytes of weights of a GPU / (share * memory bandwidth) + all-reduces * reduce(n, bytes of a row)
    reduce(n, b) = node latency + 2 (g - 1) / g * b / node bandwidth                     among the g GPUs of a node
                 + 2 ceil(log2 m) * hop latency + 2 (m - 1) / m * (b / g) / net bandwidth    over the m nodes

Keys and values, norms and what starts a kernel are left out: a bound from figures, no promise. Where the file of figures says what
this program's kernels cost (gpu_path.py), passes, steps of a draft and prompts on one to eight GPUs are predicted as well, and files
that were measured on such a GPU stand beside that. Standard library only.
"""

import dataclasses
import typing

import gpu_path
from gpus import LARGE, SHAPES, extrapolation_report, read_hardware, replicas_rate
from json_file import COUNT, NUMBER, OBJECT, POSITIVE, TEXT, BadFile, File
from runs import Parser, aligned, comma_list, counted, file_name, number, refuse_overwriting, report


# ---- what was measured: seconds throughout ----

class Setting(typing.NamedTuple):
    """How a run was started."""

    ranks: int
    threads: int  # of each
    placement: str

    @property
    def cores(self):
        return self.ranks * self.threads

    def __str__(self):
        return f"{counted(self.ranks, 'rank')} of {counted(self.threads, 'thread')}, {self.placement}"


def setting_of(file):
    return Setting(file.get("environment.ranks", COUNT), file.get("environment.threads_per_rank", COUNT),
                   file.get("environment.draft_placement", TEXT))


class Link(typing.NamedTuple):
    """A collective of so many bytes a rank takes alpha + bytes * beta seconds."""

    alpha: float = 0.0
    beta: float = 0.0


def fit_link(samples):
    """Least squares of the relative errors of (bytes, seconds), neither part below 0; ValueError below two sizes."""
    if any(size <= 0 or seconds <= 0 for size, seconds in samples):
        raise ValueError("a collective's bytes and time must be above 0")
    if len({size for size, _ in samples}) < 2:
        raise ValueError("alpha and beta need collectives of at least two sizes")
    terms = [(1 / t ** 2, size / t ** 2, 1 / t, (size / t) ** 2, size / t) for size, t in samples]
    n, x, y, xx, xy = map(sum, zip(*terms))
    beta = (n * xy - x * y) / (n * xx - x * x)
    alpha = (y - beta * x) / n
    return Link(y / n, 0.0) if beta < 0 else Link(0.0, xy / xx) if alpha < 0 else Link(alpha, beta)


@dataclasses.dataclass
class Latency:
    """A file of bench latency: a pass of one row over `tensor_parallel` ranks, and what it is made of."""

    file: str
    setting: Setting
    over_cores: bool  # more threads than cores: says nothing of scaling
    target: str  # type and shape: what has to be alike to be compared
    tensor_parallel: int
    t_target: float
    limit: float
    t_draft: float
    all_reduces: float = 0.0
    all_reduce_bytes: float = 0.0  # of each
    link: Link = Link()
    broadcast: float = 0.0
    gather: float = 0.0  # of candidates
    shards: dict = dataclasses.field(default_factory=dict)  # by ranks: (beside a draft, alone, limit)

    @property
    def communication(self):
        return self.all_reduces * (self.link.alpha + self.all_reduce_bytes * self.link.beta)

    @property
    def compute(self):
        """What is left without the all-reduces; ValueError where nothing is."""
        if self.t_target <= self.communication:
            raise ValueError("the all-reduces of a pass would take longer than the whole pass")
        return self.t_target - self.communication


def read_latency(file):
    setting = setting_of(file)
    threads = file.get("environment.host_ranks", COUNT) * setting.threads
    target = "{}, {} layers of {}, vocabulary of {}".format(
        file.get("environment.dtype", TEXT), *(file.get(f"target_shape.{name}", COUNT)
                                               for name in ("layers", "hidden_size", "vocab_size")))
    run = Latency(file.name, setting, threads > file.get("environment.cores", COUNT), target,
                  file.get("tensor_parallel", COUNT), file.get("t_target_ms[0]", POSITIVE) / 1e3,
                  file.get("target[0].limit_ms", POSITIVE) / 1e3, file.get("t_draft_ms", NUMBER) / 1e3,
                  file.get("target_shape.all_reduces_per_pass", NUMBER))
    if run.all_reduces:
        run.all_reduce_bytes = file.get("target_shape.all_reduce_bytes_per_pass", POSITIVE) / run.all_reduces
    samples = []
    for path in file.each("collectives"):
        name, seconds = file.get(f"{path}.name", TEXT), file.get(f"{path}.median_ms", NUMBER) / 1e3
        if name.startswith("broadcast"):
            run.broadcast = seconds
        elif name.startswith("gather of candidates"):
            run.gather = seconds
        elif name.startswith("all-reduce"):
            samples.append((file.get(f"{path}.bytes", NUMBER), seconds))
    try:
        run.link = fit_link(samples) if run.tensor_parallel > 1 else run.link
    except ValueError as error:
        file.bad("collectives", f"gives no cost of all-reduces: {error}")
    for path in file.each("shards", is_optional=True):
        run.shards[file.get(f"{path}.of", COUNT)] = [file.get(f"{path}.{name}", POSITIVE) / 1e3 for name in (
            "t_target_ms", "t_target_without_draft_ms", "limit_ms")]
    return run


class Compare(typing.NamedTuple):
    """A file of bench compare: tokens a second at its first temperature, as fields of the JSON."""

    file: str
    setting: Setting
    rates: dict  # plainly, and of the fastest setting with a draft, 0 without one


def read_compare(file):
    rates = {"plain_tokens_per_second": 0, "drafting_tokens_per_second": 0, "drafting": ""}
    for path in file.each("temperatures[0].settings"):
        if file.get(path, OBJECT).get("kind") != "":  # runs that drafted to the cap, for the oracle
            continue
        name, rate = file.get(f"{path}.setting", TEXT), file.get(f"{path}.tokens_per_second", POSITIVE)
        if name == "plain":
            rates["plain_tokens_per_second"] = rate
        elif rate > rates["drafting_tokens_per_second"] and not name.startswith("plain"):
            rates.update(drafting_tokens_per_second=rate, drafting=name)
    if not rates["plain_tokens_per_second"]:
        file.bad("temperatures[0].settings", "has no plain decoding")
    return Compare(file.name, setting_of(file), rates)


def read_files(names):
    """([Latency] in order of settings, {setting: Compare}). Refused: one setting twice, several targets, and a
    comparison without the latency of its setting."""
    latencies, compares = {}, {}
    for name in names:
        file = File(name)
        if "t_target_ms" in file.values:
            runs, run = latencies, read_latency(file)
        elif "temperatures" in file.values:
            runs, run = compares, read_compare(file)
        else:
            raise BadFile(f"{name}: is neither of bench latency --output (field t_target_ms) nor of bench compare --output "
                          "(field temperatures)")
        if run.setting in runs:
            raise BadFile(f"{name}: was measured with {run.setting}, as {runs[run.setting].file} was; give one of them")
        runs[run.setting] = run
    for setting, run in compares.items():
        if setting not in latencies:
            raise BadFile(f"{run.file}: compares {setting}, of which there is no file of bench latency")
    first, *others = [latencies[setting] for setting in sorted(latencies)]
    for run in others:
        if run.target != first.target:
            raise BadFile(f"{run.file}: is of another target ({run.target}) than {first.file} ({first.target})")
    return [first, *others], compares


# ---- measured beside predicted: rows are those of the JSON (docs/formats.md) ----

def prediction(base, run):
    """{name: seconds}: of `run` only the limit, the all-reduces and the link are looked at."""
    predicted = {"by reading": base.compute * run.limit / base.limit,
                 "by division": base.compute * base.tensor_parallel / run.tensor_parallel}
    if run.tensor_parallel in base.shards:
        beside_draft, alone, limit = base.shards[run.tensor_parallel]
        shard = beside_draft if run.setting.placement == "colocated" else alone
        predicted["by shard"] = shard * run.limit / limit
    return {name: seconds + run.communication for name, seconds in predicted.items()}


def row_of(base, run, compare):
    predicted, setting, speedup = prediction(base, run), run.setting, base.t_target / run.t_target
    best = "by shard" if "by shard" in predicted else "by reading"  # the best founded one
    row = {"ranks": setting.ranks, "placement": setting.placement, "threads_per_rank": setting.threads,
           "tensor_parallel": run.tensor_parallel, "is_base": run is base, "over_cores": run.over_cores,
           "t_target_ms": run.t_target * 1e3, "predicted_ms": predicted[best] * 1e3, "compute_by": best,
           "predicted_by_reading_ms": predicted["by reading"] * 1e3,
           "predicted_by_division_ms": predicted["by division"] * 1e3,
           "measured_over_predicted": run.t_target / predicted[best], "all_reduces_ms": run.communication * 1e3,
           "broadcast_and_gather_ms": (run.broadcast + run.gather) * 1e3, "alpha_us": run.link.alpha * 1e6,
           "beta_ns_per_byte": run.link.beta * 1e9, "speedup": speedup,
           "efficiency": speedup * base.setting.cores / setting.cores, "t_draft_ms": run.t_draft * 1e3, "file": run.file}
    return {**row, **(compare.rates if compare else {})}


def name_of(row):
    return str(Setting(row["ranks"], row["threads_per_rank"], row["placement"]))


def measured_over(field):
    return lambda row: row["t_target_ms"] / row[field]


# Heading, decimals, value of a row, whether the base has one.
PASS_COLUMNS = [
    ("t_target ms", 4, "t_target_ms", True), ("predicted", 4, "predicted_ms", False),
    ("meas./pred.", 2, "measured_over_predicted", False), ("compute", None, "compute_by", False),
    ("by reading", 4, "predicted_by_reading_ms", True), ("meas./pred.", 2, measured_over("predicted_by_reading_ms"), False),
    ("by division", 4, "predicted_by_division_ms", True), ("meas./pred.", 2, measured_over("predicted_by_division_ms"), False),
    ("all-reduces", 4, "all_reduces_ms", True), ("speed-up", 2, "speedup", True), ("efficiency", 2, "efficiency", True),
    ("t_draft ms", 4, "t_draft_ms", True), ("plain t/s", 1, "plain_tokens_per_second", True),
    ("drafting t/s", 1, lambda row: row.get("drafting_tokens_per_second") or None, True)]


def passes_table(rows):
    def cell(row, decimals, value, has_base):
        value = value(row) if callable(value) else row.get(value)
        return "-" if value is None or row["is_base"] and not has_base else f"{value:.{decimals}f}" if decimals else value

    return aligned([["setting", *(head for head, *_ in PASS_COLUMNS)]] + [
        [name_of(row) + " (base)" * row["is_base"] + " (over cores)" * row["over_cores"],
         *(cell(row, *column) for _, *column in PASS_COLUMNS)] for row in rows])


def links_table(runs):
    head = ["all-reduces", "alpha us", "beta ns/byte", "of a pass", "bytes each", "broadcast us", "gather us"]
    rows = [[str(run.setting), f"{run.link.alpha * 1e6:.3f}", f"{run.link.beta * 1e9:.4f}", f"{run.all_reduces:.0f}",
             f"{run.all_reduce_bytes:.0f}", f"{run.broadcast * 1e6:.2f}", f"{run.gather * 1e6:.2f}"]
            for run in runs if run.tensor_parallel > 1]
    return "\n" + aligned([head, *rows]) if rows else ""


def range_line(ratios):
    if not ratios:
        return "nothing but the base was measured within the cores: the model has met no test\n"
    return (f"measured over predicted of the {counted(len(ratios), 'other setting')} within the cores: {min(ratios):.2f}"
            + (f" to {max(ratios):.2f}" if len(ratios) > 1 else "") + "\n")


def measured_report(runs, compares):
    """(text, {"measured", "model"}). The base, which predictions start from, is the first that fits its cores; the best are
    of those that do, by tokens a second: with the draft where all were compared, else of plain decoding."""
    base = next((run for run in runs if not run.over_cores), runs[0])
    try:
        rows = [row_of(base, run, compares.get(run.setting)) for run in runs]
    except ValueError as error:
        raise BadFile(f"{base.file}: {error}") from None
    within = [row for row in rows if not row["over_cores"]]
    linked = [run for run in runs if not run.over_cores and run.tensor_parallel > 1]
    link = linked[-1] if linked else None  # of the most ranks that sum anything up
    text = (f"target: {base.target}; base: {base.setting}\n"
            "t_target: a pass of one row. Predicted = compute + all-reduces (alpha and beta fitted to those measured alone). "
            "Compute by shard: what a shard\ntook on one rank by itself (bench latency --shards), by reading: what the base "
            "took, each times the ratio of what the ranks could read at\nbest; by division: what the base took, divided by "
            "the ranks\n\n" + passes_table(rows) + links_table(runs) + "\n"
            + range_line([row["measured_over_predicted"] for row in within if not row["is_base"]]))
    model = {"compute_ms": base.compute * 1e3, "base": str(base.setting), "alpha_us": link and link.link.alpha * 1e6,
             "beta_ns_per_byte": link and link.link.beta * 1e9, "link_of": link and str(link.setting)}
    best_text, best = best_of(within)
    return text + best_text, {"measured": rows, "model": {**model, **best}}


def best_of(rows):
    """(text, fields of the model) of the fastest setting, and of the group that gives most as replicas on all cores."""
    by_drafting = bool(rows) and all(row.get("drafting_tokens_per_second") for row in rows)

    def rate(row):
        return row["drafting_tokens_per_second"] if by_drafting else \
            1e3 / (row["t_target_ms"] + row["broadcast_and_gather_ms"])

    def cores(row):
        return row["ranks"] * row["threads_per_rank"]

    def total(row):
        return replicas_rate(most, cores(row), rate(row))

    names = {"best_for_latency": None, "best_for_throughput": None, "best_by": "drafting" if by_drafting else "plain"}
    if not rows:
        return "no setting was measured within the cores: none is best\n", names
    most = max(map(cores, rows))
    fastest, group = max(rows, key=rate), max(rows, key=total)
    of = "tokens/s with the draft" if by_drafting else "tokens/s of plain decoding"
    text = (f"best for latency: {name_of(fastest)}, {rate(fastest):.1f} {of}\n"
            f"best for throughput on {counted(most, 'core')}: {counted(most // cores(group), 'replica')} of "
            f"{name_of(group)}, {total(group):.1f} {of}, if replicas do not slow each other down\n")
    return text, {**names, "best_for_latency": name_of(fastest), "best_for_throughput": name_of(group)}


# ---- the command ----

def parse(arguments):
    parser = Parser(prog="scaling_model.py", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="JSON of bench latency --output or bench compare --output")
    parser.add_argument("--hardware", metavar="FILE", help="figures of GPUs and links, as in bench/hardware.json")
    parser.add_argument("--shapes", type=comma_list(str, SHAPES), metavar="LIST", help=f"of {', '.join(SHAPES)} [{', '.join(LARGE)}; {', '.join(gpu_path.DEFAULT_SHAPES)} where kernels are counted]")
    parser.add_argument("--bandwidth-share", type=number(1e-6, 1), metavar="SHARE",
                        help="of a GPU's memory bandwidth that a pass reaches, above 0, to 1 [0.7]")
    parser.add_argument("--output", type=file_name, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--json", action="store_true", help="results as JSON on stdout")
    options = parser.parse_args(arguments)
    if not options.files and not options.hardware:
        parser.error("nothing to do: name files of bench latency --output, or --hardware FILE")
    if not options.hardware and (options.shapes or options.bandwidth_share):
        parser.error(f"{'--shapes' if options.shapes else '--bandwidth-share'} has no effect without --hardware FILE")
    refuse_overwriting(parser, options.output, [*options.files, *([options.hardware] if options.hardware else [])])
    return options


def reported(files, hardware=None, shapes=None, bandwidth_share=None):
    """(text, result as JSON has it)."""
    result, texts = {"command": "scaling", "measured": [], "model": None, "extrapolated": []}, []
    if files:
        text, fields = measured_report(*read_files(files))
        texts.append(text)
        result.update(fields)
    if hardware:
        text, fields = extrapolation_report(read_hardware(hardware), shapes or LARGE, bandwidth_share or 0.7)
        texts.append(text)
        result.update(fields)
        text, fields = gpu_path.gpu_path_report(hardware, shapes, files)
        texts += [text] if text else []
        result.update(fields)
    return "\n".join(texts), result


def main(arguments=None):
    options = parse(arguments)
    try:
        text, result = reported(options.files, options.hardware, options.shapes, options.bandwidth_share)
    except BadFile as error:
        raise SystemExit(f"scaling_model.py: {error}") from None
    report(text, result, options.output, options.json)


if __name__ == "__main__":
    main()
