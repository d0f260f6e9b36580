// Replays recorded rounds in the page that explore.py writes, under whatever rule its reader chooses.
//
// First pure functions: reading the recording (docs/formats.md), stop rules (spec/stop), rounds (spec/replay/simulate.cpp)
// and costs (spec/protocol/stats.cpp). Their counts are those of `entrodraft simulate`; tests/bench/explore_test.py holds them to it.
// Then the view. Entropies and probabilities are 32-bit floats in double arithmetic, as in C++.
"use strict";

// ---- the recording ----

async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Its fields, and its columns by name as Int32Array or Float32Array.
function unpackBlock(raw) {
    const size = new DataView(raw.buffer, raw.byteOffset).getUint32(0, true);
    const fields = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + size)));
    const columns = {};
    let at = 4 + size;
    for (const {name, type, count} of fields.columns ?? []) {
        const bytes = new Uint8Array(4 * count);
        for (let plane = 0; plane < 4; ++plane)
            for (let i = 0; i < count; ++i) bytes[4 * i + plane] = raw[at++];
        columns[name] = type === "i32" ? new Int32Array(bytes.buffer) : new Float32Array(bytes.buffer);
    }
    return {fields, columns};
}

// One draft along a text, with where each position's own continuation begins and how long it is.
function draftOf(columns, number, token, isHead) {
    const column = (name) => columns[`draft.${number}.${name}`];
    const draft = {
        token: column("token"), entropy: column("entropy"), probability: column("probability"), isHead,
        astray: {token: column("astray_token"), entropy: column("astray_entropy"), probability: column("astray_probability")},
    };
    const lengths = column("astray_length");
    draft.chainBegin = new Int32Array(draft.token.length);
    draft.chainLength = new Int32Array(draft.token.length);
    for (let place = 0, chain = 0, begin = 0; place < draft.token.length; ++place) {
        if (!isHead && draft.token[place] === token[place]) continue;
        draft.chainBegin[place] = begin;
        draft.chainLength[place] = lengths[chain++];
        begin += draft.chainLength[place];
    }
    return draft;
}

// {head, texts} of the bytes of a recording.
async function readRecording(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const blocks = [];
    for (let at = 0; at < bytes.length;) {
        const end = at + 12 + view.getUint32(at + 4, true);
        blocks.push(unpackBlock(await inflate(bytes.subarray(at + 12, end))));
        at = end;
    }
    const head = blocks.shift().fields;
    const texts = blocks.map(({fields, columns}) => ({
        ...fields, token: columns.token, target_entropy: columns.target_entropy,
        drafts: head.drafts.map((model, i) => draftOf(columns, i, columns.token, "head_tokens" in model)),
    }));
    return {head, texts};
}

// ---- stop rules ----

const MAX_DRAFT_TOKENS = 127; // of a packet: what a persistent heuristic may grow to

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const lastOf = (list) => list[list.length - 1];

// The square of the last entropy, and the sum over up to n tokens before it, unknown ones left out.
function squares(seen, n) {
    const before = Math.min(n, seen.length - 1);
    let earlier = 0;
    for (let t = seen.length - 1 - before; t < seen.length - 1; ++t) {
        const square = seen[t].entropy * seen[t].entropy;
        if (!Number.isNaN(square)) earlier += square;
    }
    return {latest: lastOf(seen).entropy * lastOf(seen).entropy, earlier, before};
}

// k tokens; k grows after rounds in which all were accepted and shrinks after others, unless `growth` is 0.
function draftLength(first, cap, growth, persistent = false) {
    const start = Math.min(first, cap);
    let k = start;
    return {
        beginText() {
            if (!persistent) k = start;
        },
        fires: (seen) => seen.length >= k,
        endRound({drafted, accepted, cutShort}) {
            if (persistent && cutShort) k = Math.max(1, k - 1);
            if (growth === 0 || cutShort || drafted === 0) return;
            k = clamp(accepted === drafted ? k + growth : k - 1, 1, persistent ? MAX_DRAFT_TOKENS : cap);
        },
    };
}

function adaedl(gamma) {
    let lambda, rate;
    return {
        beginText() {
            lambda = 0.6;
            rate = 0;
        },
        fires: (seen) => 1 - Math.sqrt(gamma * lastOf(seen).entropy) < lambda,
        endRound({drafted, accepted, cutShort}) {
            if (cutShort || drafted === 0) return;
            rate = 0.5 * rate + ((1 - 0.5) * accepted) / drafted;
            lambda = 0.9 * lambda + (1 - 0.9) * (lambda + (rate <= 0.9 ? 0.01 : -0.01));
        },
    };
}

