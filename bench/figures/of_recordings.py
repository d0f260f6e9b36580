"""What does entropy say about acceptance? Figures of recordings, and of the same numbers in traces."""

import math

import numpy as np

from . import inputs as given
from .drawing import (BLACK, GREY, MATCH, MISMATCH, PURPLE, Drawing, Plot, colour, integers, legend_below, line, mark,
                      panels, shortened, shown_piece)

PLACES_A_ROW, MOST_ROWS, PROMPT_SHOWN = 40, 4, 8
NEWTON_STEPS, RIDGE = 25, 1e-6
LEAST_IN_BIN, MOST_BINS = 40, 20
Z95 = 1.959964


def draft_name(source, draft):
    """What a draft of a recording is called in legends."""
    model = str(source.data.header["drafts"][draft].get("model", "")).rstrip("/").rsplit("/", 1)[-1]
    several = source.data.n_drafts > 1
    return f"{shortened(source.label, 40)}, draft {draft + 1} ({shortened(model, 30)})" if several \
        else shortened(source.label, 40)


def each_draft(inputs, choice):
    """(source, draft) of all recordings that hold a text."""
    return [(source, draft) for source in inputs.of("recording") if source.data.texts
            for draft in choice.drafts_of(source.data.n_drafts)]


def file_part(source, draft):
    return f"{source.label}-draft-{draft + 1}" if source.data.n_drafts > 1 else source.label


# ---- along a text ----

def entropy_along_text(inputs, choice):
    drawings = []
    for source, draft in each_draft(inputs, choice):
        text = given.text_of_recording(source.data, choice.text)
        if text is not None and len(text.of_draft(draft, "token")) > 0:
            figure, places = draw_along_text(text, draft)
            shown = f"text {text.fields['id']!r} of {draft_name(source, draft)}"
            total = len(text.of_draft(draft, "token"))
            cut = f"; the first {places} of {total} places" if places < total else ""
            drawings.append(Drawing(file_part(source, draft), figure, shown + cut))
    return drawings


def draw_along_text(text, draft):
    """Rows of positions: the target's tokens above, the draft's below where they differ, the end of the prompt in grey."""
    entropy, matched = text.of_draft(draft, "entropy"), text.matches(draft)
    places = min(len(entropy), PLACES_A_ROW * MOST_ROWS)
    rows = math.ceil(places / PLACES_A_ROW)
    figure, axes = panels(rows, height=2.6 if rows > 1 else 3.2, sharey=True)
    for row, axis in enumerate(axes[:, 0]):
        part = np.arange(row * PLACES_A_ROW, min(places, (row + 1) * PLACES_A_ROW))
        axis.plot(part, text.columns["target_entropy"][part], color=BLACK, linewidth=1, linestyle="--",
                  label="target's entropy")
        axis.plot(part, text.of_draft(draft, "cross_entropy")[part], color=PURPLE, linewidth=1, linestyle=":",
                  label="cross-entropy of target and draft")
        axis.plot(part, entropy[part], color=GREY, linewidth=1)
        for kind, tint, shape, label in ((matched, MATCH, "o", "draft's entropy, its token is the target's"),
                                         (~matched, MISMATCH, "D", "draft's entropy, it is not")):
            at = part[kind[part]]
            axis.plot(at, entropy[at], shape, color=tint, markersize=4.5, label=label,
                      markerfacecolor=tint if shape == "o" else "white")
        prompt = prompt_end(text) if row == 0 else []
        label_tokens(axis, text, draft, part, prompt)
        axis.set_xlim(part[0] - len(prompt) - 0.7, (row + 1) * PLACES_A_ROW - 0.3)
        axis.grid(axis="x", linewidth=0.3)
        axis.set_ylabel("entropy, nats")
    axes[-1, 0].set_xlabel("tokens: the target's above, the draft's own below where it is another")
    legend_below(figure, axes, 2)
    return figure, places


def token_text(text, token):
    return text.fields.get("token_texts", {}).get(str(token), f"#{token}")


def prompt_end(text):
    """The texts of the prompt's last tokens."""
    return [token_text(text, token) for token in text.columns["prompt_token"][-PROMPT_SHOWN:]]


