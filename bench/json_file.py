"""JSON that somebody else wrote, read field by field: whatever is not as it should be ends in one line that names the file and
the field. Used by scaling_model.py and gpu_model.py; standard library only."""

import json
import math
import re


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