// Of the last token being accepted. A weight of 0 makes what is not finite nothing.
function discoChance(weights, seen) {
    const {entropy, probability} = lastOf(seen);
    const features = [1, -Math.sqrt(entropy), Math.log(probability), -(seen.length - 1)];
    return 1 / (1 + Math.exp(-weights.reduce((sum, weight, i) => sum + (weight === 0 ? 0 : weight * features[i]), 0)));
}

// `key`: the program's. `value` is its default; `min`, `max` and `step` are the slider's; without max, the cap.
const lookBack = {key: "window", label: "window", unit: "tokens", value: 7, min: 1, max: 20, step: 1};
const nTokens = (value, label) => ({key: "tokens", label, unit: "tokens", value, min: 1, max: null, step: 1});
const threshold = (value, max, step, unit) => ({key: "threshold", label: "threshold", unit, value, min: 0, max, step});
const weight = (key, value) => ({key, label: `weight: ${key}`, value, min: 0, max: 6, step: 0.05});
const stateless = (fires) => ({beginText() {}, fires, endRound() {}});

// By name, as the program has them. `make` takes the parameters' values and the cap. `drops`: it takes the switch drop.
const RULES = {
    "static": {
        formula: "entropy ≥ threshold", drops: true,
        parameters: [threshold(0.75, 8, 0.05, "nats")],
        make: ([tau]) => stateless((seen) => Math.abs(lastOf(seen).entropy) >= tau),
    },
    "moving-average": {
        formula: "entropy² ≥ factor × mean of entropy² over the window before, from the second token", drops: true,
        parameters: [{key: "factor", label: "factor", value: 0.3, min: 0.05, max: 4, step: 0.05}, lookBack],
        make: ([factor, n]) => stateless((seen) => {
            const {latest, earlier, before} = squares(seen, n);
            return before > 0 && latest >= (factor * earlier) / before;
        }),
    },
    "cumulative": {
        formula: "sum of entropy² over the token and the window before ≥ threshold", drops: true,
        parameters: [threshold(1, 60, 0.5, "nats²"), lookBack],
        make: ([tau, n]) => stateless((seen) => {
            const {latest, earlier} = squares(seen, n);
            return earlier + latest >= tau;
        }),
    },
    "constant": {
        formula: "K tokens", drops: false,
        parameters: [nTokens(5, "K")],
        make: ([k], cap) => draftLength(k, cap, 0),
    },
    "heuristic": {
        formula: "K tokens; K + 2 after full acceptance, else K - 1", drops: false,
        parameters: [nTokens(5, "first K"),
                     {key: "persistent", label: "K goes on from text to text", value: 0, isSwitch: true}],
        make: ([k, persistent], cap) => draftLength(k, cap, 2, persistent !== 0),
    },
    "adaptive": {
        formula: "K tokens; K + 1 after full acceptance, else K - 1", drops: false,
        parameters: [nTokens(3, "first K")],
        make: ([k], cap) => draftLength(k, cap, 1),
    },
    "confidence": {
        formula: "probability of the token < threshold", drops: true,
        parameters: [threshold(0.7, 1, 0.01)],
        make: ([least]) => stateless((seen) => lastOf(seen).probability < least),
    },
    "svip": {
        formula: "√(0.15 × entropy) > threshold", drops: true,
        parameters: [threshold(0.3, 1.5, 0.01)],
        make: ([h]) => stateless((seen) => Math.sqrt(0.15 * lastOf(seen).entropy) > h),
    },
    "adaedl": {
        formula: "1 - √(gamma × entropy) < lambda, which follows acceptance", drops: true,
        parameters: [{key: "gamma", label: "gamma", value: 0.2, min: 0.005, max: 0.5, step: 0.005}],
        make: ([gamma]) => adaedl(gamma),
    },
    "disco": {
        formula: "1 / (1 + exp(-(bias - entropy weight × √entropy + probability weight × log probability - position weight × " +
            "tokens before))) < threshold", drops: true,
        parameters: [threshold(0.3, 1, 0.01), weight("bias", 1.4), weight("entropy", 0.1), weight("probability", 0.4),
                     weight("position", 0.5)],
        make: ([h, ...weights]) => stateless((seen) => discoChance(weights, seen) < h),
    },
};

// ---- rounds ----
//
// A setting is {kind, draft, rule, values, maxTokens, minTokens, dropStopToken}; kind is "rule", "oracle" (drafts what costs
// least, knowing the text) or "plain" (drafts nothing). A round is {place, tokens, passes, end, accepted}.

