"""The figures of bench/report.py: a module for each kind of question, each figure a function of the data."""
