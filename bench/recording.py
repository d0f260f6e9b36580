"""What is in a recording? Reads the files of `entrodraft record` (docs/formats.md) into numpy arrays, and prints how often
the target accepts each draft's tokens.

    python3 bench/recording.py FILE... [--output FILE] [--json]

    import recording
    read = recording.read_recording("demo.edr")
    for text in read.texts:
        entropies, n_accepted = text.of_draft(0, "entropy"), text.matches(0)

alpha is the acceptance rate: the mean of sum min(p, q) over all places of the texts, whatever was drafted there. Of drafters
without a model `bench compare --rules constant:15 --acceptances rejection` prints it.

Nothing is mended: what does not fit is a RecordingError that names file and block. A torn last block, as a killed run
leaves it, is reported in `Recording.torn`; all blocks before it are there. `write_recording` is for tests.
Needs numpy.
"""

import dataclasses
import json
import struct
import zlib

from runs import Parser, aligned, end_without_numpy, file_name, ratio_interval, refuse_overwriting, report

try:
    import numpy as np
except ImportError as missing:
    if __name__ != "__main__":
        raise
    end_without_numpy(missing)

MAGIC = b"EDR1"
SCHEMA_VERSION = 1
FRAME = struct.Struct("<4sII")  # magic, compressed bytes, their CRC-32
TYPES = {"i32": np.dtype("<i4"), "f32": np.dtype("<f4")}
LARGEST_BLOCK = 1 << 30  # unpacked: a text of a million places with four drafts stays below
TOP = 8  # candidates of the draft kept for each place
TARGET_COLUMNS = {"token": "i32", "target_entropy": "f32", "target_log_probability": "f32", "target_margin": "f32"}
DRAFT_COLUMNS = {"token": "i32", "entropy": "f32", "probability": "f32", "log_probability": "f32",
                 "cross_entropy": "f32", "overlap": "f32", "margin": "f32", "rank": "i32"}
TOP_COLUMNS = {"top_token": "i32", "top_log_probability": "f32"}
ASTRAY_COLUMNS = {"astray_token": "i32", "astray_entropy": "f32", "astray_probability": "f32"}
ASTRAY_MARGIN = "astray_margin"  # absent in older files
TREE_COLUMNS = {"tree_parent": "i32", "tree_behind": "i32", "tree_children": "i32", "tree_entropy": "f32",
                "tree_ranked_entropy": "f32"}
TREE_CHILD_COLUMNS = {"tree_token": "i32", "tree_probability": "f32", "tree_ranked_probability": "f32"}
ENTROPY_BIN, ENTROPY_BINS = 0.5, 16  # nats; the last one is open
TEXT_FIELDS = ["id", "prompt_tokens", "new_tokens", "finish_reason", "pieces"]


class RecordingError(Exception):
    """One line: file, block, reason."""


@dataclasses.dataclass
class Text:
    """A line of input: the fields of its block, and its columns by name."""

    fields: dict
    columns: dict

    @property
    def places(self):
        return len(self.columns["token"])

    def of_draft(self, draft, name):
        """Column `name` of draft number `draft`, over its places; the two columns of candidates as [places, 8]."""
        column = self.columns[f"draft.{draft}.{name}"]
        return column.reshape(-1, TOP) if name in TOP_COLUMNS else column

    def matches(self, draft):
        """At which of the draft's places its token is the target's."""
        token = self.of_draft(draft, "token")
        return token == self.columns["token"][:len(token)]

    def astray(self, draft, name):
        """Column astray_`name` in pieces, one for each place where the draft's token is not the target's; of a head for
        each place."""
        ends = np.cumsum(self.of_draft(draft, "astray_length"))
        return np.split(self.of_draft(draft, f"astray_{name}"), ends[:-1]) if len(ends) else []


@dataclasses.dataclass
class Recording:
    """`header` is the first block, `errors` the blocks of lines that could not be served; `torn` says where the file
    ends within a block, None where it is whole."""

    path: str
    header: dict
    texts: list
    errors: list
    torn: str = None

    @property
    def n_drafts(self):
        return len(self.header["drafts"])

    def each_place(self, draft, name):
        """A column of all texts, one behind the other: of a draft ("entropy") or, with draft None, of the target."""
        columns = [text.columns[name][:text.places] if draft is None else text.of_draft(draft, name)
                   for text in self.texts]
        return np.concatenate(columns) if columns else np.zeros(0)