// As --stop-rule and --rules take it.
function nameOf({rule, values, minTokens, dropStopToken}) {
    const given = RULES[rule].parameters.map(({key, isSwitch}, i) => (!isSwitch ? `${key}=${values[i]}` : values[i] ? key : ""));
    const limits = [minTokens > 1 ? `min=${minTokens}` : "", dropStopToken && RULES[rule].drops ? "drop" : ""];
    return [rule, ...given, ...limits].filter(Boolean).join(":");
}

// Most tokens that the draft reads of a text of so many, drafted ones with them.
function contextOf(model, known) {
    return model.head_tokens > 0 ? Math.min(model.context, known - 1 + model.head_tokens) : model.context;
}

// What the draft proposes at `at`, which follows its token of place `last`: along the text while it agrees with it,
// then along its own continuation; a head continues from where the round began. [proposal, the new last].
function proposed(draft, text, last, at) {
    if (last === null || (!draft.isHead && draft.token[last] === text.token[last])) {
        if (at >= draft.token.length) throw new Error(`place ${at} is not recorded`);
        return [{token: draft.token[at], entropy: draft.entropy[at], probability: draft.probability[at]}, at];
    }
    const step = at - last - 1, i = draft.chainBegin[last] + step;
    if (step >= draft.chainLength[last]) throw new Error(`the continuation of place ${last} is too short`);
    const {token, entropy, probability} = draft.astray;
    return [{token: token[i], entropy: entropy[i], probability: probability[i]}, last];
}

// `wanted`: how many tokens the oracle drafts.
function draftRound(head, text, setting, rule, place, wanted) {
    const draft = text.drafts[setting.draft], known = text.prompt_tokens + place;
    const left = Math.min(text.max_new_tokens - place, head.max_positions - known) - 1;
    const budget = Math.min(setting.maxTokens, left);
    const most = clamp(contextOf(head.drafts[setting.draft], known) - known + 1, 0, Math.max(budget, 0));
    const round = {place, tokens: [], passes: 0, end: null, accepted: 0};
    if (most === 0) round.end = budget <= 0 ? "budget" : "context";
    const whyEnd = () => {
        if (!text.ignore_eos && head.eos_token_ids.includes(lastOf(round.tokens).token)) return "end_of_text";
        const drafted = round.tokens.length;
        if (drafted < most) return null;
        return drafted < budget ? "context" : drafted < left ? "cap" : "budget";
    };
    const isOracle = setting.kind === "oracle", drops = !isOracle && setting.dropStopToken && RULES[setting.rule].drops;
    const seen = [];
    let last = null, next;
    for (let at = place; round.end === null; ++at) {
        if (isOracle && (round.tokens.length >= wanted || at >= draft.token.length)) break;
        [next, last] = proposed(draft, text, last, at);
        ++round.passes;
        if (next.token < 0) {
            round.end = "no_match";
            break;
        }
        if (isOracle) {
            round.tokens.push(next);
            round.end = whyEnd();
            continue;
        }
        seen.push(next);
        const fired = rule.fires(seen) && seen.length >= setting.minTokens;
        if (!fired || !drops) round.tokens.push(next);
        round.end = fired ? "rule" : seen.length >= setting.maxTokens ? "cap" : whyEnd();
    }
    return round;
}

function acceptedOf(text, {place, tokens}) {
    const rejected = tokens.findIndex(({token}, i) => token !== text.token[place + i]);
    return rejected < 0 ? tokens.length : rejected;
}

// The bound on all chains: how many tokens the round that begins at each place drafts, so that this round and those after
// it cost least (spec/replay/chain_bound.h).
function cheapestDrafts(head, text, setting) {
    const costs = head.costs[setting.draft], first = costs.t_first_draft_ms ?? costs.t_draft_ms;
    const drafts = new Array(text.new_tokens), rest = new Array(text.new_tokens + 1).fill(Infinity);
    rest[text.new_tokens] = 0;
    for (let place = text.new_tokens - 1; place >= 0; --place) {
        const round = draftRound(head, text, setting, null, place, setting.maxTokens), accepted = acceptedOf(text, round);
        for (let drafted = 0; drafted <= round.tokens.length; ++drafted) {
            const drafting = drafted > 0 ? first + (drafted - 1) * costs.t_draft_ms : 0;
            const next = Math.min(place + Math.min(drafted, accepted) + 1, text.new_tokens);
            const ms = drafting + targetMs(costs, drafted + 1) + (costs.t_round_ms ?? 0) + rest[next];
            if (ms < rest[place] * (1 - 1e-12)) [rest[place], drafts[place]] = [ms, drafted];
        }
    }
    return drafts;
}

