"""Reads the files of public data sets that a user has: c4, WMT, IWSLT, CNN/DM, XSum.

    load(task, file, reference, options) -> items

Every loader is a generator, so that the first prompts of a file of gigabytes come at once. What cannot be read is a
BadInput that names file and line. Nothing is downloaded. Called by run.py.
"""

import csv
import dataclasses
import gzip
import html
import json
import pathlib
import re
import sys
import zlib

from items import BadInput, Item


@dataclasses.dataclass
class Reading:
    """What shapes the prompts: the template holds {text} once; prompt_words is for c4 alone."""

    template: str = "{text}"
    prompt_words: int = 64


TRANSLATION = "Translate {source} to {target}: {{text}}\n"
SUMMARY = "Summarize: {text}\n"


def default_template(task, languages):
    """The prompts of Spec-Bench have the same form."""
    if task in ("wmt", "iwslt"):
        return TRANSLATION.format(source=languages[0], target=languages[1])
    return SUMMARY if task in ("cnn-dm", "xsum") else "{text}"


def lines_of(path):
    """(number, line) of a text file or one under gzip. Lines end at line feeds alone: a line of a parallel corpus
    may hold other characters that Unicode calls line ends."""
    try:
        with (gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise BadInput(f"{path}:{number}: not UTF-8 ({error.reason})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def kind_of(path):
    """The file's suffix, that of the file inside where it is under gzip."""
    return pathlib.Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def json_objects(path):
    """(line number, object): a JSON object a line, or a file that is one array."""
    lines = list(lines_of(path)) if begins_with_bracket(path) else None
    if lines is None:
        for number, line in lines_of(path):
            if line.strip():
                yield number, parsed(path, number, line)
        return
    try:
        objects = json.loads("\n".join(line for _, line in lines))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    for position, entry in enumerate(objects, 1):
        yield f"entry {position}", entry


def begins_with_bracket(path):
    for _, line in lines_of(path):
        if line.strip():
            return line.lstrip().startswith("[")
    return False


def parsed(path, number, line):
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{number}: not JSON: {error.msg}") from None


def field(path, number, entry, name):
    """A field that must be there and hold a text that is not empty."""
    if not isinstance(entry, dict):
        raise BadInput(f"{path}:{number}: not a JSON object")
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{path}:{number}: field \"{name}\" is missing, empty or no text")
    return value


def prompt_of(reading, text):
    return reading.template.replace("{text}", text)


# c4


def c4(file, reading):
    """The first words of each document; documents that are not longer than that are left out."""
    for number, entry in json_objects(file):
        text = field(file, number, entry, "text")
        words = list(re.finditer(r"\S+", text))
        if len(words) > reading.prompt_words:
            yield Item(f"c4/{number}", "c4", prompt_of(reading, text[:words[reading.prompt_words - 1].end()]))


# WMT and IWSLT

SEGMENT = re.compile(r"<doc\b([^>]*)>|<seg\b([^>]*)>(.*?)</seg>|<seg\b", re.IGNORECASE | re.DOTALL)
ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")


def attribute(text, name):
    for found in ATTRIBUTE.finditer(text):
        if found.group(1).lower() == name:
            return next(value for value in found.groups()[1:] if value is not None)
    return None


def segments(path):
    """[(line number, document and segment, text)] of NIST's markup: .sgm of WMT, .xml of IWSLT. Read with a regular
    expression, since many of these files are no well-formed XML."""
    text = "\n".join(line for _, line in lines_of(path))
    found, document, at, number = [], "", 0, 1
    for match in SEGMENT.finditer(text):
        number, at = number + text.count("\n", at, match.start()), match.start()
        if match.group(1) is not None:
            document = attribute(match.group(1), "docid") or ""
        elif match.group(2) is None:
            raise BadInput(f"{path}:{number}: <seg> without </seg>")
        else:
            place = attribute(match.group(2), "id")
            if place is None:
                raise BadInput(f"{path}:{number}: <seg> without id")
            found.append((number, (document, place), " ".join(html.unescape(match.group(3)).split())))
    if not found:
        raise BadInput(f"{path}: no <seg> in it")
    return found


def plain_sentences(path, skips_tags):
    """(line number, None, text) of each. Training files of IWSLT hold lines of tags, such as <url>, between them."""
    for number, line in lines_of(path):
        if not (skips_tags and re.match(r"\s*</?\w+", line)):
            yield number, None, line.strip()


def sentences(path, skips_tags):
    if kind_of(path) in (".sgm", ".sgml", ".xml"):
        return segments(path)
    return list(plain_sentences(path, skips_tags))


def parallel(task, file, reference, reading):
    """Pairs of sentences of two files."""
    sources, targets = (sentences(path, task == "iwslt") for path in (file, reference))
    if len(sources) != len(targets):
        raise BadInput(f"{reference}: {len(targets)} sentences, but {file} has {len(sources)}")
    for (number, place, text), (other_number, other_place, translation) in zip(sources, targets):
        if place is not None and other_place is not None and place != other_place:
            raise BadInput(f"{reference}:{other_number}: segment {other_place[1]} of document {other_place[0]}, "
                           f"where {file}:{number} has segment {place[1]} of document {place[0]}")
        for path, line, sentence in ((file, number, text), (reference, other_number, translation)):
            if not sentence:
                raise BadInput(f"{path}:{line}: an empty sentence; drop it from both files")
        yield Item(f"{task}/{number}", task, prompt_of(reading, text), [translation])


# CNN/DM and XSum


def columns(task, file, reading, text_field, summary_field):
    """Objects or rows with one field for the text and one for its summary."""
    rows = csv_rows(file) if kind_of(file) == ".csv" else json_objects(file)
    for number, entry in rows:
        summary = field(file, number, entry, summary_field)
        yield Item(f"{task}/{number}", task, prompt_of(reading, field(file, number, entry, text_field).strip()),
                   [summary.strip()])


def csv_rows(path):
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # an article is longer than csv's own limit
    reader = csv.DictReader(line + "\n" for _, line in lines_of(path))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num}: {error}") from None


