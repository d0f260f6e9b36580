"""Which of the report's files is what? Each is recognised by what it holds, never by its name, and checked here, so
that figures can rely on the fields they use. Errors are an InputError of one line: file, place, reason."""

import dataclasses
import json
import math
import os

import recording

NUMBER = (int, float)
PROCESS = (int, str)  # of events that are no steps


class InputError(Exception):
    """One line: file, place, reason."""


@dataclasses.dataclass
class Source:
    """A file and what is in it; `label` is short and differs from that of every other file."""

    kind: str
    path: str
    data: object
    label: str = ""
    warnings: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Inputs:
    sources: list

    def of(self, kind):
        return [source for source in self.sources if source.kind == kind]


KINDS = {"recording": "recording, of record", "costs": "costs, of bench latency --output",
         "comparison": "comparison, of bench compare --output", "trace": "rounds, of --trace",
         "simulation": "simulation, of simulate --output", "tuning": "tuning, of tune --report",
         "scaling": "scaling, of scaling_model.py --output", "timeline": "time line of ranks, of generate --timeline",
         "theory": "i.i.d. model, of theory.py --output", "preset": "published experiment, of presets.py --output",
         "results": "results, of generate --output"}


def read_all(paths):
    sources = [read(path) for path in paths]
    for source, label in zip(sources, labels_of(paths)):
        source.label = label
    return Inputs(sources)


def labels_of(paths):
    """File names without endings where these differ, else as much of the paths as it takes."""
    normal = [os.path.normpath(path) for path in paths]
    for label in (lambda path: os.path.splitext(os.path.basename(path))[0], os.path.basename):
        labels = [label(path) for path in normal]
        if len(set(labels)) == len(labels):
            return labels
    return normal