function replayText(head, text, setting, rule) {
    const rounds = [], planned = setting.kind === "oracle" ? cheapestDrafts(head, text, setting) : null;
    rule?.beginText();
    for (let place = 0; place < text.new_tokens;) {
        const round = setting.kind === "plain" ? {place, tokens: [], passes: 0, accepted: 0}
                                               : draftRound(head, text, setting, rule, place, planned?.[place]);
        const {tokens} = round;
        round.accepted = acceptedOf(text, round);
        const cutShort = ["budget", "context", "end_of_text"].includes(round.end);
        rule?.endRound({drafted: tokens.length, accepted: round.accepted, cutShort});
        rounds.push(round);
        place += round.accepted + 1;
    }
    return rounds;
}

// Rounds of each text, in their order, and the counts of all of them.
function replay({head, texts}, setting) {
    const rule = setting.kind === "rule" ? RULES[setting.rule].make(setting.values, setting.maxTokens) : null;
    const counts = {new_tokens: 0, target_passes: 0, drafted: 0, accepted: 0, draft_passes: 0, drafting_rounds: 0,
                    passes_of_rows: []};
    const rounds = texts.map((text) => replayText(head, text, setting, rule));
    texts.forEach((text, i) => {
        counts.new_tokens += text.new_tokens;
        for (const round of rounds[i]) {
            const rows = round.tokens.length + 1;
            ++counts.target_passes;
            counts.drafted += round.tokens.length;
            counts.accepted += round.accepted;
            counts.draft_passes += round.passes;
            counts.drafting_rounds += round.passes > 0 ? 1 : 0;
            counts.passes_of_rows[rows] = (counts.passes_of_rows[rows] ?? 0) + 1;
        }
    });
    return {rounds, counts};
}

// ---- costs ----

// Of a target pass over so many rows: linear between those that were measured, held at the ends.
function targetMs(costs, rows) {
    const measured = costs.t_target_ms, wanted = Math.min(rows, measured.length) - 1;
    let below = wanted, above = wanted;
    while (below > 0 && measured[below] === null) --below;
    while (above + 1 < measured.length && measured[above] === null) ++above;
    if (above === below || measured[above] === null) return measured[below];
    return measured[below] + ((measured[above] - measured[below]) * (wanted - below)) / (above - below);
}

// Milliseconds a token, and the speed-up over plain decoding.
function timesOf(counts, costs) {
    const ofRound = costs.t_round_ms ?? 0;
    let ms = counts.drafting_rounds * (costs.t_first_draft_ms ?? costs.t_draft_ms) +
             (counts.draft_passes - counts.drafting_rounds) * costs.t_draft_ms + counts.target_passes * ofRound;
    counts.passes_of_rows.forEach((passes, rows) => ms += passes * targetMs(costs, rows));
    return {msPerToken: ms / counts.new_tokens, speedup: (counts.new_tokens * (targetMs(costs, 1) + ofRound)) / ms};
}

// ---- the view ----

const byId = (id) => document.getElementById(id);
const figure = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits) : "-");

// An element with attributes and children, which are elements or text.
function element(name, attributes = {}, children = [], space = "http://www.w3.org/1999/xhtml") {
    const made = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...[children].flat());
    return made;
}
const shape = (name, attributes, children) => element(name, attributes, children, "http://www.w3.org/2000/svg");
const hidden = (text) => element("span", {class: "hidden"}, text);

function fillTable(table, heads, rows) {
    const line = ([first, ...others], scope, name) => element("tr", {}, [
        element("th", {scope}, String(first)),
        ...others.map((each) => element(name, name === "th" ? {scope} : {}, String(each)))]);
    table.replaceChildren(element("caption", {}, table.dataset.caption), element("thead", {}, line(heads, "col", "th")),
                          element("tbody", {}, rows.map((row) => line(row, "row", "td"))));
}

