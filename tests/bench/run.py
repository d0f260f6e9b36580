#!/usr/bin/env python3
"""Runs the tests of bench/'s scripts; exits with 77 (skipped) where Python has no numpy.

    python3 tests/bench/run.py [-v]

Figures are drawn only where matplotlib is at hand; those tests say so otherwise.
"""

import pathlib
import sys
import unittest


def main():
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("skipped: needs numpy for", sys.executable)
        return 77
    here = str(pathlib.Path(__file__).resolve().parent)
    ran = unittest.main(module=None, argv=[__file__, "discover", "-s", here, *sys.argv[1:]], exit=False)
    return 0 if ran.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