def read(path):
    try:
        with open(path, "rb") as file:
            begin = file.read(4)
        if begin == recording.MAGIC:
            return read_recording(path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: neither a recording ({recording.MAGIC.decode()}) nor text") from None
    except recording.RecordingError as error:
        raise InputError(str(error)) from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    first = parsed(text.lstrip().split("\n", 1)[0])
    if isinstance(first, dict) and "round" in first and "drafted" in first:
        return Source("trace", path, *read_lines(path, text, "rounds", check_round, lambda row: not row.get("plain")))
    if isinstance(first, dict) and "id" in first and ("stats" in first or "error" in first):
        return Source("results", path, *read_lines(path, text, "results", check_result, lambda row: "stats" in row))
    return read_object(path, text)


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def read_recording(path):
    read_in = recording.read_recording(path)
    if not isinstance(read_in.header.get("costs") or [], list):
        raise InputError(f"{path}: block 0: field costs is not a list")
    source = Source("recording", path, read_in)
    if read_in.torn:
        source.warnings.append(f"{read_in.torn}; the {len(read_in.texts)} texts before it are shown")
    return source


def read_object(path, text):
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a JSON {type(data).__name__} where an object belongs")
    kind = kind_of(data)
    if kind is None:
        known = "; ".join(KINDS.values())
        raise InputError(f"{path}: none of the files that a report is made of ({known})")
    CHECKS[kind](path, data)
    return Source(kind, path, data)


def kind_of(data):
    commands = {"simulate": "simulation", "tune": "tuning", "scaling": "scaling", "theory": "theory", "presets": "preset"}
    command = commands.get(str(data.get("command")))
    if command:
        return command
    for field, kind in (("traceEvents", "timeline"), ("temperatures", "comparison"), ("t_target_ms", "costs")):
        if field in data:
            return kind
    return None


def is_a(value, kind):
    if kind is NUMBER:
        return isinstance(value, NUMBER) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "interval":
        return isinstance(value, list) and len(value) == 2 and all(is_a(end, NUMBER) for end in value)
    if kind == "numbers":
        return isinstance(value, dict) and all(number in (None, True) or is_a(number, NUMBER) for number in value.values())
    return isinstance(value, kind)


def check_fields(path, place, fields, needed, optional=()):
    """`needed` and `optional` map names to types; a field of the second kind may be absent or null."""
    if not isinstance(fields, dict):
        raise InputError(f"{path}: {place}: not an object")
    for name, kind in {**needed, **dict(optional)}.items():
        value = fields.get(name)
        if value is None and name not in needed:
            continue
        if value is None:
            raise InputError(f"{path}: {place}: field {name} is missing")
        if not is_a(value, kind):
            raise InputError(f"{path}: {place}: field {name} holds {json.dumps(value)[:60]}")


def check_list(path, data, name, needed, optional=()):
    if not isinstance(data.get(name), list):
        raise InputError(f"{path}: field {name} is not a list")
    for index, fields in enumerate(data[name]):
        check_fields(path, f"{name}[{index}]", fields, needed, optional)


def check_costs(path, data):
    check_fields(path, "the costs", data, {"t_target_ms": list},
                 {"t_draft_ms": NUMBER, "environment": dict, "target": list})
    for value in data["t_target_ms"]:
        if value is not None and not is_a(value, NUMBER):
            raise InputError(f"{path}: field t_target_ms holds {json.dumps(value)[:60]}")
    if data.get("target") is not None:
        check_list(path, data, "target", {"rows": NUMBER, "median_ms": NUMBER},
                   {"p90_ms": NUMBER, "limit_ms": NUMBER})


def check_comparison(path, data):
    check_list(path, data, "temperatures", {"temperature": NUMBER, "settings": list})
    for index, temperature in enumerate(data["temperatures"]):
        place = f"temperatures[{index}]"
        for number, setting in enumerate(temperature["settings"]):
            check_fields(path, f"{place}.settings[{number}]", setting,
                         {"setting": str, "ms_per_token": NUMBER, "speedup": NUMBER, "predicted_speedup": NUMBER},
                         {"kind": str, "share_of_oracle_gain": NUMBER, "time_share": "numbers"})


SETTING = {"setting": str, "rule": str}
SETTING_OPTIONAL = {"parameters": "numbers", "draft": int, "interval_ms_per_token": "interval",
                    "share_of_oracle_gain": NUMBER, "speedup": NUMBER}


def check_simulation(path, data):
    check_list(path, data, "settings", {**SETTING, "ms_per_token": NUMBER}, SETTING_OPTIONAL)


def check_tuning(path, data):
    check_list(path, data, "simulated", {**SETTING, "ms_per_token": NUMBER}, SETTING_OPTIONAL)
    check_list(path, data, "confirmed",
               {**SETTING, "simulated_ms_per_token": NUMBER, "measured_ms_per_token": NUMBER}, SETTING_OPTIONAL)
    check_fields(path, "the tuning", data, {}, {"winner": dict})


def check_scaling(path, data):
    check_list(path, data, "measured", {"ranks": int, "t_target_ms": NUMBER},
               {"placement": str, "predicted_ms": NUMBER, "t_draft_ms": NUMBER, "over_cores": bool,
                "compute_by": str, "is_base": bool})
    if data.get("extrapolated") is not None:
        check_list(path, data, "extrapolated", {"hardware": str, "gpus": int, "tokens_per_second": NUMBER},
                   {"shape": str, "t_target_ms": NUMBER})


def check_theory(path, data):
    factors = {"walltime_factor": NUMBER, "operations_factor": NUMBER}
    check_list(path, data, "rows", {"alpha": NUMBER, "c": NUMBER, "best_k": int, "walltime_factor": NUMBER},
               {"bound": NUMBER})
    check_list(path, data, "expected_tokens", {"k": int, "alpha": NUMBER, "expected_tokens": NUMBER})
    check_list(path, data, "factors", {"k": int, "alpha": NUMBER, "c": NUMBER, "c_operations": NUMBER, **factors})
    check_fields(path, "the i.i.d. model", data, {}, {"max_tokens": int})


def check_timeline(path, data):
    if not isinstance(data["traceEvents"], list):
        raise InputError(f"{path}: field traceEvents is not a list")
    for index, event in enumerate(data["traceEvents"]):
        place = f"traceEvents[{index}]"
        check_fields(path, place, event, {"ph": str}, {"pid": PROCESS, "name": str})
        if event["ph"] == "X":
            check_fields(path, place, event, {"name": str, "ts": NUMBER, "dur": NUMBER, "pid": int, "tid": int},
                         {"args": dict})


def read_lines(path, text, noun, check, is_wanted):
    """(objects, warnings): those of the lines that are wanted, in their order. Of rounds those of --check's replays are not,
    of results lines with errors."""
    objects, warnings = [], []
    lines = text.split("\n")
    for number, row in enumerate(lines, 1):
        if not row.strip():
            continue
        fields = parsed(row)
        if fields is None and number == len(lines):  # no line end: a run that was killed
            warnings.append(f"line {number} is torn; the {len(objects)} {noun} before it are shown")
            break
        if fields is None:
            raise InputError(f"{path}: line {number}: not JSON")
        check(path, f"line {number}", fields)
        if is_wanted(fields):
            objects.append(fields)
    return objects, "", warnings


def check_result(path, place, fields):
    if isinstance(fields, dict) and "error" in fields:
        return
    check_fields(path, place, fields, {"stats": dict})
    check_fields(path, place, fields["stats"], {"new_tokens": int},
                 {name: NUMBER for name in ("ms_per_token", "target_passes", "drafted", "accepted")})


PRESET_ROW = {name: NUMBER for name in ("ms_per_token", "published_ms_per_token", "published_simulated_ms_per_token", "speedup",
                                        "published_speedup", "ms_per_round", "accepted_of_rows")}


def check_preset(path, data):
    check_fields(path, "the preset", data, {"preset": str}, {"cases": list})
    for index, case in enumerate(data.get("cases") or []):
        place = f"cases[{index}]"
        check_fields(path, place, case, {"case": str, "temperature": NUMBER, "rows": list}, {"basis": str})
        for number, row in enumerate(case["rows"]):
            check_fields(path, f"{place}.rows[{number}]", row, {"setting": str, "rule": str},
                         {**PRESET_ROW, "drafted_of_rounds": list, "ms_of_a_text": "numbers"})


CHECKS = {"costs": check_costs, "comparison": check_comparison, "simulation": check_simulation,
          "tuning": check_tuning, "scaling": check_scaling, "timeline": check_timeline, "theory": check_theory, "preset": check_preset}


def check_round(path, place, fields):
    check_fields(path, place, fields, {"round": int, "position": int, "drafted": list, "accepted": int},
                 {"entropies_nats": list, "draft_ms": NUMBER, "target_ms": NUMBER, "draft_passes": int})
    if "id" not in fields:
        raise InputError(f"{path}: {place}: field id is missing")
    if not 0 <= fields["accepted"] <= len(fields["drafted"]):
        raise InputError(f"{path}: {place}: {fields['accepted']} accepted of {len(fields['drafted'])} drafted tokens")
    entropies = fields.get("entropies_nats") or []
    if len(entropies) > len(fields["drafted"]) or not all(x is None or is_a(x, NUMBER) for x in entropies):
        raise InputError(f"{path}: {place}: entropies_nats are not those of {len(fields['drafted'])} drafted tokens")


def facts_of(source):
    """What a file says of itself, for the page's list of files."""
    data = source.data
    if source.kind == "recording":
        header = data.header
        models = [f"target {described(header['target'])}",
                  *(f"draft {number} {described(draft)}" for number, draft in enumerate(header["drafts"], 1))]
        counts = f"{len(data.texts)} texts, {sum(text.places for text in data.texts)} places"
        errors = f"{len(data.errors)} lines with errors" if data.errors else ""
        return "; ".join(filter(None, [*models, str(header.get("acceptance", "")), counts, errors,
                                       environment_of(header)]))
    if source.kind == "trace":
        return f"{len(data)} rounds of {len({json.dumps(row['id']) for row in data})} texts"
    if source.kind == "results":
        return f"{len(data)} texts, {sum(result['stats']['new_tokens'] for result in data)} new tokens"
    if source.kind == "preset":
        return "; ".join(filter(None, [data["preset"], data.get("about", ""), environment_of(data)]))
    if source.kind == "timeline":
        return f"{sum(event['ph'] == 'X' for event in data['traceEvents'])} steps"
    if source.kind == "comparison":
        settings = sum(len(result["settings"]) for result in data["temperatures"])
        return "; ".join(filter(None, [f"{settings} settings on {data.get('prompts', '?')} prompts",
                                       environment_of(data)]))
    counts = {"simulation": ("settings", "settings"), "tuning": ("simulated", "settings simulated"),
              "scaling": ("measured", "runs"), "theory": ("rows", "pairs of alpha and c")}.get(source.kind)
    winner = data.get("winner") or {}
    return "; ".join(filter(None, [f"{len(data[counts[0]])} {counts[1]}" if counts else "",
                                   f"fastest: {winner['setting']}" if "setting" in winner else "",
                                   environment_of(data)]))


def described(model):
    return " ".join(str(model[name]) for name in ("model", "dtype") if name in model)


def environment_of(data):
    environment = data.get("environment")
    if not isinstance(environment, dict):
        return ""
    return in_words(environment)


def in_words(value):
    """JSON as people read it: "device cpu, machine (cores 2, trusted yes)"."""
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {f'({in_words(each)})' if isinstance(each, dict) else in_words(each)}"
                         for name, each in value.items())
    if isinstance(value, list):
        return " ".join(map(in_words, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def is_id(identity, wanted):
    """An id is any JSON value; on the command line a string may go without its quotes."""
    return wanted in (identity, json.dumps(identity))


def text_of_recording(read_in, wanted):
    """The text with that id, the first one for None; None where there is none."""
    return next((text for text in read_in.texts if wanted is None or is_id(text.fields["id"], wanted)), None)


def rounds_of_text(rounds, wanted):
    """The rounds of the text with that id, those of the first one for None; an empty list where there are none."""
    ids = [row["id"] for row in rounds if wanted is None or is_id(row["id"], wanted)]
    return [row for row in rounds if row["id"] == ids[0]] if ids else []