// `lines`: {points: [[x, y]], class}, a single point as a dot; `rules`: upright lines; `below`: squares under the x axis.
function drawChart(into, {label, width, height, x, y, lines, rules = [], below = []}) {
    const left = 40, right = width - 12, top = 10, bottom = height - 44;
    const xOf = (value) => left + ((value - x.from) / (x.to - x.from || 1)) * (right - left);
    const yOf = (value) => bottom - ((value - y.from) / (y.to - y.from || 1)) * (bottom - top);
    const text = (at, words, anchor) => shape("text", {x: at[0], y: at[1], "text-anchor": anchor}, words);
    const parts = [];
    for (const value of ticks(y.from, y.to, 5)) {
        parts.push(shape("line", {class: "grid", x1: left, x2: right, y1: yOf(value), y2: yOf(value)}));
        parts.push(text([left - 6, yOf(value) + 4], String(value), "end"));
    }
    for (const value of ticks(x.from, x.to, Math.max(2, Math.floor(width / 80))))
        parts.push(text([xOf(value), bottom + 26], String(value), "middle"));
    parts.push(text([(left + right) / 2, bottom + 41], x.name, "middle"));
    for (const rule of rules)
        parts.push(shape("line", {class: rule.class, x1: xOf(rule.x), x2: xOf(rule.x), y1: top, y2: bottom}));
    for (const each of below)
        parts.push(shape("rect", {class: each.class, x: xOf(each.x) - 2, y: bottom + 5, width: 4, height: 5}));
    for (const line of lines) {
        const points = line.points.map(([px, py]) => [xOf(px).toFixed(1), yOf(py).toFixed(1)]);
        parts.push(points.length === 1 ? shape("circle", {class: line.class, cx: points[0][0], cy: points[0][1], r: 4})
                                       : shape("polyline", {class: line.class, points: points.join(" ")}));
    }
    into.replaceChildren(shape("svg", {role: "img", "aria-label": label, width, height}, parts));
}

// Round numbers from `from` to `to`, about `n` of them.
function ticks(from, to, n) {
    const rough = (to - from) / n || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
    const values = [];
    for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * step; ++i)
        values.push(Number((i * step).toPrecision(6)));
    return values;
}

class View {
    constructor(recording) {
        this.recording = recording;
        this.page = recording.head.page;
        this.values = {}; // of each rule's parameters
        for (const [name, rule] of Object.entries(RULES)) this.values[name] = rule.parameters.map((each) => each.value);
        this.maxEntropy = recording.texts.reduce((most, text) => {
            for (const list of [text.target_entropy, ...text.drafts.map((draft) => draft.entropy)])
                for (const value of list) if (value > most) most = value;
            return most;
        }, 1);
        this.fillControls();
        byId("explorer").addEventListener("input", (event) => this.onInput(event.target));
        byId("rounds").addEventListener("click", (event) => {
            const token = event.target.closest("[data-place]");
            if (token) this.choosePlace(Number(token.dataset.place));
        });
        for (const id of ["tokens-shown", "sweep-shown"]) byId(id).addEventListener("toggle", () => this.showTables());
        addEventListener("resize", () => this.showCharts());
        this.onRule();
        this.onText();
        this.update();
    }

    fillControls() {
        const {head, texts} = this.recording;
        const option = (value, label) => element("option", {value}, label);
        byId("rule").append(...Object.keys(RULES).map((name) => option(name, name)));
        byId("rule").value = "moving-average";
        byId("text").append(...texts.map((text, i) => option(i, `${JSON.stringify(text.id)}, ${text.new_tokens} tokens`)));
        byId("draft").append(...head.drafts.map((draft, i) => option(i, `${this.page.draft_numbers[i]}: ${draft.model}`)));
        byId("draft").parentElement.hidden = head.drafts.length === 1;
        for (const id of ["max-tokens", "min-tokens"]) byId(id).max = this.recording.head.max_draft_tokens;
        byId("max-tokens").value = Math.min(15, this.recording.head.max_draft_tokens);
    }

    get text() {
        return this.recording.texts[Number(byId("text").value)];
    }
    get setting() {
        const rule = byId("rule").value;
        const whole = (id) => clamp(Math.round(Number(byId(id).value)) || 1, 1, this.recording.head.max_draft_tokens);
        const maxTokens = whole("max-tokens");
        return {kind: "rule", draft: Number(byId("draft").value), rule, values: this.values[rule], maxTokens,
                minTokens: Math.min(whole("min-tokens"), maxTokens),
                dropStopToken: byId("drop").checked && RULES[rule].drops};
    }

