"""Writes the corpora that fuzzing starts from, out of the tests' own files: a few small inputs a target.

    tests/fuzz/make_corpus.py --binary build/entrodraft
"""
import argparse
import json
import pathlib
import pickle
import random
import struct
import subprocess
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
BORDER = b"\n----\n"
NORMAL4 = [-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803,
           0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0]
TEXTS = ["Hello, world! 12345", "naïve café – 北京 🚀\n\n  spaced\tout ", "<s>[INST] don't </s>", "\u0301e\u0000\u200d"]


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def api_requests():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]
    yield "chat", "POST /v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": "auto", "stream": True,
        "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}, (
        '<think>a</think>Well <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>')
    yield "required", "POST /v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}}, (
        '{"name": "f", "parameters": {"a": 12345678901234567890}}; {"name": "weather", "parameters": {}}')
    yield "completion", "POST /v1/completions", {
        "prompt": ["a", "b"], "n": 2, "temperature": 1, "seed": 3, "stop": ["x"], "logit_bias": {"5": -1.5}, "stop_rule": "static:2"}, (
        '[{"name": "f", "arguments": {"a": "\\"}"}}]')
    yield "echo", "POST /v1/completions", {"prompt": [[1, 2, 3]], "echo": True, "logprobs": 1, "max_tokens": 1}, "plain < text <tool"
    yield "format", "POST /v1/completions", {
        "prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}, "</think>"
    yield "tokenize", "POST /tokenize", {"messages": [{"role": "user", "content": "Hi"}]}, ""
    yield "detokenize", "POST /detokenize", {"tokens": [1, 2, 999]}, ""
    for path in ("GET /v1/models", "GET /health", "GET /metrics", "POST /drain", "POST /v1/embeddings"):
        yield path.split("/")[-1], path, {}, ""


def quantized(config, tensors):
    """quantized_fuzz.cpp's input; tensors are (name, dtype, shape, bytes)."""
    header, data = {}, b""
    for name, dtype, shape, part in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return json.dumps(config).encode() + BORDER + safetensors(header, data)


def quantized_files():
    yield "gptq", quantized({"quant_method": "gptq", "bits": 4, "group_size": 16, "sym": True}, [
        ("m.qweight", "I32", [4, 16], random.randbytes(256)), ("m.qzeros", "I32", [2, 2], random.randbytes(16)),
        ("m.scales", "F16", [2, 16], bytes(64)), ("m.g_idx", "I32", [32], struct.pack("<32i", *range(2), *[1] * 30))])
    yield "awq", quantized({"quant_method": "awq", "group_size": 16}, [
        ("m.qweight", "I32", [16, 2], random.randbytes(128)), ("m.qzeros", "I32", [1, 2], random.randbytes(8)),
        ("m.scales", "F16", [1, 16], bytes(32))])
    yield "float8", quantized({"quant_method": "fp8", "weight_block_size": [128, 128]}, [
        ("m.weight", "F8_E4M3", [4, 8], random.randbytes(32)), ("m.weight_scale_inv", "F32", [1, 1], bytes(4))])
    yield "packed", quantized({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 16, "symmetric": True}}}}, [
        ("m.weight_packed", "I32", [2, 3], random.randbytes(24)), ("m.weight_scale", "BF16", [2, 2], bytes(8)),
        ("m.weight_shape", "I64", [2], struct.pack("<2q", 2, 20))])
    yield "mxfp4", quantized({"quant_method": "mxfp4"}, [
        ("m_blocks", "U8", [2, 1, 2, 16], random.randbytes(64)), ("m_scales", "U8", [2, 1, 2], bytes([0, 127, 254, 255]))])
    state = json.dumps({"blocksize": 64, "shape": [2, 64], "nested_blocksize": 256, "nested_offset": 0.5}).encode()
    parts = [("m.weight", "U8", [64, 1], random.randbytes(64)),
             ("m.weight.quant_map", "F32", [16], struct.pack("<16f", *NORMAL4)),
             ("m.weight.quant_state.bitsandbytes__nf4", "U8", [len(state)], state)]
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    yield "nf4", quantized(config, [*parts, ("m.weight.absmax", "F32", [2], struct.pack("<2f", 1, 2))])
    yield "nf4-double", quantized(config, [
        *parts, ("m.weight.absmax", "U8", [2], b"\1\2"), ("m.weight.nested_absmax", "F32", [1], bytes(4)),
        ("m.weight.nested_quant_map", "F32", [256], bytes(1024))])
    yield "int8", quantized({"quant_method": "bitsandbytes", "load_in_8bit": True}, [
        ("m.weight", "I8", [2, 4], random.randbytes(8)), ("m.SCB", "F32", [2], struct.pack("<2f", 1, 2)),
        ("m.weight_format", "U8", [], b"\0")])


