// Tables of published figures and ours: see preset_report.h.
#include "entrodraft/launch/bench/preset_report.h"

#include "entrodraft/launch/bench/theory_table.h"
#include "entrodraft/launch/counted.h"
#include "entrodraft/launch/environment.h"
#include "entrodraft/launch/generate/results.h"
#include "entrodraft/launch/replaced_file.h"
#include "entrodraft/spec/stats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace entrodraft::launch {

namespace {

using Value = std::optional<double>;

struct Column {
    bool of_textbook; // goes into the table of the i.i.d. model
    const char* title;
    const char* json;
    int decimals;
    std::function<Value(const ComparedCase&, const ComparedRow&)> value;
};

// k of a row whose rule is constant.
std::optional<int> constant_of(const ComparedRow& row, const PresetSetting& setting) {
    const auto rule = rule_of(row.published, setting);
    if (!rule || rule->kind != spec::StopRuleKind::constant) return std::nullopt;
    return rule->num_draft_tokens_or_default();
}

// Columns of one published or measured field each, those of published figures first.
std::vector<Column> columns_of(const PresetSetting& setting) {
    const auto published = [](auto field) {
        return [field](const ComparedCase&, const ComparedRow& row) -> Value { return row.published.*field; };
    };
    const auto ours = [](auto field) {
        return [field](const ComparedCase&, const ComparedRow& row) -> Value { return row.ours.*field; };
    };
    const auto level = [](std::size_t i, auto of) {
        return [i, of](const ComparedCase&, const ComparedRow& row) -> Value {
            const std::vector<double>& shares = of(row);
            return i < shares.size() ? Value(shares[i]) : std::nullopt;
        };
    };
    const auto published_levels = [](const ComparedRow& row) -> const std::vector<double>& {
        return row.published.level_shares;
    };
    const auto our_levels = [](const ComparedRow& row) -> const std::vector<double>& { return row.ours.level_shares; };
    const auto share_alpha = [setting](const ComparedCase&, const ComparedRow& row) -> Value {
        const auto k = constant_of(row, setting);
        return k && row.published.accepted_share ? alpha_of_share(*row.published.accepted_share, *k) : std::nullopt;
    };
    const auto iid_of = [setting](const ComparedCase& one, const ComparedRow& row, Value alpha) -> Value {
        const auto k = constant_of(row, setting);
        if (!k || !alpha || !one.preset_case.has_costs()) return std::nullopt;
        return spec::walltime_factor(*alpha, *k, one.preset_case.cost_ratio());
    };
    const auto expected = [](int k) {
        return [k](const ComparedCase&, const ComparedRow& row) -> Value {
            return row.published.alpha ? Value(spec::expected_tokens(*row.published.alpha, k)) : std::nullopt;
        };
    };
    return {
        {false, "published ms/token", "published_ms_per_token", 2, published(&PublishedRow::ms_per_token)},
        {false, "its simulation", "published_simulated_ms_per_token", 2,
         published(&PublishedRow::simulated_ms_per_token)},
        {false, "published speed-up", "published_speedup", 3,
         [](const ComparedCase& one, const ComparedRow& row) {
             return published_speedup(one.preset_case, row.published);
         }},
        {false, "expected there", "published_expected_speedup", 2, published(&PublishedRow::expected_speedup)},
        {false, "published accepted/drafted", "published_accepted_share", 2, published(&PublishedRow::accepted_share)},
        {false, "published of level 2", "published_accepted_share_of_level_2", 2, level(0, published_levels)},
        {false, "published of level 1", "published_accepted_share_of_level_1", 2, level(1, published_levels)},
        {false, "published alpha", "published_alpha", 2, published(&PublishedRow::alpha)},
        {false, "ms/token", "ms_per_token", 4, ours(&OurFigures::ms_per_token)},
        {false, "speed-up", "speedup", 3, ours(&OurFigures::speedup)},
        {false, "accepted/drafted", "accepted_share", 3, ours(&OurFigures::accepted_share)},
        {false, "of level 2", "accepted_share_of_level_2", 3, level(0, our_levels)},
        {false, "of level 1", "accepted_share_of_level_1", 3, level(1, our_levels)},
        {false, "alpha", "alpha", 3, ours(&OurFigures::alpha)},
        {false, "tokens/pass", "tokens_per_pass", 2, ours(&OurFigures::tokens_per_pass)},
        {false, "ms/round", "ms_per_round", 4, ours(&OurFigures::ms_per_round)},
        {false, "simulated in ms", "simulated_in_ms", 2, ours(&OurFigures::milliseconds)},
        {true, "published accepted/drafted put in for alpha", "iid_speedup_of_published_share", 3,
         [iid_of](const ComparedCase& one, const ComparedRow& row) {
             return iid_of(one, row, row.published.accepted_share);
         }},
        {true, "alpha of that share", "iid_alpha_of_published_share", 3, share_alpha},
        {true, "speed-up at published alpha", "iid_speedup_of_published_alpha", 3,
         [iid_of, share_alpha](const ComparedCase& one, const ComparedRow& row) {
             return iid_of(one, row, row.published.alpha ? row.published.alpha : share_alpha(one, row));
         }},
        {true, "speed-up at our alpha", "iid_speedup", 3, ours(&OurFigures::iid_speedup)},
        {true, "tokens/pass at published alpha, k 3", "iid_tokens_per_pass_of_published_alpha_k_3", 2, expected(3)},
        {true, "k 7", "iid_tokens_per_pass_of_published_alpha_k_7", 2, expected(7)},
    };
}

// Rows and columns without any value are left out of the textbook's table, columns alone of the other.
std::string table_of(const ComparedCase& one, const PresetSetting& setting, bool of_textbook) {
    std::vector<std::vector<std::string>> table(one.rows.size() + 1);
    std::vector<bool> has_value(one.rows.size() + 1, !of_textbook);
    table[0].emplace_back(of_textbook ? "i.i.d. textbook" : "setting");
    has_value[0] = true;
    for (std::size_t i = 0; i < one.rows.size(); ++i)
        table[i + 1].push_back(one.rows[i].name);
    for (const Column& column : columns_of(setting)) {
        if (column.of_textbook != of_textbook) continue;
        std::vector<Value> values;
        for (const ComparedRow& row : one.rows)
            values.push_back(column.value(one, row));
        if (std::none_of(values.begin(), values.end(), [](const Value& value) { return value.has_value(); })) continue;
        table[0].emplace_back(column.title);
        for (std::size_t i = 0; i < values.size(); ++i) {
            table[i + 1].push_back(values[i] ? format_number(*values[i], column.decimals) : "-");
            if (values[i]) has_value[i + 1] = true;
        }
    }
    if (of_textbook && table[0].size() == 1) return "";
    std::vector<std::vector<std::string>> shown;
    for (std::size_t i = 0; i < table.size(); ++i)
        if (has_value[i]) shown.push_back(table[i]);
    return (of_textbook ? "\n" : "") + format_table(shown);
}

struct Spread {
    double mean = 0, deviation = 0, p90 = 0, p99 = 0;
};

Spread spread_of(const std::vector<double>& values) {
    Spread spread;
    const auto n = static_cast<double>(values.size());
    spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    for (const double value : values)
        spread.deviation += (value - spread.mean) * (value - spread.mean);
    spread.deviation = n > 1 ? std::sqrt(spread.deviation / (n - 1)) : 0;
    const Quantiles quantiles = quantiles_of(values);
    spread.p90 = quantiles.p90;
    spread.p99 = quantiles.p99;
    return spread;
}

// Of the k + 1 tokens that a round can bring, the share that it brings.
Value filled_share(const ComparedRow& row, const PresetSetting& setting) {
    const auto k = row.published.rule == "none" ? std::optional(0) : constant_of(row, setting);
    if (!k || !row.ours.tokens_per_pass) return std::nullopt;
    return *row.ours.tokens_per_pass / (*k + 1);
}

std::string texts_table(const ComparedCase& one, const PresetSetting& setting) {
    std::vector<std::vector<std::string>> table = {{"ms a text", "mean", "deviation", "P90", "P99", "tokens/(k + 1)"}};
    for (const ComparedRow& row : one.rows) {
        if (row.ours.ms_of_texts.empty()) continue;
        const Spread spread = spread_of(row.ours.ms_of_texts);
        const Value filled = filled_share(row, setting);
        table.push_back({row.name, format_number(spread.mean, 1), format_number(spread.deviation, 1),
                         format_number(spread.p90, 1), format_number(spread.p99, 1),
                         filled ? format_number(*filled, 3) : "-"});
    }
    return table.size() > 1 ? "\n" + format_table(table) : "";
}

std::string lengths_text(const ComparedCase& one) {
    std::string text;
    for (const ComparedRow& row : one.rows) {
        if (row.ours.lengths.empty()) continue;
        text += row.name + ":";
        for (const int length : row.ours.lengths)
            text += " " + std::to_string(length);
        text += "\n";
    }
    return text.empty() ? "" : "\ndrafted tokens, round after round of the first text\n" + text;
}

Json json_of(const ComparedCase& one, const PresetSetting& setting) {
    Json json = {{"case", one.preset_case.name}, {"temperature", one.preset_case.temperature}};
    if (!one.basis.empty()) json["basis"] = one.basis;
    if (!one.costs.empty()) json["costs"] = one.costs;
    if (one.alpha) json["synthetic_alpha"] = *one.alpha;
    const std::vector<Column> columns = columns_of(setting);
    for (const ComparedRow& row : one.rows) {
        Json fields = {{"setting", row.name}, {"rule", row.published.rule}};
        for (const Column& column : columns)
            if (const Value value = column.value(one, row)) fields[column.json] = *value;
        if (!row.ours.lengths.empty()) fields["drafted_of_rounds"] = row.ours.lengths;
        if (!row.ours.ms_of_texts.empty()) {
            const Spread spread = spread_of(row.ours.ms_of_texts);
            fields["ms_of_a_text"] = {
                {"mean", spread.mean}, {"deviation", spread.deviation}, {"p90", spread.p90}, {"p99", spread.p99}};
        }
        json["rows"].push_back(fields);
    }
    return json;
}

// "nucleus 0.8, temperature 1"
std::string title_of(const PresetCase& one) {
    std::string temperature = format_number(one.temperature, 2);
    temperature.erase(temperature.find_last_not_of('0') + 1);
    if (temperature.back() == '.') temperature.pop_back();
    return one.name + ", temperature " + temperature;
}

std::string head_of(const Preset& preset) {
    const PresetSetting& setting = preset.setting;
    std::string text = preset.name + ": " + preset.about + "\n" + preset.source + "\n";
    if (preset.kind == PresetKind::theory) return text;
    text += "at most " + counted(setting.max_new_tokens, "new token");
    if (setting.prompt_tokens > 0) text += " after prompts of " + std::to_string(setting.prompt_tokens);
    text += ", drafts of at most " + std::to_string(setting.max_draft_tokens);
    if (setting.no_repeat_ngram_size > 0)
        text += ", no " + std::to_string(setting.no_repeat_ngram_size) + "-gram twice";
    if (setting.top_p < 1) text += ", top-p " + format_number(setting.top_p, 2) + " where sampled";
    return text + "\n";
}

// ---- theory ----

// The paper's alphas; its draft's operations are 0.05 of the target's.
TheoryPlan theory_plan() {
    TheoryPlan plan;
    plan.alphas = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
    plan.cs = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
    plan.c_operations.assign(plan.cs.size(), 0.05);
    plan.most_tokens = 127;
    return plan;
}

// ---- runs of one pair beside several models ----

// Whether its figures come from a run, which knows the pair that ran and no other; a replay is of the case itself.
bool is_measured(const ComparedCase& one) {
    return !one.alpha && !one.basis.empty();
}

bool share_a_run(const ComparedCase& a, const ComparedCase& b) {
    return is_measured(a) && is_measured(b) && a.preset_case.temperature == b.preset_case.temperature;
}

// The published rows alone.
ComparedCase published_of(const ComparedCase& one) {
    ComparedCase published;
    published.preset_case = one.preset_case;
    for (const PublishedRow& row : one.preset_case.rows)
        published.rows.push_back({name_of(row), row, {}});
    return published;
}

// What ran at the temperature of `one`, in any of the cases that share the run: each setting once, nothing published.
ComparedCase ours_of(const ComparedCase& one, const std::vector<ComparedCase>& cases) {
    ComparedCase ours;
    ours.preset_case.name = "ours";
    ours.preset_case.temperature = one.preset_case.temperature;
    ours.preset_case.cascade = one.preset_case.cascade;
    ours.basis = one.basis;
    for (const ComparedCase& other : cases) {
        if (!share_a_run(one, other)) continue;
        for (const ComparedRow& row : other.rows) {
            const auto is_known = [&](const ComparedRow& each) { return each.name == row.name; };
            if (std::any_of(ours.rows.begin(), ours.rows.end(), is_known)) continue;
            PublishedRow setting;
            setting.rule = row.published.rule;
            setting.label = row.published.label;
            setting.drop_stop_token = row.published.drop_stop_token;
            setting.min_draft_tokens = row.published.min_draft_tokens;
            setting.max_draft_tokens = row.published.max_draft_tokens;
            setting.lenience = row.published.lenience;
            ours.rows.push_back({row.name, setting, row.ours});
        }
    }
    return ours;
}

// Cases as they are shown: one run stands beside several of them by itself, since it says nothing of which published
// model it stands for.
std::vector<ComparedCase> shown_cases(const std::vector<ComparedCase>& cases) {
    std::vector<ComparedCase> shown, runs;
    for (const ComparedCase& one : cases) {
        const auto shares = [&](const ComparedCase& other) { return share_a_run(one, other); };
        if (std::count_if(cases.begin(), cases.end(), shares) < 2) {
            shown.push_back(one);
            continue;
        }
        shown.push_back(published_of(one));
        if (std::none_of(runs.begin(), runs.end(), shares)) runs.push_back(ours_of(one, cases));
    }
    shown.insert(shown.end(), runs.begin(), runs.end());
    return shown;
}

std::string lines_of(const char* title, const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines)
        text += "  " + line + "\n";
    return text.empty() ? "" : "\n" + std::string(title) + "\n" + text;
}

} // namespace