def label_tokens(axis, text, draft, part, prompt):
    pieces, matched = text.fields["pieces"], text.matches(draft)
    before = np.arange(part[0] - len(prompt), part[0])
    above = axis.secondary_xaxis("top")
    above.set_xticks([*before, *part], [shown_piece(each) for each in prompt]
                     + [shown_piece(pieces[i]) if i < len(pieces) else "" for i in part], rotation=90, fontsize=7)
    for label in above.get_xticklabels()[:len(prompt)]:
        label.set_color(GREY)
    own = ["" if matched[i] else shown_piece(token_text(text, text.of_draft(draft, "token")[i])) for i in part]
    axis.set_xticks(part, own, rotation=90, fontsize=7, color=MISMATCH)
    if prompt:
        axis.axvspan(before[0] - 0.5, before[-1] + 0.5, color="#EEEEEE", zorder=0, label="the prompt's end")


def rounds_along_text(inputs, choice):
    drawings = []
    for source in inputs.of("trace"):
        rounds = given.rounds_of_text(source.data, choice.text)
        if any(x is not None for row in rounds for x in row.get("entropies_nats") or []):
            drawings.append(Drawing(source.label, *draw_rounds_along_text(source, rounds)))
    return drawings


def draw_rounds_along_text(source, rounds):
    first = next(row["position"] for row in rounds if any(x is not None for x in row.get("entropies_nats") or []))
    rounds = [row for row in rounds if first <= row["position"] < first + 3 * PLACES_A_ROW]
    drafted = [(row["position"] - first + i, x, "accepted" if i < row["accepted"] else
                "rejected" if i == row["accepted"] else "after a rejected one")
               for row in rounds for i, x in enumerate(row.get("entropies_nats") or []) if x is not None]
    last = max(place for place, _, _ in drafted)
    n_rows = last // PLACES_A_ROW + 1
    figure, axes = panels(n_rows, height=2.0 if n_rows > 1 else 2.8, sharey=True)
    for number, axis in enumerate(axes[:, 0]):
        begin, end = number * PLACES_A_ROW, (number + 1) * PLACES_A_ROW
        for row in rounds:
            at = row["position"] - first
            if begin <= at < end:
                axis.axvline(at - 0.5, color="#AAAAAA", linewidth=0.6)
        for kind, tint, shape, fill in (("accepted", MATCH, "o", MATCH), ("rejected", MISMATCH, "D", "white"),
                                        ("after a rejected one", GREY, "x", GREY)):
            at = [(place, x) for place, x, was in drafted if was == kind and begin <= place < end]
            axis.plot([place for place, _ in at], [x for _, x in at], shape, color=tint, markerfacecolor=fill,
                      markersize=4.5, label=f"drafted token, {kind}")
        axis.set_xlim(begin - 0.7, end - 0.3)
        axis.set_ylabel("entropy, nats")
    axes[-1, 0].set_xlabel("position in the text, from the first drafted token (a line: a round begins)")
    legend_below(figure, axes, 3)
    return figure, f"text {rounds[0]['id']!r} of {source.label}, {len(rounds)} rounds from the first that drafted"


# ---- distributions ----

def bins_of(*columns):
    top = max((float(np.max(column[np.isfinite(column)], initial=0)) for column in columns), default=1.0)
    return np.linspace(0, max(math.ceil(top * 2) / 2, 0.5), 41)


def separation(scores, matched):
    """How often the score of a mismatch is above that of a match, ties half: the area under the ROC curve."""
    matches, mismatches = int(matched.sum()), int((~matched).sum())
    if not matches or not mismatches:
        return math.nan
    order = np.argsort(scores, kind="stable")
    _, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    return (ranks[~matched].sum() - mismatches * (mismatches + 1) / 2) / (matches * mismatches)


def measures_of(recording, draft):
    """Of all draft places: which match, and the three numbers that may tell."""
    matched = np.concatenate([text.matches(draft) for text in recording.texts])
    target = np.concatenate([text.columns["target_entropy"][:len(text.of_draft(draft, "token"))]
                             for text in recording.texts])
    return matched, {"draft's entropy": recording.each_place(draft, "entropy"), "target's entropy": target,
                    "cross-entropy": recording.each_place(draft, "cross_entropy")}


def entropy_histograms(inputs, choice):
    drawings = []
    for source, draft in each_draft(inputs, choice):
        matched, measures = measures_of(source.data, draft)
        if len(matched) == 0:
            continue
        figure, axes = panels(1, 3, sharey=True)
        edges = bins_of(*measures.values())
        for axis, (name, values) in zip(axes[0], measures.items()):
            for kind, tint, hatch, label in ((matched, MATCH, "", "matches"),
                                             (~matched, MISMATCH, "////", "mismatches")):
                axis.hist(values[kind], edges, histtype="stepfilled", facecolor=tint if not hatch else "none",
                          edgecolor=tint, alpha=0.6 if not hatch else 1, hatch=hatch, linewidth=1.2,
                          label=f"{label} ({int(kind.sum())})")
            ordered = separation(values, matched)
            axis.set_title(name if math.isnan(ordered) else f"{name} (AUC {ordered:.2f})")
            axis.set_xlabel(f"{name}, nats")
        axes[0, 0].set_ylabel("positions")
        axes[0, 0].margins(y=0.08)
        legend_below(figure, axes)
        drawings.append(Drawing(file_part(source, draft), figure, draft_name(source, draft)))
    return drawings