def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    """Its kind, and its bytes."""
    if isinstance(value, str):
        return 8, gguf_text(value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, list):
        parts = [gguf_value(each) for each in value]
        return 9, struct.pack("<IQ", parts[0][0], len(parts)) + b"".join(part for _, part in parts)
    return 4, struct.pack("<I", value)


def gguf(metadata, tensors):
    """Tensors are (name, dimensions, type, bytes)."""
    out, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)), b""
    for key, value in metadata.items():
        kind, part = gguf_value(value)
        out += gguf_text(key) + struct.pack("<I", kind) + part
    for name, dims, kind, part in tensors:
        out += gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += part + bytes(-len(part) % 32)
    return out + bytes(-len(out) % 32) + data


def gguf_files():
    tokens = ["<s>", "</s>", *"abc", "ab"]
    bpe = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": tokens,
           "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1], "tokenizer.ggml.merges": ["a b"],
           "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
    pieces = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", *tokens, "<0x00>"],
              "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 6],
              "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5, 0.0], "tokenizer.ggml.bos_token_id": 1}
    llama = {"general.architecture": "llama", "llama.embedding_length": 256, "llama.feed_forward_length": 32,
             "llama.block_count": 1, "llama.attention.head_count": 2, "llama.context_length": 64,
             "llama.attention.layer_norm_rms_epsilon": 1e-5}
    yield "bpe", gguf(llama | bpe, [("token_embd.weight", [256, 1], 12, random.randbytes(144)),
                                    ("blk.0.attn_q.weight", [256, 1], 14, random.randbytes(210))])
    yield "pieces", gguf(llama | pieces, [("token_embd.weight", [32, 2], 8, random.randbytes(68)),
                                          ("output.weight", [32, 1], 2, random.randbytes(18)),
                                          ("output_norm.weight", [4], 0, bytes(16))])


def shortened_vocabulary(path, most=300):
    """A tokenizer.json small enough to mutate: the first tokens, and the merges that make them."""
    tokenizer = json.loads(path.read_text())
    model = tokenizer["model"]
    if isinstance(model.get("vocab"), dict):
        model["vocab"] = {token: i for token, i in model["vocab"].items() if i < most}
        known = model["vocab"]
        pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model.get("merges", [])]
        model["merges"] = [f"{a} {b}" for a, b in pairs if a in known and b in known and a + b in known]
    else:
        model["vocab"] = model["vocab"][:most]
    tokenizer["added_tokens"] = tokenizer.get("added_tokens", [])[:4]
    return json.dumps(tokenizer, ensure_ascii=False).encode()


def packed(blocks):
    """A recording's blocks, unpacked: what recording_fuzz.cpp packs again."""
    parts, at = [], 0
    while at < len(blocks):
        _, length, _ = struct.unpack_from("<4sII", blocks, at)
        unpacked = zlib.decompress(blocks[at + 12:at + 12 + length])
        (json_bytes,) = struct.unpack_from("<I", unpacked)
        head, columns = unpacked[4:4 + json_bytes], unpacked[4 + json_bytes:]
        parts.append(head + (b"\n" + columns if columns else b""))
        at += 12 + length
    return BORDER.join(parts)