def read_recording(path):
    """The whole file. Throws RecordingError, or OSError where it cannot be read."""
    with open(path, "rb") as file:
        data = file.read()
    recording, at, number = None, 0, 0
    while at < len(data):
        block, at, torn = next_block(path, data, at, number)
        if torn:
            if recording is None:
                raise RecordingError(f"{path}: block 0: {torn}")
            recording.torn = f"block {number}: {torn}"
            break
        fields, columns = unpack(path, number, block)
        if recording is None:
            check_header(path, fields, columns)
            recording = Recording(str(path), fields, [], [])
        else:
            add_block(recording, fields, columns, number)
        number += 1
    if recording is None:
        raise RecordingError(f"{path}: block 0: the file is empty")
    return recording


def next_block(path, data, at, number):
    """(compressed bytes, where the next block begins, None), or (None, the end, reason) where the file is torn."""
    head = data[at:at + FRAME.size]
    if head[:4] != MAGIC[:len(head)]:
        raise RecordingError(f"{path}: block {number}: begins with {head[:4]!r} in place of {MAGIC!r}")
    if len(head) < FRAME.size:
        return None, len(data), f"torn after {len(head)} of its first {FRAME.size} bytes"
    _, length, crc = FRAME.unpack(head)
    begin = at + FRAME.size
    packed = data[begin:begin + length]
    if len(packed) < length:
        return None, len(data), f"torn after {len(packed)} of {length} compressed bytes"
    if zlib.crc32(packed) != crc:
        raise RecordingError(f"{path}: block {number}: CRC-32 {zlib.crc32(packed):08x} where {crc:08x} is written")
    return packed, begin + length, None


def unpack(path, number, packed):
    """The JSON of a block and its columns by name."""
    def bad(reason):
        return RecordingError(f"{path}: block {number}: {reason}")

    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(packed, LARGEST_BLOCK)
    except zlib.error as error:
        raise bad(f"not a zlib stream: {error}") from None
    if not stream.eof or stream.unused_data:
        raise bad("the zlib stream does not end where the block ends" if len(raw) < LARGEST_BLOCK
                  else f"more than {LARGEST_BLOCK} bytes unpacked")
    if len(raw) < 4:
        raise bad(f"{len(raw)} bytes, which is no length")
    end = 4 + int.from_bytes(raw[:4], "little")
    if end > len(raw):
        raise bad(f"JSON of {end - 4} bytes in a block of {len(raw)}")
    try:
        fields = json.loads(raw[4:end].decode("utf-8"))
    except ValueError as error:
        raise bad(f"JSON: {error}") from None
    if not isinstance(fields, dict):
        raise bad("its JSON is not an object")
    columns, at = {}, end
    for column in described_columns(fields, bad):
        values, at = read_column(raw, at, column, bad)
        columns[column["name"]] = values
    if at != len(raw):
        raise bad(f"{len(raw) - at} bytes behind its columns")
    return fields, columns


def described_columns(fields, bad):
    described = fields.get("columns", [])
    if not isinstance(described, list):
        raise bad("field columns is not a list")
    names = set()
    for column in described:
        if not isinstance(column, dict) or not isinstance(column.get("name"), str):
            raise bad("a column without a name")
        if column["name"] in names:
            raise bad(f"column {column['name']} twice")
        names.add(column["name"])
        if column.get("type") not in TYPES:
            raise bad(f"column {column['name']}: unknown type {column.get('type')!r}")
        if not is_count(column.get("count")):
            raise bad(f"column {column['name']}: count {column.get('count')!r}")
    return described


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_column(raw, at, column, bad):
    """Values that lie plane by plane: the first bytes of all, then the second ones, and so on."""
    kind, count = TYPES[column["type"]], column["count"]
    end = at + kind.itemsize * count
    if end > len(raw):
        raise bad(f"column {column['name']}: {count} values in {len(raw) - at} bytes")
    planes = np.frombuffer(raw, np.uint8, end - at, at).reshape(kind.itemsize, count)
    return np.ascontiguousarray(planes.T).view(kind).reshape(count), end


