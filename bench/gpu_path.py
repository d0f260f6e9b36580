"""What should a pass take on one to eight GPUs, with the kernels that this program has? Predicted, to stand beside the first
measurement: t(r) at several contexts, a step of a draft in its loop on the device, a prompt.

scaling_model.py prints it with --hardware, and tests/gpu_first.py beside each time that it takes. From the constants of
bench/hardware.json, each with its source; in bfloat16:

    t(rows, context) = readings * weights / read rate + 2 * parameters * rows / operation rate     the products
                     + layers * (context * bytes of a position / (share * read rate)               attention
                                 + factor * 4 * rows * context * query width / operation rate)
                     + layers * sum over kernels of (gap + what it takes alone) + two for the head
                     + (2 layers + 1) * sum(GPUs, 4 * rows * hidden)
                     + head's summary, copies and the host's round trip

readings: a launch takes up to rows_a_launch rows, more of them read the weights again. A step of a draft's loop is t(1, c)
with what ends a step in place of the host's round trip. A prompt goes through a library's products in chunks; of their rate alone, the
whole prompt is to reach GOAL. Parts are added up, as if nothing overlapped: latencies to 35 % either way, no promise.
Standard library only.
"""

import typing

from gpus import SHAPES
from json_file import COUNT, LIST, OBJECT, POSITIVE, TEXT, File
from runs import aligned

GPUS = (1, 2, 4, 8)
CONTEXTS = (64, 1000, 4000, 30000)
PROMPTS = (512, 2048, 8192)
GOAL = 0.6  # of the rate at which a library multiplies, over a whole prompt
MIN_PROMPT_ROWS = 16  # fewer are padded
DEFAULT_SHAPES = ("llama-3-8b", "llama-3-70b", "opt-6.7b", "opt-125m")
SUMMED_BYTES = (16384, 262144)  # of hardware.json's sums: one row and sixteen of 4,096
MAX_ATTENTION_ROWS = 16  # of one launch: more rows read keys and values again


