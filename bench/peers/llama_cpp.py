#!/usr/bin/env python3
"""How fast is entrodraft beside llama.cpp, plain and speculative at every setting, with the same weights and text?

    python3 bench/peers/llama_cpp.py --llama DIR [--binary build/entrodraft] [--dtypes float32,float16,bfloat16,int8,int4]
        [--repetitions 5] [--limit 64] [--modes ngram] [--rule moving-average] [--json FILE] [--plain-only]

DIR is an installation or a build of llama.cpp: it holds bin/llama-server, or llama-server itself. GGUF files are
written from --target and --draft (gguf_file.py). Each mode is a server with one slot, --threads threads and no cache of
prompts; of these at most --resident run at once, and a plain one that says what is a tie. Prompts go in as token ids;
what the options are called is read from the server's --help. Both decode greedily in turns (side_by_side.py says how). Time is that of a whole sequence per new token, prefill and
decoding, by each side's own account; "wall" is seen from outside, with HTTP there and a pipe here. Texts come
first. In float32 without flash attention (KV cache in float32 too) a text may part from ours only where llama.cpp's
own two best log-probabilities lie closer than 1e-4, and in one text of 64 at most; a worse difference ends the run
with 1. Elsewhere texts that part are counted: its flash attention works on a float16 KV cache whatever the weights
are, and with 16-bit weights it rounds activations as well. int8 and int4 are its Q8_0 and Q4_0, a scale for every 32 weights,
where ours have one for every row and for every 64. Needs bench/peers/requirements.txt; exits with 77 where gguf or the
installation is missing.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile

import gguf_file
import side_by_side
from llama_server import Options, Server, base_command, find_server, version_of
from side_by_side import DRAFT, LOOKUP, PLAIN

TIE = 1e-4  # nats between the two best: below it, float32 rounding may choose the other token
DTYPES = ("float32", "float16", "bfloat16", "int8", "int4")
ROUNDING = "llama.cpp rounds {} to 16 bits, ours is float32"
ROUNDING_OF_INTS = "llama.cpp has a scale for every 32 weights and rounds activations to 8 bits in such blocks too"


def attention(dtype, flash, of_draft=False):
    """Flash attention on or off, and the KV cache's type: llama.cpp's default, but for float32 throughout."""
    cache = "f32" if dtype == "float32" and flash == "off" else "f16"
    return ["-fa", flash, "-ctk", cache, "-ctv", cache, *(["-ctkd", cache, "-ctvd", cache] if of_draft else [])]


def rounding_of(dtype):
    def reason(name):
        if dtype in ("int8", "int4"):
            return ROUNDING_OF_INTS
        if dtype != "float32":
            return ROUNDING.format("activations and KV cache")
        exact = "flash attention off" in name or name.startswith("entrodraft")
        return None if exact else ROUNDING.format("the KV cache")

    return reason


def plain_modes(known, base, dtype):
    def mode(flash, name="", *more):
        return Server(f"plain, flash attention {flash}{name}", PLAIN, base, *attention(dtype, flash), *more)

    modes = [mode("off"), mode("on")]
    if "--backend-sampling" in known.names:
        modes += [mode(flash, ", backend sampling", "--backend-sampling") for flash in ("off", "on")]
    return modes


def draft_modes(options, known, base, draft, dtype):
    most, least, sure, threads = found = [known.named(f"--spec-draft-{new}", f"--{old}") for new, old in (
        ("n-max", "draft-max"), ("n-min", "draft-min"), ("p-min", "draft-p-min"), ("threads", "threads-draft"))]
    if None in (*found, known.named("-md")):
        sys.exit("llama_cpp: this llama-server lacks -md, --draft-max, --draft-min, --draft-p-min or --threads-draft")
    base = [*base, "-md", str(draft)]
    if "--spec-type" in known.names:
        base += ["--spec-type", "draft-simple"]

    def mode(flash, k, p, n_min=0, n_threads=options.threads):
        name = f"draft {k}, p {p}, flash attention {flash}" + (f", at least {n_min}" if n_min else "")
        name += ", draft on 1 thread" if n_threads != options.threads else ""
        return Server(name, DRAFT, base, *attention(dtype, flash, of_draft=True), most, k, least, n_min, sure, p,
                      threads, n_threads)

    modes = [mode(flash, k, p) for flash in ("off", "on") for k in (1, 2, 3, 5, 8, 16) for p in (0, 0.4, 0.75)]
    modes += [mode("off", 5, p, n_min=2) for p in (0.4, 0.75)]
    if options.threads > 1:
        modes += [mode("off", k, p, n_threads=1) for k in (3, 5) for p in (0.4, 0.75)]
    for kind in sorted({"ngram-simple", "ngram-map-k"}.intersection(known.look_ups())):
        modes.append(Server(f"{kind} 3, 5 tokens, else draft 3, p 0.4, flash attention off", DRAFT, base,
                            *attention(dtype, "off", of_draft=True), most, 3, least, 0, sure, 0.4, "--spec-type",
                            f"{kind},draft-simple", f"--spec-{kind}-size-n", 3, f"--spec-{kind}-size-m", 5))
    return modes


def look_up_modes(known, base, dtype):
    """The server's own look-ups: its defaults (patterns of 12 to 24 tokens, of long texts) and shorter patterns."""
    modes = []

    def add(name, kind, *settings):
        modes.extend(Server(f"{name}, flash attention {flash}", LOOKUP, base, *attention(dtype, flash),
                            "--spec-type", kind, *settings) for flash in ("off", "on"))

    for kind in known.look_ups():
        add(f"{kind}, its defaults", kind)
        size_n, size_m = f"--spec-{kind}-size-n", f"--spec-{kind}-size-m"
        if {size_n, size_m} <= known.names:
            for n, m in ((2, 3), (2, 5), (3, 5), (3, 10)):
                add(f"{kind} {n}, {m} tokens", kind, size_n, n, size_m, m)
    if "--spec-ngram-mod-n-match" in known.names:
        for n, most in ((3, 5), (4, 10)):
            add(f"ngram-mod {n}, to {most} tokens", "ngram-mod", "--spec-ngram-mod-n-match", n,
                "--spec-ngram-mod-n-min", 1, "--spec-ngram-mod-n-max", most)
    return modes