def overlaid_histograms(inputs, choice):
    chosen = each_draft(inputs, choice)
    if len({source.path for source, _ in chosen}) < 2:
        return []
    data = [(source, draft, *measures_of(source.data, draft)) for source, draft in chosen]
    edges = bins_of(*(measures["draft's entropy"] for _, _, _, measures in data))
    figure, axes = panels(1, 2, sharex=True)
    for index, (source, draft, matched, measures) in enumerate(data):
        entropy = measures["draft's entropy"]
        for axis, kind in zip(axes[0], (matched, ~matched)):
            axis.hist(entropy[kind], edges, weights=np.full(int(kind.sum()), 100 / max(len(matched), 1)),
                      histtype="step", color=colour(index), linestyle=line(index), linewidth=1.6,
                      label=f"{draft_name(source, draft)}: {100 * matched.mean() if len(matched) else 0:.1f} % match")
    for axis, title in zip(axes[0], ("matches", "mismatches")):
        axis.set_title(title)
        axis.set_xlabel("draft's entropy, nats")
        axis.set_ylabel("share of all positions, %")
    legend_below(figure, axes, 2)
    return [Drawing("all", figure, "")]


# ---- calibration ----

def fit_logistic(entropy, matched):
    """(a, b) of P = 1 / (1 + exp(-(a + b sqrt(entropy)))), by Newton's steps on the likelihood; a trace of a ridge
    keeps them finite where matches and mismatches can be parted exactly."""
    design = np.column_stack([np.ones(len(entropy)), np.sqrt(np.maximum(entropy, 0))])
    weights = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (matched - chance) - RIDGE * len(entropy) * weights
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + RIDGE * len(entropy) * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def wilson(n_accepted, n):
    """95 % interval of a share of n (Wilson's)."""
    share, z2 = n_accepted / n, Z95 * Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * np.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return np.maximum(middle - half, 0), np.minimum(middle + half, 1)


