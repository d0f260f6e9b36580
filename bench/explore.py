"""What would other rules have drafted? One HTML page in which the reader moves a stop rule's thresholds and sees a recording's rounds
replayed: texts, entropies, counts, speed-up.

    python3 bench/explore.py RECORDING --output FILE.html [--draft D] [--costs FILE] [--texts N]

RECORDING is a file of `entrodraft record`. The page needs no other file, no network and no server; its counts and speed-ups are those of
`entrodraft simulate` over the same texts. It holds the first N texts, without --texts as many as have 100,000 tokens together.
Of drafts it has all, or the D-th alone. It replays chains, of models and heads, under every rule but expected-gain, which learns, and
no trees: simulate has these.
Needs numpy.
"""

import base64
import html
import pathlib
import string
import sys

from json_file import LIST, NUMBER, POSITIVE, BadFile, File
from runs import Parser, counted, end_without_numpy, file_name, number, refuse_overwriting

try:
    from recording import RecordingError, pack, read_recording
except ImportError as missing:
    end_without_numpy(missing)

HERE = pathlib.Path(__file__).resolve().parent
USUAL_POSITIONS = 100_000
HEAD_FIELDS = ["max_draft_tokens", "max_positions", "eos_token_ids"]
TEXT_FIELDS = ["id", "prompt_tokens", "new_tokens", "max_new_tokens", "ignore_eos", "pieces"]
DRAFT_COLUMNS = ["token", "entropy", "probability", "astray_length", "astray_token", "astray_entropy", "astray_probability"]


def costs_in(name, rows):
    """The fields of a costs file that chains need, for passes of up to `rows` rows."""
    file = File(name)
    if file.get("schema_version", NUMBER) != 1:
        file.bad("schema_version", "must be 1")
    costs = {field: file.get(field, NUMBER) for field in ("t_draft_ms", "t_first_draft_ms", "t_round_ms")
             if field == "t_draft_ms" or file.values.get(field) is not None}
    target = file.get("t_target_ms", LIST)
    costs["t_target_ms"] = [None if i and ms is None else file.get(f"t_target_ms[{i}]", POSITIVE) for i, ms in enumerate(target)]
    if len(target) < rows:
        file.bad("t_target_ms", f"has passes of up to {counted(len(target), 'row')}, and the recording's drafts make {rows}: "
                                f"measure with bench latency --rows {rows}")
    return costs


def texts_that_fit(texts, most):
    """The first `most`; without a number the first that have USUAL_POSITIONS together, one at least."""
    if most is not None:
        return texts[:most]
    positions, n = 0, 0
    while n < len(texts) and (n == 0 or positions + texts[n].places <= USUAL_POSITIONS):
        positions += texts[n].places
        n += 1
    return texts[:n]


def token_texts(texts):
    """What tokens read, by their numbers as strings."""
    known = {}
    for text in texts:
        known.update((str(token), piece) for token, piece in zip(text.columns["token"].tolist(), text.fields["pieces"]) if piece)
        known.update(text.fields.get("token_texts", {}))
    return known


def prompt_of(text, known):
    return "".join(known.get(str(token), f"⟨{token}⟩") for token in text.columns["prompt_token"].tolist())


def chosen(fields, names, where):
    missing = [name for name in names if name not in fields]
    if missing:
        raise RecordingError(f"{where}: field {missing[0]} is missing")
    return {name: fields[name] for name in names}


def columns_of(text, drafts):
    """Those that the page reads; the drafts chosen count from 0."""
    columns = {name: text.columns[name] for name in ("token", "target_entropy")}
    for new, old in enumerate(drafts):
        columns.update((f"draft.{new}.{name}", text.columns[f"draft.{old}.{name}"]) for name in DRAFT_COLUMNS)
    return columns