def recordings(binary):
    demo = TESTS.parent / "model/demo"
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "r.edr"
        prompts = pathlib.Path(scratch) / "p.jsonl"
        prompts.write_text('{"prompt_token_ids": [5, 6, 7]}\n{"id": "b", "prompt_token_ids": [9, 8]}\n')
        costs = pathlib.Path(scratch) / "c.json"
        costs.write_text('{"schema_version": 1, "t_draft_ms": 0.1, "t_target_ms": [1, 1.1, 1.2]}')
        for temperature in "0", "1":
            file.unlink(missing_ok=True)
            subprocess.run([binary, "record", "--target", demo / "target", "--draft", demo / "draft", "--input", prompts,
                            "--output", file, "--max-new-tokens", "12", "--max-draft-tokens", "3", "--temperature",
                            temperature, "--costs", costs, "--quiet"], check=True)
            whole = file.read_bytes()
            write("recording", f"file-{temperature}", whole)
            write("recording", f"blocks-{temperature}", packed(whole))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    random.seed(1)

    write("safetensors", "two", safetensors({"__metadata__": {"format": "pt"},
                                             "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                                             "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}, bytes(22)))
    write("safetensors", "empty", safetensors({"a": {"dtype": "I64", "shape": [0, 4], "data_offsets": [0, 0]}}, b""))
    write("safetensors", "none", safetensors({}, b""))

    for name, data in quantized_files():
        write("quantized", name, data)
    for name, data in gguf_files():
        write("gguf", name, data)

    shard = "model-00001-of-00001.safetensors"
    write("index", "good", json.dumps({"metadata": {"total_size": 8}, "weight_map": {"w": shard}}).encode())
    write("index", "outside", json.dumps({"weight_map": {"w": "../w.safetensors"}}).encode())
    write("index", "missing", json.dumps({"weight_map": {"w": shard, "v": shard}}).encode())

    for family in sorted((TESTS / "model/families").iterdir()):
        directory = family / "target"
        data = json.dumps(json.loads((directory / "config.json").read_text())).encode()
        generation = directory / "generation_config.json"
        write("config", family.name, data + (BORDER + generation.read_bytes() if generation.exists() else b""))

    tokenizers = TESTS / "model/tokenizers"
    for number, name in enumerate(["falcon", "falcon3", "gemma", "gpt2", "llama2", "llama3", "neox", "opt", "qwen2",
                                   "t5-new"]):
        file = tokenizers / name / "tokenizer.json"
        if file.exists():
            text = TEXTS[number % len(TEXTS)].encode()
            write("tokenizer_file", name, shortened_vocabulary(file) + BORDER + text)
        for i, text in enumerate(TEXTS[:2]):
            write("tokenizer_text", f"{name}-{i}", bytes([number]) + text.encode())
        write("tokenizer_text", f"{name}-ids", bytes([0x80 | number]) + random.randbytes(24))

    alphabet = {letter: i for i, letter in enumerate("abcdelowĠ")}
    vocabulary = {**alphabet, "lo": 9, "low": 10, "Ġlow": 11, "<|endoftext|>": 12}
    merges = "#version: 0.2\nl o\nlo w\nĠ low\n"
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
                "unk_token": "<|endoftext|>", "add_bos_token": True}
    write("vocabulary", "gpt2", BORDER.join([json.dumps(vocabulary).encode(), merges.encode(),
                                             json.dumps(settings).encode(), b"low cow bowl"]))
    write("vocabulary", "plain", BORDER.join([json.dumps(vocabulary).encode(), merges.encode(), b"{}", b"a low"]))

    for file in sorted((TESTS / "model/golden/torch_files").rglob("*.bin")):
        if file.stat().st_size < 8000:
            write("torch_file", file.parent.name + "-" + file.stem, file.read_bytes())
    # Protocol 2 by hand: the state dict {"w": a storage's view}.
    tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n(((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X"
              b"\x03\x00\x00\x00cpuK\x04tQK\x00K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)Rt")
    write("pickle", "tensor", b"\x80\x02}X\x01\x00\x00\x00w" + tensor + b"Rs.")
    write("pickle", "dict", pickle.dumps({}, protocol=2))
    write("pickle", "nested", pickle.dumps({"a": [1, (2, "x")], "b": None}, protocol=2))

    template = (TESTS / "model/chatml.jinja").read_text()
    for name, value in (("text", template), ("named", [{"name": "default", "template": template}])):
        data = json.dumps({"chat_template": value, "bos_token": "<s>", "eos_token": {"content": "</s>"}}).encode()
        write("chat_template", name, data + BORDER + b"Hello")
    small = json.loads((TESTS / "model/jinja_expectations.json").read_text())["templates"]
    for i in range(0, len(small), 20):  # what the unit test expects of the language, some in one
        template = "\n".join(one["template"] for one in small[i:i + 20] if one["text"] is not None)
        write("chat_template", f"language-{i // 20}", json.dumps({"chat_template": template}).encode() + BORDER + b"Hello")

    write("requests", "prompts", b'{"prompt": "Hi"}\n{"id": 7, "prompt_token_ids": [1, 2], "max_new_tokens": 4}\n\n'
          b'{"id": "c", "messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "seed": 9}\n')
    write("requests", "options", b'{"prompt": "a", "top_k": 5, "top_p": 0.9, "min_p": 0.1, "stop": ["x"], "logit_bias": '
          b'{"5": -1.5}, "banned_tokens": [3], "repetition_penalty": 1.2, "no_repeat_ngram_size": 3}\n')
    write("requests", "bad", b'{"prompt": 1}\n[]\n{"prompt": "a", "prompt": "b"}\n{"id": 1e400, "prompt": "\\ud800"}')
    for name, path, body, text in api_requests():
        write("api", name, path.encode() + BORDER + json.dumps(body).encode() + BORDER + text.encode())
    write("options", "all", b'target = t\ndraft = d\nprompt = "x"\nstop-rule = cumulative:3:min=2:of=adjusted\n'
          b'# remark\nquiet = true\ntemperature = 0.7\ntop-p = 0.9\nacceptance = gumbel\n')
    write("options", "levels", b'target = t\ndraft = a\ndraft = b\nstop-rule = static:drop\nstop-rule = constant:tokens=3\n'
          b'input = in.jsonl\noutput = "o \\u0041.jsonl"\nlogit-bias = 5:-1\n')

    write("packet", "empty", b"")
    header = struct.pack("<IHBBIIQQQ", 0x44524445, 2, 3, 0, 0, 0, 4, 7, 0)
    write("packet", "round", header + bytes([2, 1, 2, 1]) + struct.pack("<i", 9) + struct.pack("<5i", 1, 2, 0, 0, 0) +
          bytes([0xff, 0, 0, 0, 0, 0, 0, 0]))
    write("packet", "admit", struct.pack("<IHBBIIQQQ", 0x44524445, 2, 1, 2, 512, 0, 0, 0, 0))

    def tree(parents, n=None, last_accepted=-1, token=3):
        nodes = b"".join(struct.pack("<bi", parent, token) for parent in parents)
        return struct.pack("<Bb", len(parents) if n is None else n, last_accepted) + nodes
    write("tree_packet", "chain", tree(range(-1, 6)))
    write("tree_packet", "tree", tree([-1, -1, 0, 0, 1, 2, 5], last_accepted=4))
    write("tree_packet", "cycle", tree([1, 0]))
    write("tree_packet", "own-parent", tree([-1, 1]))
    write("tree_packet", "out-of-range", tree([-1, 127]))
    write("tree_packet", "below-root", tree([-1, -2]))
    write("tree_packet", "too-many", tree([-1] * 63, n=64))
    write("tree_packet", "never-drafted", tree([-1, 0], last_accepted=63))
    write("tree_packet", "no-token", tree([-1, 0], token=-1))

    for name, language, text in [
            ("sums", 2, 'root ::= term ("+" term)* # sums\nterm ::= [0-9]{1,3} | "(" root ")"\n'),
            ("left", 2, 'root ::= a? root "b" | "\\u00e9"\na ::= "a"\n'), ("ambiguous", 2, 'root ::= "a" root "b" | "a" root "c" | .*'),
            ("words", 1, "^(?:the|a(b{2,3}|[^x-z\\d])+)\\s\\u00e9.*?$"), ("nested", 1, "((a{9}){9}|(b*)*){0,9}"),
            ("person", 0, '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer", '
             '"minimum": -3, "exclusiveMaximum": 120}}, "required": ["name"], "additionalProperties": {"format": "date"}}'),
            ("list", 0, '{"$ref": "#/$defs/l", "$defs": {"l": {"oneOf": [{"const": null}, {"prefixItems": [{"type": "number", "maximum": 2.5}], '
             '"items": {"$ref": "#/$defs/l"}, "minItems": 1}]}}}'),
            ("strings", 0, '{"anyOf": [{"type": "string", "pattern": "[\\"a]+$"}, {"enum": ["x", 1, {"y": []}]}, true]}')]:
        write("grammar", name, bytes([language]) + text.encode())

    write("costs", "good", b'{"schema_version": 1, "t_draft_ms": 0.1, "t_first_draft_ms": 0.2, "t_target_ms": [1, 1.5], '
          b'"t_round_ms": 0.01}')
    write("costs", "least", b'{"t_draft_ms": 0, "t_target_ms": [1]}')

    with tempfile.TemporaryDirectory() as scratch:
        text, table = pathlib.Path(scratch) / "t.txt", pathlib.Path(scratch) / "t.tab"
        text.write_text("a b a b a")
        subprocess.run([options.binary, "build-table", "--model", TESTS.parent / "model/demo/draft", "--input", text,
                        "--output", table, "--quiet"], check=True)
        if table.stat().st_size < 40000:
            write("token_table", "small", table.read_bytes())
        subprocess.run([options.binary, "build-corpus", "--model", TESTS.parent / "model/demo/draft", "--input", text,
                        "--output", table, "--quiet"], check=True)
        write("lookup_corpus", "small", table.read_bytes())
    recordings(options.binary)


if __name__ == "__main__":
    main()
