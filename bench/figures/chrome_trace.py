"""Rounds as a trace that Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev) open: time lines as they are, and
events made from the times in traces of rounds, which know no ranks."""


def merged(sources):
    """One Chrome trace of all sources of kind timeline and trace; every file gets process numbers of its own."""
    events, next_process = [], 0
    for source in sources:
        made = source.data["traceEvents"] if source.kind == "timeline" else events_of_rounds(source)
        numbers = {}
        for event in made:
            if "pid" in event:
                number = numbers.setdefault(event["pid"], next_process + len(numbers))
                event = {**event, "pid": number}
            events.append(event)
        named = {event.get("pid") for event in events if event["ph"] == "M" and event.get("name") == "process_name"}
        for replica, number in numbers.items():
            if number not in named:
                name = source.label if source.kind == "trace" else f"{source.label}, replica {replica}"
                events.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}})
        next_process += len(numbers)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def events_of_rounds(source):
    """Drafting and the target's pass of each round, one after the other. Lines of one round number that follow each
    other are one batch: their texts lie side by side, a row each, and the pass begins when all have drafted."""
    events, now = [], 0.0
    for batch in batches_of(source.data):
        drafting = 1e3 * max(row.get("draft_ms") or 0 for row in batch)
        scoring = 1e3 * max(row.get("target_ms") or 0 for row in batch)
        for lane, row in enumerate(batch):
            facts = {"round": row["round"], "text": row["id"], "drafted": len(row["drafted"]),
                     "accepted": row["accepted"], "draft_end": row.get("draft_end")}
            for name, begin, length in (("draft", now, 1e3 * (row.get("draft_ms") or 0)),
                                        ("score", now + drafting, 1e3 * (row.get("target_ms") or 0))):
                events.append({"ph": "X", "name": name, "ts": round(begin, 3), "dur": round(length, 3), "pid": 0,
                               "tid": lane, "args": facts})
        now += drafting + scoring
    return events


def batches_of(rounds):
    batches = []
    for row in rounds:
        same = batches and batches[-1][-1]["round"] == row["round"]
        if same and all(row["id"] != other["id"] for other in batches[-1]):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