def embedded(recording, texts, drafts, costs, costs_file):
    """The page's own recording (docs/formats.md): what the page reads, and `page`, what it says."""
    header, known = chosen(recording.header, [*HEAD_FIELDS, "drafts", "costs"], recording.path), token_texts(texts)
    head = {**header, "drafts": [header["drafts"][draft] for draft in drafts],
            "costs": [costs or header["costs"][draft] for draft in drafts],
            "page": {"recording": recording.path, "costs": costs_file, "n_drafts": recording.n_drafts,
                     "draft_numbers": [draft + 1 for draft in drafts], "token_texts": known}}
    of_texts = [{**chosen(text.fields, TEXT_FIELDS, f"{recording.path}: a text"), "prompt": prompt_of(text, known)} for text in texts]
    return pack(head, {}) + b"".join(pack(fields, columns_of(text, drafts)) for fields, text in zip(of_texts, texts))


def facts_of(recording, texts, drafts):
    """Lines about the recording, and about what the page lacks."""
    header, tokens = recording.header, sum(text.fields["new_tokens"] for text in texts)
    models = ", ".join(header["drafts"][draft]["model"] for draft in drafts)
    lines = [f"<p>Rounds of a recording, replayed: {counted(len(texts), 'text')} of {counted(tokens, 'new token')}. "
             f"Target {html.escape(header['target']['model'])}, draft {html.escape(models)}.</p>"]
    if len(texts) < len(recording.texts):
        lines.append(f'<p class="warning">The first {len(texts)} of {counted(len(recording.texts), "text")}: all figures are of these '
                     "(--texts N takes more).</p>")
    if recording.torn:
        lines.append(f'<p class="warning">The recording is torn ({html.escape(recording.torn)}): it has the texts before.</p>')
    if recording.errors:
        lines.append(f'<p class="note">{counted(len(recording.errors), "line")} of the input failed and cannot be replayed.</p>')
    lines.append('<p class="note">Not here: expected-gain, which learns from rounds and costs, and trees; entrodraft simulate replays both.</p>')
    return "\n".join(lines)


def page_of(recording, texts, drafts, costs, costs_file):
    data = embedded(recording, texts, drafts, costs, costs_file)
    of_costs = f"by the costs of {costs_file}" if costs else "by the recording's costs"
    return string.Template((HERE / "explore.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(f"Stop rules over {pathlib.Path(recording.path).name}"), facts=facts_of(recording, texts, drafts),
        figures_caption=html.escape(f"All texts, {of_costs}", quote=True), recording=base64.b64encode(data).decode(),
        script=(HERE / "explore.js").read_text(encoding="utf-8"))


def parse(arguments):
    parser = Parser(prog="explore.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("recording", metavar="RECORDING", help="of entrodraft record")
    parser.add_argument("--output", metavar="FILE", type=file_name, required=True, help="the page, replaced where it exists")
    parser.add_argument("--draft", metavar="D", type=number(1, kind=int), help="the D-th draft of the recording alone, from 1 [all]")
    parser.add_argument("--costs", metavar="FILE", help="other costs than the recording's, as bench latency writes them")
    parser.add_argument("--texts", metavar="N", type=number(1, kind=int),
                        help=f"the first N texts [as many as have {USUAL_POSITIONS:,} tokens together]")
    options = parser.parse_args(arguments)
    refuse_overwriting(parser, options.output, [file for file in (options.recording, options.costs) if file])
    return parser, options


def main(arguments=None):
    parser, options = parse(arguments)
    try:
        recording = read_recording(options.recording)
        if options.draft is not None and options.draft > recording.n_drafts:
            parser.error(f"--draft {options.draft}: the recording has {counted(recording.n_drafts, 'draft')}")
        if not recording.texts:
            raise RecordingError(f"{options.recording}: holds no text")
        drafts = range(recording.n_drafts) if options.draft is None else [options.draft - 1]
        costs = costs_in(options.costs, recording.header["max_draft_tokens"] + 1) if options.costs else None
        texts = texts_that_fit(recording.texts, options.texts)
        page = page_of(recording, texts, drafts, costs, options.costs)
        part = options.output.with_name(options.output.name + ".part")
        part.write_text(page, encoding="utf-8")
        part.replace(options.output)
    except (RecordingError, BadFile) as error:
        return f"explore.py: {error}"
    except OSError as error:
        return f"explore.py: {error.filename or options.output}: {error.strerror}"
    print(f"{options.output}: {len(texts)} of {counted(len(recording.texts), 'text')}, {len(page) / 1e6:.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