def check_header(path, fields, columns):
    def bad(reason):
        return RecordingError(f"{path}: block 0: {reason}")

    if fields.get("kind") != "recording":
        raise bad(f"kind {fields.get('kind')!r} where the first block is a 'recording'")
    if fields.get("schema_version") != SCHEMA_VERSION:
        raise bad(f"schema_version {fields.get('schema_version')!r}; {SCHEMA_VERSION} is what is known here")
    if columns:
        raise bad("columns in the first block")
    drafts = fields.get("drafts")
    if not isinstance(drafts, list) or not all(isinstance(draft, dict) for draft in drafts):
        raise bad("field drafts is not a list of models")
    if not isinstance(fields.get("target"), dict):
        raise bad("field target is missing")
    if not is_count(fields.get("max_draft_tokens")):
        raise bad("field max_draft_tokens is no count")


def add_block(recording, fields, columns, number):
    def bad(reason):
        return RecordingError(f"{recording.path}: block {number}: {reason}")

    kind = fields.get("kind")
    if kind == "error":
        if columns:
            raise bad("columns in the block of an error")
        recording.errors.append(fields)
    elif kind == "text":
        text = Text(fields, columns)
        check_text(text, recording.header["drafts"], bad)
        recording.texts.append(text)
    else:
        raise bad(f"unknown kind {kind!r}")


def check_text(text, drafts, bad):
    """The columns are those of the format and add up."""
    fields, described = text.fields, {column["name"]: column for column in text.fields.get("columns", [])}

    def take(name, kind, count=None):
        column = described.pop(name, None)
        if column is None:
            raise bad(f"column {name} is missing")
        if column["type"] != kind:
            raise bad(f"column {name} of type {column['type']} in place of {kind}")
        if count is not None and column["count"] != count:
            raise bad(f"column {name} has {column['count']} values where {count} belong")
        return text.columns[name]

    for name in TEXT_FIELDS:
        if name not in fields:
            raise bad(f"field {name} is missing")
    if not is_count(fields["prompt_tokens"]) or not is_count(fields["new_tokens"]):
        raise bad("prompt_tokens or new_tokens is not a count")
    pieces = fields["pieces"]
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise bad("field pieces is not a list of strings")
    if len(pieces) != fields["new_tokens"]:
        raise bad(f"{len(pieces)} pieces for {fields['new_tokens']} new tokens")
    take("prompt_token", "i32", fields["prompt_tokens"])
    places = len(take("token", "i32"))
    if places < fields["new_tokens"]:
        raise bad(f"{places} places for {fields['new_tokens']} new tokens")
    for name, kind in TARGET_COLUMNS.items():
        if name != "token":
            take(name, kind, places)
    for draft, model in enumerate(drafts):
        check_draft(text, draft, "head_tokens" in model, places, take, bad)
        if f"draft.{draft}.tree_parent" in described:
            check_trees(draft, take)
    if described:
        raise bad(f"unknown column {next(iter(described))}")


def check_trees(draft, take):
    prefix = f"draft.{draft}."
    rows = len(take(prefix + "tree_parent", "i32"))
    for name, kind in TREE_COLUMNS.items():
        if name not in ("tree_parent", "tree_children"):
            take(prefix + name, kind, rows)
    children = int(take(prefix + "tree_children", "i32", rows).sum(dtype=np.int64))
    for name, kind in TREE_CHILD_COLUMNS.items():
        take(prefix + name, kind, children)


def check_draft(text, draft, is_head, places, take, bad):
    prefix = f"draft.{draft}."
    draft_places = len(take(prefix + "token", "i32"))
    if draft_places > places:
        raise bad(f"column {prefix}token has {draft_places} values for {places} places")
    for name, kind in DRAFT_COLUMNS.items():
        if name != "token":
            take(prefix + name, kind, draft_places)
    for name, kind in TOP_COLUMNS.items():
        take(prefix + name, kind, TOP * draft_places)
    chains = draft_places if is_head else int(np.count_nonzero(~text.matches(draft)))
    lengths = take(prefix + "astray_length", "i32", chains)
    if len(lengths) and lengths.min() < 0:
        raise bad(f"column {prefix}astray_length holds {lengths.min()}")
    for name, kind in ASTRAY_COLUMNS.items():
        take(prefix + name, kind, int(lengths.sum(dtype=np.int64)))
    if prefix + ASTRAY_MARGIN in text.columns:
        take(prefix + ASTRAY_MARGIN, "f32", int(lengths.sum(dtype=np.int64)))