def equal_bins(entropy, matched):
    """Mean entropy, number of matches and of places in bins of equal counts, in order of entropy."""
    n_bins = int(np.clip(len(entropy) // LEAST_IN_BIN, 1, MOST_BINS))
    parts = np.array_split(np.argsort(entropy, kind="stable"), n_bins)
    return (np.array([entropy[part].mean() for part in parts]), np.array([matched[part].sum() for part in parts]),
            np.array([len(part) for part in parts]))


def verified_of(rounds):
    """(entropy, accepted) of the tokens of a trace that were verified: up to the first refused one of each round."""
    verified = [(x, i < row["accepted"]) for row in rounds
              for i, x in enumerate((row.get("entropies_nats") or [])[:row["accepted"] + 1]) if x is not None]
    return np.array([x for x, _ in verified]), np.array([was for _, was in verified], dtype=bool)


def calibration(inputs, choice):
    curves = []
    for source, draft in each_draft(inputs, choice):
        matched, measures = measures_of(source.data, draft)
        curves.append((draft_name(source, draft), measures["draft's entropy"], matched))
    for source in inputs.of("trace"):
        entropy, matched = verified_of(source.data)
        curves.append((f"{shortened(source.label, 40)}, verified tokens", entropy, matched))
    curves = [(label, entropy[known], matched[known]) for label, entropy, matched in curves
              for known in [np.isfinite(entropy)] if known.any()]
    if not curves:
        return []
    figure, axes = panels(height=4.6)
    axis, handles, labels, last = axes[0, 0], [], [], 0.0
    for index, (label, entropy, matched) in enumerate(curves):
        middle, n_accepted, counts = equal_bins(entropy, matched)
        low, high = wilson(n_accepted, counts)
        share = n_accepted / counts
        constant, slope = fit_logistic(entropy, matched)
        marks = axis.errorbar(middle, share, np.maximum([share - low, high - share], 0), fmt=mark(index),
                              color=colour(index), markersize=4.5, linewidth=1, capsize=2)
        grid = np.linspace(0, np.sqrt(entropy.max()), 200) ** 2
        curve, = axis.plot(grid, 1 / (1 + np.exp(-(constant + slope * np.sqrt(grid)))), color=colour(index),
                           linestyle=line(index), linewidth=1.3)
        handles.append((marks, curve))
        labels.append(f"{label}: {len(entropy)} tokens, z = {constant:.2f} {'-' if slope < 0 else '+'} "
                      f"{abs(slope):.2f} √x")
        last = max(last, middle[-1])
    axis.set_xlabel("draft's entropy x, nats")
    axis.set_ylabel("acceptance rate")
    axis.set_ylim(-0.02, 1.02)
    axis.set_xlim(-0.05, 1.15 * last + 0.1)
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(labels) > 1 else 1)
    return [Drawing("all", figure, "")]


def match_by_run(inputs, choice):
    """How long a draft would run before its first mismatch, from every place of every text."""
    chosen = each_draft(inputs, choice)
    if not chosen:
        return []
    figure, axes = panels(height=3.8)
    axis = axes[0, 0]
    for index, (source, draft) in enumerate(chosen):
        cap = int(source.data.header.get("max_draft_tokens", 15))
        share = shares_of_lengths([text.matches(draft) for text in source.data.texts], cap)
        if len(share) == 0:
            continue
        axis.plot(np.arange(1, len(share) + 1), 100 * share, color=colour(index), linestyle=line(index),
                  marker=mark(index), markersize=4,
                  label=f"{draft_name(source, draft)}: mean {share.sum():.2f} of at most {len(share)} tokens")
    axis.set_xlabel("drafted tokens k")
    axis.set_ylabel("positions from which all k are accepted, %")
    axis.set_ylim(0, 100)
    integers(axis)
    legend_below(figure, axes, 2)
    return [Drawing("all", figure, "")]


def shares_of_lengths(texts, cap):
    """For 1 to `cap` tokens: of the places that have so many places of their text before its end, the share from which
    all of them are accepted. `texts`: of each, which places are matches. Ends with the longest text."""
    longest = min(cap, max((len(matched) for matched in texts), default=0))
    places, standing = np.zeros(longest), np.zeros(longest)
    for matched in texts:
        run = 0
        runs = []  # matches in a row from each place on, from the end
        for match in matched[::-1]:
            run = run + 1 if match else 0
            runs.append(run)
        for length in range(1, min(longest, len(matched)) + 1):
            places[length - 1] += len(matched) - length + 1
            standing[length - 1] += np.count_nonzero(np.array(runs[length - 1:]) >= length)
    return standing / places


RECORD = "entrodraft record --target DIR --draft DIR --input FILE --output FILE"
TRACE = "entrodraft generate ... --trace FILE"

PLOTS = [
    Plot("entropy-along-text", "Entropy along a text",
         "Every new token of a text, with the entropy of the draft at its position; the mark says whether the draft's own "
         "token there is the target's, and below it is named where it is another. Beside it the target's entropy and the "
         "cross-entropy of the two. The end of the prompt is grey. "
         "In the tokens a dot is a space, ↵ the end of a line. --text chooses the text.", RECORD, entropy_along_text),
    Plot("rounds-along-text", "Rounds along a text",
         "What was drafted in a run, at its place in the text: each mark is a drafted token. Places at which a "
         "token was rejected come again in the next round. --text chooses the text.", TRACE, rounds_along_text),
    Plot("entropy-histograms", "Entropy of matches and mismatches",
         "How many places have which entropy, apart for those where the draft's token is the target's and where it "
         "is not. The less the two overlap, the more a threshold can do. AUC, the area under the ROC curve, is how often, of "
         "a match and a mismatch picked at random, the mismatch has the higher value: 0.5 is no help at all.",
         RECORD, entropy_histograms),
    Plot("overlaid-histograms", "Recordings beside each other, such as with and without the repetition ban",
         "The same histograms of several recordings, each as a share of its own places, so that recordings of "
         "different lengths compare.", RECORD + ", once with --no-repeat-ngram-size N and once without",
         overlaid_histograms),
    Plot("calibration", "Calibration: acceptance rate over entropy",
         "Tokens in order of entropy, in bins of equal counts: the share that was accepted, with its 95 % interval "
         "(Wilson). The curve is the logistic function 1 / (1 + exp(-z)) that fits best, with z linear in √x. Of a "
         "trace only verified tokens count, which are those that the run's own stop rule let through.",
         f"{RECORD}; or {TRACE}", calibration),
    Plot("runs-before-mismatch", "How far a draft gets",
         "From each place of each text: how often the next 1, 2, 3, ... tokens of the draft would all be accepted. For "
         "each number only places count that have so many places of their text before them, so that ends of texts "
         "favour no number; the line stops at what the longest text can hold.", RECORD, match_by_run),
]
