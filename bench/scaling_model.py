"""Do measured passes of several rank counts agree with the scaling model, and what does it say of GPUs?

    python3 bench/scaling_model.py FILE... [--hardware FILE] [--shapes LIST] [--bandwidth-share SHARE] [--output FILE] [--json]

Files are JSON of `bench latency --output` and, where there is any, `bench compare --output`: one of each for a number of
ranks, threads and placement. bench/scaling.py and slurm/scaling.sbatch measure them. The model (docs/concepts.md, Cost):

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

Keys and values, norms and what starts a kernel are left out: a bound from figures, no promise. Standard library only.
"""

import dataclasses
import json
import math
import re
import typing

from runs import Parser, aligned, comma_list, counted, file_name, number, refuse_overwriting, report

GPUS = (8, 16, 32, 64, 128, 256, 512)


# ---- files ----

class BadFile(Exception):
    """One line: file, field, reason."""


POSITIVE, NUMBER, COUNT = "a number above 0", "a number of at least 0", "a whole number of at least 1"
TEXT, OBJECT, LIST = "some text", "an object", "a list that is not empty"


def is_a(kind, value):
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return {POSITIVE: is_number and value > 0, NUMBER: is_number, COUNT: is_number and value >= 1 and value == int(value),
            TEXT: isinstance(value, str) and value != "", OBJECT: isinstance(value, dict),
            LIST: isinstance(value, list) and value != []}[kind]