std::string name_of(const PublishedRow& row) {
    std::string name = row.rule;
    if (!row.label.empty()) name += (name.empty() ? "" : ", ") + row.label;
    if (row.lenience < 1) name += ", lenience " + format_number(row.lenience, 1);
    return name;
}

std::optional<double> published_speedup(const PresetCase& preset_case, const PublishedRow& row) {
    if (row.speedup || row.rule == "none") return row.speedup;
    for (const PublishedRow& plain : preset_case.rows)
        if (row.ms_per_token && plain.rule == "none" && plain.ms_per_token)
            return *plain.ms_per_token / *row.ms_per_token;
    return std::nullopt;
}

std::optional<double> alpha_of_share(double accepted_share, int k) {
    const auto share = [k](double alpha) { return (spec::expected_tokens(alpha, k) - 1) / k; };
    if (k < 1 || !(accepted_share >= 0 && accepted_share <= 1)) return std::nullopt;
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
        const double middle = (low + high) / 2;
        (share(middle) < accepted_share ? low : high) = middle;
    }
    return (low + high) / 2;
}

PresetReport report_of(const Preset& preset, const std::vector<ComparedCase>& cases,
                       const std::vector<std::string>& commands) {
    PresetReport report;
    report.json = {{"command", "preset"},
                   {"preset", preset.name},
                   {"kind", to_string(preset.kind)},
                   {"source", preset.source},
                   {"about", preset.about}};
    report.text = head_of(preset) + lines_of("Published:", preset.facts);
    if (preset.kind == PresetKind::theory) {
        report.json["theory"] = theory_json(theory_plan());
        report.text += "\n" + theory_text(theory_plan());
    }
    for (const ComparedCase& one : shown_cases(cases)) {
        report.text +=
            "\n" + title_of(one.preset_case) + "\n" + (one.basis.empty() ? "published only" : one.basis) + "\n";
        if (!one.costs.empty()) report.text += one.costs + "\n";
        report.text += table_of(one, preset.setting, false) + table_of(one, preset.setting, true) +
                       texts_table(one, preset.setting) + lengths_text(one);
        report.json["cases"].push_back(json_of(one, preset.setting));
    }
    report.text += lines_of("Notes:", preset.notes) + lines_of("Commands that measure ours:", commands);
    if (!preset.facts.empty()) report.json["facts"] = preset.facts;
    if (!preset.notes.empty()) report.json["notes"] = preset.notes;
    if (!commands.empty()) report.json["commands"] = commands;
    return report;
}

PresetReport list_of_presets() {
    PresetReport report;
    report.json = Json::array();
    std::size_t width = 0;
    for (const Preset& preset : presets())
        width = std::max(width, preset.name.size());
    for (const Preset& preset : presets()) {
        report.json.push_back({{"preset", preset.name},
                               {"kind", to_string(preset.kind)},
                               {"source", preset.source},
                               {"about", preset.about}});
        report.text += preset.name + std::string(width + 2 - preset.name.size(), ' ') + preset.about + "\n";
    }
    return report;
}

void show(const PresetReport& report, const std::string& output, bool json) {
    if (!output.empty()) replace_file(output, indented(report.json));
    ResultWriter("-", Existing::refuse).write_text(json ? indented(report.json) : report.text);
}

} // namespace entrodraft::launch
