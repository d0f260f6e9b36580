"""What do figures of GPUs and links say of plain decoding on many GPUs? Shapes of public models, a file of figures such as
bench/hardware.json, and the extrapolation that scaling_model.py prints with --hardware (the formulas are in its head).

Bounds from data sheets, at any number of GPUs; gpu_path.py has what our own kernels add on up to eight. Standard library only.
"""

import math
import typing

from json_file import COUNT, POSITIVE, TEXT, File
from runs import aligned

GPUS = (8, 16, 32, 64, 128, 256, 512)


def replicas_rate(cores, group, rate):
    """Tokens a second of `cores` cores (or GPUs) in groups that decode by themselves; 0 where they do not come out whole."""
    return cores // group * rate if cores % group == 0 else 0


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

        is_llama, queries, keys = self.family == "llama", self.query_width(gpus), self.cache_bytes(gpus) // 4
        qkv, mlp = queries + 2 * keys, largest_part(self.intermediate, 16)
        layer = self.hidden * (qkv + queries + (3 if is_llama else 2) * mlp)
        head = self.hidden * largest_part(self.vocab, 64)
        vectors = (2 * self.layers + 1) * self.hidden * (1 if is_llama else 2)
        if self.family == "opt":  # biases, and learned positions
            vectors += self.layers * (qkv + mlp + 2 * self.hidden) + 2050 * self.hidden
        read = self.layers * layer + head
        return read, read + (head if is_llama else 0), vectors

    @property
    def positions(self):
        """That a text may have: learned ones are so many, others are taken for many."""
        return 2048 if self.family == "opt" else 1 << 20

    def query_width(self, gpus):
        """Of the GPU with the most heads."""
        kv = -(-self.kv_heads // gpus)
        heads = kv * (self.heads // self.kv_heads) if self.kv_heads >= gpus else -(-self.heads // gpus)
        return heads * (self.hidden // self.heads)

    def cache_bytes(self, gpus):
        """Of a position in a layer, on the GPU with the most: keys and values, 2 bytes each."""
        return 4 * -(-self.kv_heads // gpus) * (self.hidden // self.heads)

    def all_reduces(self, gpus):
        """A pass sums up an embedding of more than 1 GiB only: every GPU holds all of a smaller one (model/weights/rank_shard.h)."""
        of_embedding = 2 * self.vocab * self.hidden > 1 << 30
        return 0 if gpus == 1 else self.layers * (1 if self.family == "falcon" else 2) + of_embedding


SHAPES = {
    "llama-2-70b": Shape("llama", 80, 8192, 64, 8, 28672, 32000),
    "llama-3-8b": Shape("llama", 32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": Shape("llama", 80, 8192, 64, 8, 28672, 128256),
    "llama-3-405b": Shape("llama", 126, 16384, 128, 8, 53248, 128256),
    "falcon-40b": Shape("falcon", 60, 8192, 128, 8, 32768, 65024),
    "opt-66b": Shape("opt", 64, 9216, 72, 72, 36864, 50272),
    "llama-1b": Shape("llama", 22, 2048, 32, 4, 5632, 32000),  # of random_checkpoint.py
    "llama-3.2-1b": Shape("llama", 16, 2048, 32, 8, 8192, 128256),
    "opt-6.7b": Shape("opt", 32, 4096, 32, 32, 16384, 50272),
    "opt-2.7b": Shape("opt", 32, 2560, 32, 32, 10240, 50272),
    "opt-125m": Shape("opt", 12, 768, 12, 12, 3072, 50272)}
LARGE = tuple(SHAPES)[:6]  # that many GPUs are for


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