    onInput(control) {
        if (control.dataset.parameter !== undefined) {
            const index = Number(control.dataset.parameter);
            const value = control.type === "checkbox" ? Number(control.checked) : Number(control.value);
            const parameter = RULES[byId("rule").value].parameters[index];
            if (control.type === "number" && (control.value === "" || !control.validity.valid)) return;
            this.values[byId("rule").value][index] = parameter.step === 1 ? Math.round(value) : value;
            for (const other of byId("parameters").querySelectorAll(`[data-parameter="${index}"]`))
                if (other !== control && other.type !== "checkbox") other.value = value;
        }
        if (control.id === "rule" || control.id === "max-tokens") this.onRule();
        if (control.id === "text") this.onText();
        if (control.id === "place") return this.choosePlace(Number(control.value) - 1);
        this.update();
    }

    onRule() {
        const {rule, values, maxTokens} = this.setting;
        byId("formula").textContent = RULES[rule].formula;
        byId("drop").disabled = !RULES[rule].drops;
        byId("parameters").replaceChildren(...RULES[rule].parameters.map((parameter, i) => {
            if (parameter.max === null) values[i] = Math.min(values[i], maxTokens);
            return this.controlOf(parameter, i, values[i], maxTokens);
        }));
    }

    // A slider with a field for exact numbers.
    controlOf({label, unit, min, max, step, isSwitch}, i, value, maxTokens) {
        if (isSwitch) {
            const box = element("input", {type: "checkbox", "data-parameter": i});
            box.checked = value !== 0;
            return element("label", {class: "switch"}, [box, ` ${label}`]);
        }
        const name = unit ? `${label}, ${unit}` : label, common = {"data-parameter": i, min, max: max ?? maxTokens, value};
        return element("div", {}, [
            element("label", {for: `parameter-${i}`}, name),
            element("div", {class: "pair"}, [
                element("input", {type: "range", id: `parameter-${i}`, step, ...common}), // the value last: type and step round it
                element("input", {type: "number", "aria-label": `${name}, as a number`, step: step === 1 ? 1 : "any", ...common}),
            ]),
        ]);
    }

    onText() {
        byId("place").max = Math.max(this.text.new_tokens, 1);
        byId("place").value = 1;
        this.place = 0;
    }

    update() {
        const {setting, recording} = this, costs = recording.head.costs[setting.draft];
        try {
            const of = (kind) => {
                const {rounds, counts} = replay(recording, {...setting, kind});
                return {rounds, counts, ...timesOf(counts, costs)};
            };
            const key = `${setting.draft} ${setting.maxTokens}`; // of what the oracle depends on
            if (this.oracleKey !== key) [this.oracleKey, this.oracle, this.plain] = [key, of("oracle"), of("plain")];
            this.chosen = of("rule");
        } catch (error) {
            byId("summary").textContent = `This cannot be replayed: ${error.message}`;
            return;
        }
        this.showFigures();
        this.showText();
        this.sweep();
        this.showCharts();
        this.showTables();
        this.showPlace();
    }

    showFigures() {
        const {setting, chosen, oracle, plain} = this, {counts} = chosen;
        const row = (label, {counts, msPerToken, speedup}) => [
            label, figure(speedup, 3), figure(msPerToken, 4), figure(counts.new_tokens / counts.target_passes), counts.drafted,
            counts.accepted, figure(counts.accepted / counts.drafted, 3), counts.target_passes, counts.draft_passes];
        fillTable(byId("figures"), ["decoding", "speed-up", "ms/token", "tokens/pass", "drafted", "accepted", "accepted/drafted",
                                    "target passes", "draft passes"],
                  [row("this rule", chosen), row("oracle", oracle), row("plain", plain)]);
        byId("command").textContent = this.commandOf(setting);
        clearTimeout(this.telling); // while a slider is dragged nothing is read out
        this.telling = setTimeout(() => {
            byId("summary").textContent =
                `${nameOf(setting)}: speed-up ${figure(chosen.speedup, 3)}, of the oracle ${figure(oracle.speedup, 3)}; ` +
                `${counts.accepted} of ${counts.drafted} drafted tokens accepted in ${counts.target_passes} target passes.`;
        }, 300);
    }