class Kernels(typing.NamedTuple):
    """What the program launches on any GPU; seconds."""

    a_layer: tuple  # of (how many, what each takes without its reading)
    head: float  # final norm and head
    gap: float  # from kernel to kernel inside a graph
    attention_share: float  # of the read rate, while keys and values are read
    attention_factor: float  # operations beside those of the formula: weights as two terms
    rows_a_launch: int  # at most
    pass_end: float  # the head's summary, copies, the host
    step_end: float  # of a draft's loop: summary and decision
    chunk: int  # tokens of a prompt, at most
    prompt_attention_share: float  # of the operation rate, of a chunk's attention

    @property
    def layer(self):
        return sum(count * (self.gap + seconds) for count, seconds in self.a_layer)

    def readings(self, rows):
        return -(-rows // self.rows_a_launch)


class Rates(typing.NamedTuple):
    """Of one kind of GPU: what is reached, not the data sheet's."""

    read: float  # bytes a second
    operations: float  # a second, bfloat16
    memory: float  # bytes
    sums: dict  # {GPUs: seconds of SUMMED_BYTES}

    def sum(self, gpus, size):
        """Of `size` bytes over the GPUs of a node; never below the time of the smaller size."""
        if gpus == 1:
            return 0.0
        (small, large), (low, high) = SUMMED_BYTES, self.sums[gpus]
        return max(low, low + (size - small) * (high - low) / (large - small))


class Prompt(typing.NamedTuple):
    """Seconds of all its chunks."""

    products: float
    attention: float
    activations: float  # moving them between products
    kernels: float  # gaps, what is neither of these, and each chunk's end

    @property
    def total(self):
        return sum(self)

    @property
    def share(self):
        """Of the time that is the library's."""
        return self.products / self.total


class Parts(typing.NamedTuple):
    """Seconds of a pass."""

    reading: float  # weights
    operations: float  # of the products
    attention: float
    kernels: float  # gaps, and what is neither reading nor arithmetic
    sums: float
    end: float

    @property
    def total(self):
        return sum(self)


def read_gpu_path(name):
    """({hardware: Rates}, Kernels) of a hardware file; ({}, None) where it has none."""
    file = File(name)
    if "gpu_path" not in file.values:
        return {}, None

    def figure(path, kind=POSITIVE):
        file.get(f"{path}.source", TEXT)  # a figure without one is refused
        return file.get(f"{path}.value", kind)

    def microseconds(path):
        return figure(path) * 1e-6

    def summed(path):
        file.get(f"{path}.source", TEXT)
        return tuple(file.get(f"{path}.{size}", POSITIVE) * 1e-6 for size in ("row_us", "rows_us"))

    gap = microseconds("gpu_path.gap_us")
    kernels = Kernels(
        a_layer=tuple((file.get(f"{path}.a_layer", COUNT), microseconds(path)) for path in file.each("gpu_path.kernels")),
        head=2 * gap + microseconds("gpu_path.head_us"), gap=gap, attention_share=figure("gpu_path.attention_share"),
        attention_factor=figure("gpu_path.attention_factor"), rows_a_launch=figure("gpu_path.rows_a_launch", COUNT),
        pass_end=microseconds("gpu_path.pass_end_us"),
        step_end=microseconds("gpu_path.step_end_us"), chunk=figure("gpu_path.chunk", COUNT),
        prompt_attention_share=figure("gpu_path.prompt_attention_share"))
    rates = {}
    for entry in file.each("hardware"):
        if "reached" in file.get(entry, OBJECT):
            rates[file.get(f"{entry}.name", TEXT)] = Rates(
                figure(f"{entry}.reached.gb_per_s") * 1e9, figure(f"{entry}.reached.bfloat16_tflop_per_s") * 1e12,
                file.get(f"{entry}.memory_gb.value", POSITIVE) * 1e9,
                {file.get(f"{path}.gpus", COUNT): summed(path) for path in file.each(f"{entry}.reached.sums")})
    return rates, kernels


# ---- what is predicted ----

def attention(rates, kernels, shape, gpus, rows, context):
    """Seconds of all layers, beside what its kernels take without keys."""
    query_width = shape.query_width(gpus)
    reading = -(-rows // MAX_ATTENTION_ROWS) * context * shape.cache_bytes(gpus) / (kernels.attention_share * rates.read)
    computing = kernels.attention_factor * 4 * rows * context * query_width / rates.operations
    return shape.layers * (reading + computing)


def predicted_pass(rates, kernels, shape, gpus, rows, context, in_loop=False):
    """Parts of a pass of few rows behind `context` positions; in_loop: a step of a draft's loop on the device."""
    read = shape.weights(gpus)[0]
    return Parts(reading=kernels.readings(rows) * 2 * read / rates.read, operations=2 * read * rows / rates.operations,
                 attention=attention(rates, kernels, shape, gpus, rows, context),
                 kernels=shape.layers * kernels.layer + kernels.head,
                 sums=shape.all_reduces(gpus) * rates.sum(gpus, 4 * rows * shape.hidden),
                 end=kernels.step_end if in_loop else kernels.pass_end)


def predicted_prompt(rates, kernels, shape, tokens):
    """Of a Prompt on one GPU, whose last token is left to the first pass of decoding."""
    matrices = shape.weights(1)[0] - shape.hidden * shape.vocab  # without the head
    width = shape.query_width(1)
    # A row's bytes between the products of a layer: residual stream, sums and what is normed; queries, keys and values; the MLP's.
    moved = 28 * shape.hidden + 4 * width + shape.cache_bytes(1) + (6 if shape.family == "llama" else 4) * shape.intermediate
    products = attended = activations = launched = 0.0
    for begin in range(0, tokens, kernels.chunk):
        rows = min(kernels.chunk, tokens - begin)
        padded = max(MIN_PROMPT_ROWS, 1 << (rows - 1).bit_length())
        products += max(2 * matrices / rates.read, 2 * matrices * padded / rates.operations)
        attended += shape.layers * 4 * rows * (begin + rows / 2) * width / (kernels.prompt_attention_share * rates.operations)
        activations += shape.layers * padded * moved / rates.read
        launched += shape.layers * kernels.layer + kernels.pass_end
    return Prompt(products, attended, activations, launched)


def fits(rates, shape, gpus):
    """Whether so many GPUs can be given heads, hold the weights, and have a known sum."""
    _, matrices, vectors = shape.weights(gpus)
    return gpus <= shape.heads and (gpus == 1 or gpus in rates.sums) and 2 * matrices + 4 * vectors < rates.memory


def rows_of(name, rates, kernels, shape_name):
    """Of the JSON: fields of a pass at each setting of one model; all contexts on the fewest GPUs that hold it, one on more."""
    shape, rows = SHAPES[shape_name], []
    for gpus in (gpus for gpus in GPUS if fits(rates, shape, gpus)):
        for context in (each for each in CONTEXTS if each < shape.positions):
            if context != 1000 and rows and rows[0]["gpus"] != gpus:
                continue
            one, eight = (predicted_pass(rates, kernels, shape, gpus, count, context) for count in (1, 8))
            rows.append({"hardware": name, "shape": shape_name, "gpus": gpus, "context": context, "t1_ms": one.total * 1e3,
                         "t8_ms": eight.total * 1e3,
                         "draft_step_ms": predicted_pass(rates, kernels, shape, gpus, 1, context, True).total * 1e3,
                         "reading_ms": (one.reading + one.operations) * 1e3, "attention_ms": one.attention * 1e3,
                         "kernels_ms": one.kernels * 1e3, "sums_ms": one.sums * 1e3, "end_ms": one.end * 1e3,
                         "share_of_limit": one.reading / one.total, "tokens_per_second": 1 / one.total})
    return rows


def prompts_of(name, rates, kernels, shape_name):
    """Of the JSON: prompts on one GPU that holds the model."""
    shape = SHAPES[shape_name]
    if not fits(rates, shape, 1):
        return []
    timed = [(tokens, predicted_prompt(rates, kernels, shape, tokens)) for tokens in PROMPTS if tokens <= shape.positions]
    return [{"hardware": name, "shape": shape_name, "tokens": tokens, "ms": prompt.total * 1e3, "products_ms": prompt.products * 1e3,
             "attention_ms": prompt.attention * 1e3, "share_of_rate": prompt.share} for tokens, prompt in timed]


COLUMNS = [("GPUs", "gpus", 0), ("context", "context", 0), ("t(1) ms", "t1_ms", 3), ("t(8) ms", "t8_ms", 3),
           ("draft step ms", "draft_step_ms", 3), ("weights", "reading_ms", 3), ("attention", "attention_ms", 3),
           ("kernels", "kernels_ms", 3), ("sums", "sums_ms", 3), ("end", "end_ms", 3), ("of limit", "share_of_limit", 2),
           ("tokens/s", "tokens_per_second", 0)]


def table(rows, prompts):
    text = f"\n{rows[0]['shape']} on {rows[0]['hardware']}\n" + aligned(
        [[head for head, *_ in COLUMNS]] + [[f"{row[field]:.{decimals}f}" for _, field, decimals in COLUMNS] for row in rows])
    for prompt in prompts:
        text += (f"prompt of {prompt['tokens']}: {prompt['ms']:.1f} ms, of which products {prompt['products_ms']:.1f} and attention "
                 f"{prompt['attention_ms']:.1f}: {prompt['share_of_rate']:.2f} of the library's rate (goal: {GOAL})\n")
    return text


def gpu_path_report(name, shapes=None, files=()):
    """(text, {"gpu_path", "gpu_path_prompts", "gpu_path_measured"}) of a hardware file, empty where it has no such figures;
    files: JSON of bench latency and others, of which those of a GPU that is known are held to it."""
    rates, kernels = read_gpu_path(name)
    passes, prompts, text = [], [], ""
    measured = [row for row in (measured_beside(File(file), rates, kernels) for file in files) if row] if rates else []
    for gpu, own in rates.items():
        for shape in shapes or DEFAULT_SHAPES:
            rows, of_prompts = (each(gpu, own, kernels, shape) for each in (rows_of, prompts_of))
            text += table(rows, of_prompts) if rows else ""
            passes += rows
            prompts += of_prompts
    if text:
        per_layer = sum(count for count, _ in kernels.a_layer)
        text = (f"PREDICTED for this program's own kernels, to 35 % either way (an H100 took 0.96 to 1.17 of it, one row): bfloat16, {per_layer} "
                f"kernels a layer, {kernels.gap * 1e6:.1f} us between kernels of a graph;\nlimit: the weights at the "
                "rate that reading reaches. tests/gpu_first.py measures it.\n" + text)
    for row in measured:
        text += (f"\n{row['file']}: {row['shape']} on {row['device']}, {row['gpus']} GPUs, context {row['context']}: "
                 + "; ".join(f"t({rows}) measured {row[f't{rows}_ms']:.3f} ms, predicted {row[f't{rows}_predicted_ms']:.3f}, "
                             f"{row[f't{rows}_ms'] / row[f't{rows}_predicted_ms']:.2f} of it"
                             for rows in (1, 8) if f"t{rows}_ms" in row) + "\n")
    return text, {"gpu_path": passes, "gpu_path_prompts": prompts, "gpu_path_measured": measured}


# ---- measured beside it ----

def shape_named(layers, hidden, vocab):
    """The public shape of these numbers, None where there is none."""
    return next((name for name, shape in SHAPES.items() if (shape.layers, shape.hidden, shape.vocab) == (layers, hidden, vocab)),
                None)


def hardware_named(device, rates):
    """Of "NVIDIA H200", the hardware whose name begins with "H200 "; None where none does."""
    return next((name for name in rates if name.split()[0] in device.replace("-", " ").split()), None)


def measured_beside(file, rates, kernels):
    """Of the JSON: a file of bench latency beside what is predicted, None where its GPU, type or model is not known here."""
    if "target_shape" not in file.values or "device" not in file.get("environment", OBJECT):
        return None
    device = file.get("environment.device", TEXT)
    hardware, shape = hardware_named(device, rates), shape_named(*(file.get(f"target_shape.{field}", COUNT) for field in (
        "layers", "hidden_size", "vocab_size")))
    gpus, context = file.get("tensor_parallel", COUNT), file.get("context", COUNT)
    if not hardware or not shape or file.get("environment.dtype", TEXT) != "bfloat16" or not fits(rates[hardware], SHAPES[shape], gpus):
        return None
    row = {"file": file.name, "device": device, "shape": shape, "gpus": gpus, "context": context}
    for rows in (1, 8):
        if len(file.get("t_target_ms", LIST)) >= rows:
            row[f"t{rows}_ms"] = file.get(f"t_target_ms[{rows - 1}]", POSITIVE)
            row[f"t{rows}_predicted_ms"] = predicted_pass(rates[hardware], kernels, SHAPES[shape], gpus, rows, context).total * 1e3
    return row