def compare(parser, options, server, known, prompts, dtype, work):
    """One dtype's table."""
    positions = max(map(len, prompts.values())) + options.new_tokens + 256  # a draft may reach beyond the text's end
    target, draft = work / f"target-{dtype}.gguf", work / f"draft-{dtype}.gguf"
    gguf_file.write(options.target, target, dtype)
    base = base_command(options, known, server, target, positions)
    modes = plain_modes(known, base, dtype)
    if not options.plain_only:
        gguf_file.write(options.draft, draft, dtype)
        modes += [*draft_modes(options, known, base, draft, dtype), *look_up_modes(known, base, dtype)]
    contenders = side_by_side.chosen(parser, options, modes) + side_by_side.our_contenders(options, dtype)
    with running(judge_of(known, base, dtype)) as verify:
        return measured(options, verify, contenders, prompts, dtype, version_of(server))


def judge_of(known, base, dtype):
    """A plain server that is not timed. It tells more of itself: newer versions keep system_info back otherwise."""
    verbosity = known.named("-lv", "--verbosity")
    return Server("verifier", PLAIN, base, *attention(dtype, "off"), *([verbosity, 4] if verbosity else []))


@contextlib.contextmanager
def running(server):
    server.start()
    try:
        yield server
    finally:
        server.stop()


def measured(options, verify, contenders, prompts, dtype, version):
    """Environment, figures and ratios. `verify` is a server beside the contenders, which says what is a tie."""
    setting = side_by_side.environment(options, dtype, prompts, llama_cpp=version, system_info=verify.system_info())
    print("\n" + ", ".join(f"{key} {value}" for key, value in setting.items()))
    side_by_side.warn_of_load("at the start")
    equal = {}

    def is_tie(name, id, tokens, at):
        gap = verify.gap(prompts[id] + tokens[:at])
        print(f"{name}: prompt {id} parts from ours at new token {at}, its two best {gap:.1e} nats apart")
        return gap < TIE

    def check(results):
        equal.update(side_by_side.check_texts(contenders, results, is_tie, rounding_of(dtype)))

    return {"environment": setting,
            **side_by_side.measure(contenders, prompts, options, check, equal, f"{dtype}, beside llama.cpp")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=pathlib.Path, help="installation or build of llama.cpp")
    side_by_side.add_options(parser, DTYPES, ["float32"])
    parser.add_argument("--resident", type=int, default=4, help="how many modes' servers run at once [4]")
    options = parser.parse_args()
    server = find_server(options.llama)
    side_by_side.check_options(parser, options, DTYPES)
    side_by_side.check_counts(parser, options, "resident")
    prompts, known = side_by_side.read_prompts(parser, options), Options(server)
    with tempfile.TemporaryDirectory() as work:
        try:
            tables = [compare(parser, options, server, known, prompts, dtype, pathlib.Path(work))
                      for dtype in options.dtypes]
        except (gguf_file.Refused, OSError) as error:
            sys.exit(f"llama_cpp: {error}")
    side_by_side.save(options.json, tables)


if __name__ == "__main__":
    main()