class File:
    """A JSON object that somebody else wrote; whatever is not as it should be is a BadFile."""

    def __init__(self, name):
        self.name = str(name)
        try:
            with open(name, encoding="utf-8") as opened:
                self.values = json.load(opened)
        except OSError as error:
            raise BadFile(f"{name}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise BadFile(f"{name}: not JSON: {error}") from None
        if not isinstance(self.values, dict):
            raise BadFile(f"{name}: does not hold one JSON object")

    def bad(self, path, reason):
        raise BadFile(f"{self.name}: field {path} {reason}")

    def checked(self, value, path, kind):
        return value if is_a(kind, value) else self.bad(path, f"must be {kind}")

    def get(self, path, kind):
        """The field at a path such as target[0].limit_ms."""
        value, seen = self.values, ""
        for step, name, index in re.findall(r"(\.?(\w+)|\[(\d+)\])", path):
            value = self.checked(value, seen, OBJECT if name else LIST)
            seen += step
            if name and name not in value:
                self.bad(seen, "is missing")
            value = value[name if name else int(index)]
        return self.checked(value, path, kind)

    def each(self, path, is_optional=False):
        """Paths of a list's objects."""
        if is_optional and not self.values.get(path):
            return []
        return [f"{path}[{i}]" for i in range(len(self.get(path, LIST)))]


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


def replicas_rate(cores, group, rate):
    """Tokens a second of `cores` cores in groups that decode by themselves; 0 where they do not come out whole."""
    return cores // group * rate if cores % group == 0 else 0


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


# ---- GPUs ----

class Shape(typing.NamedTuple):
    """A public model by its config.json, in bfloat16."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int

    def weights(self, gpus):
        """(read in a pass, all in matrices, in vectors) of the GPU with the most, as the program shards (model/rank_shard).
        Of the embedding a pass reads a row; as the head it is read whole. GPUs that share a KV head each hold a copy."""
        def largest_part(length, unit):
            return min(length, -(-(-(-length // unit)) // gpus) * unit)

        is_llama, head_size, kv = self.family == "llama", self.hidden // self.heads, -(-self.kv_heads // gpus)
        queries = kv * (self.heads // self.kv_heads) if self.kv_heads >= gpus else -(-self.heads // gpus)
        qkv, mlp = (queries + 2 * kv) * head_size, largest_part(self.intermediate, 16)
        layer = self.hidden * (qkv + queries * head_size + (3 if is_llama else 2) * mlp)
        head = self.hidden * largest_part(self.vocab, 64)
        vectors = (2 * self.layers + 1) * self.hidden * (1 if is_llama else 2)
        if self.family == "opt":  # biases, and learned positions
            vectors += self.layers * (qkv + mlp + 2 * self.hidden) + 2050 * self.hidden
        read = self.layers * layer + head
        return read, read + (head if is_llama else 0), vectors

    def all_reduces(self, gpus):
        return 0 if gpus == 1 else self.layers * (1 if self.family == "falcon" else 2) + 1


SHAPES = {
    "llama-2-70b": Shape("llama", 80, 8192, 64, 8, 28672, 32000),
    "llama-3-8b": Shape("llama", 32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": Shape("llama", 80, 8192, 64, 8, 28672, 128256),
    "llama-3-405b": Shape("llama", 126, 16384, 128, 8, 53248, 128256),
    "falcon-40b": Shape("falcon", 60, 8192, 128, 8, 32768, 65024),
    "opt-66b": Shape("opt", 64, 9216, 72, 72, 36864, 50272)}


class Hardware(typing.NamedTuple):
    """Bytes and seconds; bandwidths of a GPU, those of links in one direction. In the order of FIGURES."""

    memory_bandwidth: float
    memory_bytes: float
    operations_per_second: float  # bfloat16, dense
    node_latency: float  # of an all-reduce of little among the GPUs of a node
    node_bandwidth: float
    hop_latency: float  # of a message between nodes
    net_bandwidth: float
    node_gpus: int

    def all_reduce(self, gpus, size):
        """Hierarchical: the GPUs of a node sum up and keep a part each, a tree over the nodes sums these through each GPU's
        own port, then they are handed round the node."""
        in_node, nodes, seconds = min(gpus, self.node_gpus), -(-gpus // self.node_gpus), 0.0
        if in_node > 1:
            seconds += self.node_latency + 2 * (in_node - 1) / in_node * size / self.node_bandwidth
        if nodes > 1:
            seconds += (2 * math.ceil(math.log2(nodes)) * self.hop_latency
                        + 2 * (nodes - 1) / nodes * (size / in_node) / self.net_bandwidth)
        return seconds


FIGURES = {"memory_gb_per_s": 1e9, "memory_gb": 1e9, "bfloat16_tflop_per_s": 1e12, "node_all_reduce_us": 1e-6,
           "nvlink_gb_per_s_each_way": 1e9, "network_hop_us": 1e-6, "network_gb_per_s_each_way": 1e9, "gpus_per_node": 1}


def read_hardware(name):
    """({name: Hardware}, {(hardware, shape, GPUs): fields of a rate that somebody published})."""
    file, hardware, published = File(name), {}, {}
    if file.get("schema_version", COUNT) != 1:
        file.bad("schema_version", "must be 1")
    for path in file.each("hardware"):
        gpu = file.get(f"{path}.name", TEXT)
        if gpu in hardware:
            file.bad(f"{path}.name", "appears twice")
        for figure in FIGURES:
            file.get(f"{path}.{figure}.source", TEXT)  # a figure without one is refused
        file.get(f"{path}.gpus_per_node.value", COUNT)
        hardware[gpu] = Hardware(*(file.get(f"{path}.{figure}.value", POSITIVE) * unit for figure, unit in FIGURES.items()))
    for path in file.each("published", is_optional=True):
        for field, known in (("hardware", hardware), ("shape", SHAPES)):
            if file.get(f"{path}.{field}", TEXT) not in known:
                file.bad(f"{path}.{field}", "names none that is known")
        gpu, shape, gpus = (file.get(f"{path}.{field}", kind) for field, kind in (
            ("hardware", TEXT), ("shape", TEXT), ("gpus", COUNT)))
        published.setdefault((gpu, shape, gpus), {
            "published_tokens_per_second": file.get(f"{path}.tokens_per_second", POSITIVE),
            "published_source": file.get(f"{path}.source", TEXT)})
    return hardware, published


def gpu_row(hardware, shape, gpus, bandwidth_share):
    """Fields of a row of the JSON; `why` alone where the model cannot be run so."""
    if gpus > shape.heads:
        return {"why": f"no more than its {shape.heads} heads can be shared out"}
    read, matrices, vectors = shape.weights(gpus)
    if 2 * matrices + 4 * vectors >= hardware.memory_bytes:
        return {"why": "the weights do not fit the memory"}
    communication = shape.all_reduces(gpus) * hardware.all_reduce(gpus, 2 * shape.hidden)
    t_target = communication + max(2 * read / (bandwidth_share * hardware.memory_bandwidth),
                                   2 * read / hardware.operations_per_second)
    rate = 1 / (t_target + 2 * hardware.all_reduce(gpus, 0))  # broadcast and gather: all-reduces of no bytes
    return {"t_target_ms": t_target * 1e3, "all_reduces_ms": communication * 1e3, "tokens_per_second": rate,
            "replicas_tokens_per_second": replicas_rate(GPUS[-1], gpus, rate)}


def group_text(rows):
    """Of one model on one kind of GPU."""
    known, notes, last = [row for row in rows if "why" not in row], "", None
    table = [["GPUs", "t_target ms", "of it reading", "all-reduces", "tokens/s", f"tokens/s of {GPUS[-1]} as replicas"]]
    table += [[str(row["gpus"]), f"{row['t_target_ms']:.3f}", f"{row['t_target_ms'] - row['all_reduces_ms']:.3f}",
               f"{row['all_reduces_ms']:.3f}", f"{row['tokens_per_second']:.1f}", f"{row['replicas_tokens_per_second']:.0f}"]
              for row in known]
    for row in rows:
        if row.get("why", last) != last:
            notes += f"not on {row['gpus']} GPUs: {row['why']}\n"
        if "published_source" in row:
            rate = row["published_tokens_per_second"]
            notes += (f"published for {row['gpus']} GPUs: {rate:.1f} tokens/s, {rate / row['tokens_per_second']:.2f} of the "
                      f"extrapolated ({row['published_source']})\n")
        last = row.get("why")
    text = f"\n{rows[0]['shape']} on {rows[0]['hardware']}\n" + aligned(table) + notes
    if known:
        latency, most = (max(known, key=lambda row: row[name]) for name in ("tokens_per_second", "replicas_tokens_per_second"))
        text += f"best for latency: {latency['gpus']} GPUs; for throughput: replicas of {most['gpus']}\n"
    return text


def extrapolation_report(hardware_file, shapes, bandwidth_share):
    """(text, {"bandwidth_share", "extrapolated", "not_extrapolated"})."""
    hardware, published = hardware_file
    groups = [[{"hardware": name, "shape": shape, "gpus": gpus, **gpu_row(own, SHAPES[shape], gpus, bandwidth_share)}
               for gpus in GPUS] for name, own in hardware.items() for shape in shapes]
    rows = [row for group in groups for row in group]
    for row in rows:
        row.update(published.get((row["hardware"], row["shape"], row["gpus"]), {}) if "why" not in row else {})
    text = ("EXTRAPOLATION, nothing of it measured here: plain decoding of one text in bfloat16, the weights read at "
            f"{bandwidth_share * 100:.0f} % of the memory's bandwidth;\nall-reduces: latency and 2 (g - 1) / g of the bytes "
            "over NVLink within a node of g GPUs, then 2 ceil(log2 m) hops and 2 (m - 1) / m of a\ng-th of the bytes over the "
            "network among m nodes. Keys and values, norms and the starting of kernels are left out.\n")
    return text + "".join(map(group_text, groups)), {
        "bandwidth_share": bandwidth_share, "extrapolated": [row for row in rows if "why" not in row],
        "not_extrapolated": [row for row in rows if "why" in row]}


# ---- the command ----

def parse(arguments):
    parser = Parser(prog="scaling_model.py", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="JSON of bench latency --output or bench compare --output")
    parser.add_argument("--hardware", metavar="FILE", help="figures of GPUs and links, as in bench/hardware.json")
    parser.add_argument("--shapes", type=comma_list(str, SHAPES), metavar="LIST", help=f"of {', '.join(SHAPES)} [all]")
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
        text, fields = extrapolation_report(read_hardware(hardware), shapes or SHAPES, bandwidth_share or 0.7)
        texts.append(text)
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
