"""How do the report's figures look, and what is a figure? Palette, sizes and small helpers; no data.

The palette is Okabe and Ito's, which colour-blind readers can tell apart; marks and line styles differ as well, so
that a print without colour can be read.
"""

import dataclasses
import typing

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if matplotlib.__version_info__ < (3, 7):  # legends outside of the axes
    raise ImportError(f"matplotlib {matplotlib.__version__} is too old")

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
CYCLE = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK]
MARKS = ["o", "D", "s", "^", "v", "P", "X", "<", ">", "*"]
LINES = ["-", "--", "-.", ":"]
MATCH, MISMATCH = BLUE, VERMILLION  # everywhere: what is accepted and what is rejected
WIDTH = 10.0  # inches, of every figure: a page across
DPI = 110
SETTINGS = {"font.family": "DejaVu Sans", "font.size": 9.5, "axes.titlesize": 10.5, "axes.grid": True,
            "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.spines.top": False,
            "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8.5, "text.parse_math": False,
            "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08, "svg.fonttype": "none"}


@dataclasses.dataclass
class Choice:
    """What the command line chose: a text by its id, None for the first one; a draft by its number from 0, None
    for all."""

    text: typing.Optional[str] = None
    draft: typing.Optional[int] = None

    def drafts_of(self, n_drafts):
        return range(n_drafts) if self.draft is None else [self.draft] if self.draft < n_drafts else []


@dataclasses.dataclass
class Drawing:
    """A figure of one input: `of` says of which, and is part of the file's name."""

    of: str
    figure: Figure
    note: str = ""  # what of the input is not shown, or how it was chosen


@dataclasses.dataclass
class Plot:
    """A figure that the report knows. `draw` takes Inputs and Choice and returns Drawings, none without input."""

    name: str
    title: str
    reading: str  # what the axes mean, how to read it
    command: str  # what makes its input
    draw: typing.Callable

    def figures(self, inputs, choice):
        """What draw gives, each figure with its title."""
        drawings = self.draw(inputs, choice)
        for each in drawings:
            each.figure.suptitle(self.title, fontsize=12)
        return drawings


def settings():
    """The context in which figures are made and saved: matplotlib's own defaults and the settings above, whatever a
    matplotlibrc of the user says."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS, "backend": "agg"})


def panels(rows=1, columns=1, height=3.6, **how):
    """A figure and its axes as a [rows, columns] array; `height` in inches is that of a row."""
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def colour(index):
    return CYCLE[index % len(CYCLE)]


def mark(index):
    return MARKS[index % len(MARKS)]


def line(index):
    return LINES[index % len(LINES)]


def legend_below(figure, axes, columns=4):
    """One legend for all panels, under them: each label once."""
    found = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels()):
            found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=min(columns, len(found)))


def shown_piece(piece, longest=12):
    """A token's text as a tick label: spaces and line ends can be seen, what the font lacks becomes a box."""
    known = font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap()
    text = piece.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥")
    text = "".join(letter if ord(letter) in known and letter.isprintable() else "□" for letter in text)
    return text if len(text) <= longest else text[:longest - 1] + "…"


def shortened(label, longest=60):
    """Without its middle where it is too long: it begins with the rule's name, and similar ones differ at their ends."""
    if len(label) <= longest:
        return label
    end = longest // 3
    return f"{label[:longest - end - 1]}…{label[-end:]}"


def plain_log_ticks(axis, values, which="y"):
    """A logarithmic axis over the range of the values, with ticks 1, 2, 5, 10, ... written out."""
    low, high = wide_enough(values)
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [step * 10.0 ** power for power in range(-9, 10) for step in steps
                 if low <= step * 10.0 ** power <= high]
        if len(ticks) >= 4:
            break
    getattr(axis, f"set_{which}scale")("log")
    getattr(axis, f"set_{which}lim")(low, high)
    getattr(axis, f"set_{which}ticks")(ticks, [f"{tick:g}" for tick in ticks])
    axis.tick_params(axis=which, which="minor", length=0, labelbottom=False, labelleft=False)


def wide_enough(values):
    """Ends of a logarithmic axis for these values: with room on both sides, and a factor of four apart at least."""
    low, high = min(values) / 1.2, max(values) * 1.2
    widening = max((4 * low / high) ** 0.5, 1)
    return low / widening, high * widening


def integers(axis, which="x"):
    """Only whole numbers on an axis of counts."""
    getattr(axis, f"{which}axis").get_major_locator().set_params(integer=True)