    // What gives the same counts over the whole recording.
    commandOf({draft, maxTokens, ...setting}) {
        const words = ["entrodraft", "simulate", this.page.recording, "--rules", `${nameOf(setting)},oracle`,
                       "--max-draft-tokens", maxTokens];
        if (this.page.n_drafts > 1) words.push("--draft", this.page.draft_numbers[draft]);
        if (this.page.costs) words.push("--costs", this.page.costs);
        const quoted = (word) => (/^[\w.,:/=+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
        return words.map(String).map(quoted).join(" ");
    }

    roundsOfText() {
        return this.chosen.rounds[Number(byId("text").value)];
    }
    pieceOf(token) {
        return this.page.token_texts[token] ?? `⟨${token}⟩`;
    }
    pieceAt(place) {
        return this.text.pieces[place] ?? this.pieceOf(this.text.token[place]);
    }

    showText() {
        byId("prompt").textContent = this.text.prompt;
        byId("rounds").replaceChildren(...this.roundsOfText().map((round, i) => this.roundElement(round, i + 1)));
    }

    // Accepted, rejected and the target's own tokens, each filled from below as high as its entropy.
    roundElement({place, tokens, accepted}, number) {
        const {text} = this, end = Math.min(place + accepted, text.new_tokens), ofTarget = byId("shade").value === "target";
        const token = (tag, kind, piece, entropy, more = {}) => {
            const share = clamp((Number.isFinite(entropy) ? entropy : 0) / this.maxEntropy, 0, 1).toFixed(3);
            return element(tag, {class: `token ${kind}`, style: `--share:${share}`, ...more}, piece.replaceAll("\n", "↵\n"));
        };
        const at = (tag, kind, place, entropy) =>
            token(tag, kind, this.pieceAt(place), ofTarget ? text.target_entropy[place] : entropy, {"data-place": place});
        const parts = [hidden(`Round ${number}, ${accepted} of ${tokens.length} drafted tokens accepted: `)];
        for (let i = place; i < end; ++i) parts.push(at("span", "accepted", i, tokens[i - place].entropy));
        if (byId("rejected").checked && accepted < tokens.length) {
            parts.push(hidden(" rejected: "));
            for (const each of tokens.slice(accepted)) // behind another text the target's entropy is not known
                parts.push(token("s", "rejected", this.pieceOf(each.token), ofTarget ? NaN : each.entropy));
        }
        if (end < text.new_tokens)
            parts.push(hidden(" the target's own: "), at("b", "own", end, text.drafts[this.setting.draft].entropy[end]));
        return element("li", {"data-round": number}, parts);
    }

    choosePlace(place) {
        this.place = clamp(place, 0, this.text.new_tokens - 1);
        byId("place").value = this.place + 1;
        this.showPlace();
        this.showCharts();
    }

    roundAt(place) {
        const rounds = this.roundsOfText(), number = rounds.findLastIndex((round) => round.place <= place);
        return {number: number + 1, isAccepted: place - rounds[number].place < rounds[number].accepted};
    }

    showPlace() {
        for (const each of byId("rounds").querySelectorAll(".chosen")) each.classList.remove("chosen");
        const {text, place} = this, draft = text.drafts[this.setting.draft];
        if (text.new_tokens === 0) return;
        const {number, isAccepted} = this.roundAt(place);
        byId("rounds").querySelector(`[data-place="${place}"]`)?.classList.add("chosen");
        const ofDraft = place >= draft.token.length ? "it is beyond the draft's context" :
            `the draft's ${figure(draft.entropy[place])}, its choice ${JSON.stringify(this.pieceOf(draft.token[place]))} ` +
            `at probability ${figure(draft.probability[place])}`;
        const facts = `Token ${place + 1} of ${text.new_tokens}, ${JSON.stringify(this.pieceAt(place))}, round ${number}, ` +
            `${isAccepted ? "drafted and accepted" : "the target's own"}: ` +
            `the target's entropy is ${figure(text.target_entropy[place])} nats, ${ofDraft}.`;
        if (byId("place-facts").textContent !== facts) byId("place-facts").textContent = facts; // or it would be read out again
    }

    showCharts() {
        if (this.chosen) {
            this.showEntropies();
            this.showSweep();
        }
    }

    showEntropies() {
        const {text, setting} = this, draft = text.drafts[setting.draft], into = byId("entropies"), n = text.new_tokens;
        const rounds = this.roundsOfText();
        const points = (list) =>
            Array.from(list.slice(0, n), (value, i) => [i + 1, value]).filter(([, value]) => Number.isFinite(value));
        const range = (name, list) => {
            const values = points(list).map(([, value]) => value).sort((a, b) => a - b);
            const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
            return `${name} ${figure(values[0])} to ${figure(lastOf(values))}, mean ${figure(mean)} nats`;
        };
        const isAccepted = new Array(n).fill(false);
        for (const round of rounds) isAccepted.fill(true, round.place, Math.min(round.place + round.accepted, n));
        drawChart(into, {
            label: `Entropy along the text, ${n} tokens in ${rounds.length} rounds: ${range("draft", draft.entropy)}; ` +
                `${range("target", text.target_entropy)}. The table below has each token.`,
            width: Math.max(into.clientWidth, n * 7 + 60), height: 240,
            x: {from: 1, to: Math.max(n, 2), name: "token"}, y: {from: 0, to: this.maxEntropy},
            rules: [...rounds.map((round) => ({x: round.place + 0.5, class: "round"})), {x: this.place + 1, class: "chosen"}],
            below: isAccepted.map((accepted, i) => ({x: i + 1, class: accepted ? "accepted" : "own"})),
            lines: [{points: points(text.target_entropy), class: "target"}, {points: points(draft.entropy), class: "draft"}],
        });
    }

    // The speed-up at values of the rule's first parameter, some at a time, so that dragging stays fluent.
    sweep() {
        const {setting, recording} = this, [parameter] = RULES[setting.rule].parameters;
        const others = setting.values.slice(1), key = JSON.stringify({...setting, values: others});
        if (this.sweepKey === key) return;
        this.sweepKey = key;
        this.swept = [];
        const max = parameter.max ?? setting.maxTokens, steps = Math.round((max - parameter.min) / parameter.step);
        const every = Math.max(1, Math.round(steps / 40)), costs = recording.head.costs[setting.draft];
        const values = [];
        for (let i = 0; i <= steps; i += every) values.push(Number((parameter.min + i * parameter.step).toPrecision(6)));
        const some = () => {
            if (this.sweepKey !== key) return;
            const until = performance.now() + 15;
            while (values.length > 0 && performance.now() < until) {
                const value = values.shift(), {counts} = replay(recording, {...setting, values: [value, ...others]});
                this.swept.push([value, timesOf(counts, costs).speedup]);
            }
            if (values.length > 0) setTimeout(some);
            else {
                this.showSweep();
                this.showTables();
            }
        };
        setTimeout(some);
    }

    showSweep() {
        const {setting, chosen, oracle, swept} = this, [parameter] = RULES[setting.rule].parameters, into = byId("sweep");
        if (swept.length === 0 || !Number.isFinite(chosen.speedup)) return;
        const speedups = swept.map(([, speedup]) => speedup), best = swept[speedups.indexOf(Math.max(...speedups))];
        const from = parameter.min, to = parameter.max ?? setting.maxTokens;
        const all = [...speedups, oracle.speedup, chosen.speedup, 1];
        const across = (value) => [[from, value], [to, value]];
        drawChart(into, {
            label: `Speed-up by ${parameter.label}: best ${figure(best[1], 3)} at ${best[0]}; now ` +
                `${figure(chosen.speedup, 3)} at ${setting.values[0]}; the oracle's is ${figure(oracle.speedup, 3)}. ` +
                "The table below has each value.",
            width: Math.max(into.clientWidth, 280), height: 260, x: {from, to, name: `${setting.rule}: ${parameter.label}`},
            y: {from: Math.floor(Math.min(...all) * 10) / 10, to: Math.ceil(Math.max(...all) * 10) / 10},
            lines: [{points: across(1), class: "plain"}, {points: across(oracle.speedup), class: "oracle"},
                    {points: swept, class: "draft"},
                    {points: [[clamp(setting.values[0], from, to), chosen.speedup]], class: "now"}],
        });
    }

    // Of what is open alone.
    showTables() {
        if (byId("tokens-shown").open) {
            const {text} = this, draft = text.drafts[this.setting.draft];
            const rows = Array.from({length: text.new_tokens}, (_, i) => {
                const {number, isAccepted} = this.roundAt(i);
                return [i + 1, JSON.stringify(this.pieceAt(i)), number, isAccepted ? "the draft" : "the target",
                        figure(draft.entropy[i]), figure(text.target_entropy[i])];
            });
            fillTable(byId("tokens"), ["token", "text", "round", "from", "draft's entropy", "target's entropy"], rows);
        }
        if (byId("sweep-shown").open)
            fillTable(byId("speedups"), [RULES[this.setting.rule].parameters[0].label, "speed-up"],
                      this.swept.map(([value, speedup]) => [value, figure(speedup, 3)]));
    }
}

// The recording in the page.
function embedded() {
    return readRecording(Uint8Array.from(atob(byId("recording").textContent.trim()), (letter) => letter.charCodeAt(0)));
}

if (typeof document !== "undefined")
    embedded().then((recording) => {
        byId("explorer").hidden = false;
        new View(recording);
    }).catch((error) => {
        byId("failure").textContent = `The recording in this page cannot be read: ${error.message}`;
        throw error;
    });