def pack(fields, columns):
    """A block: what read_recording unpacks."""
    described = [{"name": name, "type": "i32" if values.dtype.kind == "i" else "f32", "count": len(values)}
                 for name, values in columns.items()]
    text = json.dumps({**fields, **({"columns": described} if columns else {})}).encode()
    raw = len(text).to_bytes(4, "little") + text
    for values, column in zip(columns.values(), described):
        planes = np.ascontiguousarray(values, TYPES[column["type"]]).view(np.uint8)
        raw += planes.reshape(len(values), TYPES[column["type"]].itemsize).T.tobytes()
    packed = zlib.compress(raw)
    return FRAME.pack(MAGIC, len(packed), zlib.crc32(packed)) + packed


def write_recording(path, header, texts, errors=()):
    """A recording as tests want it: `texts` are Text, their columns of any integer or floating type."""
    with open(path, "wb") as file:
        file.write(pack({"kind": "recording", "schema_version": SCHEMA_VERSION, **header}, {}))
        for text in texts:
            file.write(pack({"kind": "text", **text.fields}, text.columns))
        for error in errors:
            file.write(pack({"kind": "error", **error}, {}))


# ---- acceptance ----

def acceptance_rates(recording):
    """A row for each draft at each temperature of its texts, as JSON has it (docs/formats.md)."""
    usual = (recording.header.get("sampling") or {}).get("temperature", 0)
    temperatures = sorted({text.fields.get("temperature", usual) for text in recording.texts})
    return [{"recording": recording.path, "draft": draft + 1, "model": recording.header["drafts"][draft].get("model", ""),
             "temperature": temperature, **rates_of([text for text in recording.texts
                                                     if text.fields.get("temperature", usual) == temperature], draft)}
            for temperature in temperatures for draft in range(recording.n_drafts)]


def rates_of(texts, draft):
    def of_text(values):
        return [each[:text.fields["new_tokens"]] for text, each in zip(texts, values)]

    overlaps = of_text(text.of_draft(draft, "overlap").astype(float) for text in texts)
    overlap, matches, entropy = (np.concatenate(each) for each in (
        overlaps, of_text(text.matches(draft) for text in texts), of_text(text.of_draft(draft, "entropy") for text in texts)))
    low, high = ratio_interval([each.sum() for each in overlaps], [len(each) for each in overlaps])
    bins = np.minimum(entropy / ENTROPY_BIN, ENTROPY_BINS - 1).astype(int)
    return {"texts": len(texts), "places": len(overlap), "matching_share": mean_of(matches), "alpha": mean_of(overlap),
            "interval_alpha": [float(low), min(float(high), 1.0)],
            "by_entropy": [{"from_nats": float(ENTROPY_BIN * number), "places": int(np.count_nonzero(bins == number)),
                            "alpha": mean_of(overlap[bins == number])} for number in np.unique(bins)]}


def mean_of(values):
    return float(np.mean(values)) if len(values) else 0.0


def text_of(rows):
    table = [["draft", "temperature", "texts", "places", "matching", "alpha", "95 % interval"]]
    starts = sorted({part["from_nats"] for row in rows for part in row["by_entropy"]})
    by_entropy = [["draft's entropy, nats"], *([f"from {start:g}"] for start in starts)]
    for row in rows:
        low, high = row["interval_alpha"]
        table.append([f"{row['model']} of {row['recording']}", f"{row['temperature']:g}", str(row["texts"]),
                      str(row["places"]), f"{row['matching_share']:.4f}", f"{row['alpha']:.4f}", f"{low:.4f} to {high:.4f}"])
        alphas = {part["from_nats"]: f"{part['alpha']:.3f} of {part['places']}" for part in row["by_entropy"]}
        for line, cell in zip(by_entropy, [f"{row['model']}, temperature {row['temperature']:g}",
                                           *(alphas.get(start, "-") for start in starts)]):
            line.append(cell)
    return aligned(table) + "\n" + aligned(by_entropy)


def main(arguments=None):
    parser = Parser(prog="recording.py", description="How often does the target accept each draft's tokens?")
    parser.add_argument("files", metavar="FILE", nargs="+", help="of entrodraft record")
    parser.add_argument("--output", type=file_name, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    options = parser.parse_args(arguments)
    refuse_overwriting(parser, options.output, options.files)
    try:
        rows = [row for file in options.files for row in acceptance_rates(read_recording(file))]
    except RecordingError as error:
        raise SystemExit(f"recording.py: {error}") from None
    except OSError as error:
        raise SystemExit(f"recording.py: {error.filename}: {error.strerror}") from None
    report(text_of(rows), {"command": "alpha", "figures": rows}, options.output, options.json)


if __name__ == "__main__":
    main()