def files_of(place, suffix):
    """The file itself, or all files of a folder with the suffix, in the order of their names."""
    if not place.is_dir():
        return [place]
    found = sorted(place.glob(f"*{suffix}"))
    if not found:
        raise BadInput(f"{place}: no *{suffix} in it")
    return found


def story(path):
    """(article, highlights) of a .story file: paragraphs, then highlights, each under a line @highlight."""
    text = "\n".join(line for _, line in lines_of(path))
    article, *highlights = re.split(r"^@highlight\s*$", text, flags=re.MULTILINE)
    highlights = [" ".join(highlight.split()) for highlight in highlights if highlight.strip()]
    if not article.strip() or not highlights:
        raise BadInput(f"{path}: needs an article and a line @highlight with text after it")
    return article.strip(), "\n".join(highlights)


MARK = re.compile(r"^\[(?:SN|XSUM)\]([A-Z-]+)\[(?:SN|XSUM)\]\s*$")


def bbc_summary(path):
    """(document, summary) of a .summary file, whose parts are under lines such as [SN]RESTBODY[SN]."""
    parts, part = {}, None
    for number, line in lines_of(path):
        mark = MARK.match(line)
        if mark:
            part = mark.group(1)
            if part in parts:
                raise BadInput(f"{path}:{number}: {part} comes twice")
            parts[part] = []
        elif part is None and line.strip():
            raise BadInput(f"{path}:{number}: text before the first mark, such as [SN]URL[SN]")
        elif part is not None:
            parts[part].append(line)
    texts = {name: "\n".join(lines).strip() for name, lines in parts.items()}
    document, summary = texts.get("RESTBODY"), texts.get("FIRST-SENTENCE") or texts.get("INTRODUCTION")
    if not document or not summary:
        raise BadInput(f"{path}: needs RESTBODY, and FIRST-SENTENCE or INTRODUCTION, with text")
    return document, summary


def whole_files(task, place, suffix, read, reading):
    for path in files_of(place, suffix):
        text, summary = read(path)
        yield Item(f"{task}/{path.stem}", task, prompt_of(reading, text), [summary])


def cnn_dm(file, reading):
    if file.is_dir() or kind_of(file) == ".story":
        return whole_files("cnn-dm", file, ".story", story, reading)
    return columns("cnn-dm", file, reading, "article", "highlights")


def xsum(file, reading):
    if file.is_dir() or kind_of(file) == ".summary":
        return whole_files("xsum", file, ".summary", bbc_summary, reading)
    return columns("xsum", file, reading, "document", "summary")


TASKS = ("c4", "wmt", "iwslt", "cnn-dm", "xsum")
NEED_REFERENCE = ("wmt", "iwslt")


def load(task, file, reference, reading):
    """The items of a file, as a generator. `reference` is for NEED_REFERENCE alone."""
    if task in NEED_REFERENCE:
        return parallel(task, file, reference, reading)
    return {"c4": c4, "cnn-dm": cnn_dm, "xsum": xsum}[task](file, reading)
