// Published experiments, read from their JSON: see presets.h.
#include "entrodraft/launch/bench/presets.h"

#include "entrodraft/launch/bench/presets_data.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/json_line.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// An object whose fields are all taken, each of the kind it should be.
class Fields {
  public:
    Fields(const Json& json, const std::string& place) : json_(json), place_(place) {
        if (!json.is_object()) fail("is not an object");
    }

    bool has(const char* name) const { return json_.contains(name); }
    std::string text(const char* name, bool required = false) {
        const Json* value = take(name, required);
        if (value == nullptr) return "";
        if (!value->is_string() || value->get<std::string>().empty()) fail(std::string(name) + " must be some text");
        return value->get<std::string>();
    }
    std::optional<double> number(const char* name, double least, double most) {
        const Json* value = take(name, false);
        if (value == nullptr) return std::nullopt;
        const double number = value->is_number() ? value->get<double>() : std::nan("");
        if (!(number >= least && number <= most)) fail(std::string(name) + " must be a number in its range");
        return number;
    }
    int integer(const char* name, int otherwise, int least, int most) {
        const std::optional<double> value = number(name, least, most);
        if (value && *value != std::floor(*value)) fail(std::string(name) + " must be a whole number");
        return value ? static_cast<int>(*value) : otherwise;
    }
    bool is_on(const char* name) {
        const Json* value = take(name, false);
        if (value != nullptr && !value->is_boolean()) fail(std::string(name) + " must be true or false");
        return value != nullptr && value->get<bool>();
    }
    // Empty where there is none.
    const Json& list(const char* name) {
        static const Json none = Json::array();
        const Json* value = take(name, false);
        if (value == nullptr) return none;
        if (!value->is_array() || value->empty()) fail(std::string(name) + " must be a list of something");
        return *value;
    }
    std::vector<std::string> texts(const char* name) {
        std::vector<std::string> all;
        for (const Json& one : list(name)) {
            if (!one.is_string()) fail(std::string(name) + " must be a list of texts");
            all.push_back(one.get<std::string>());
        }
        return all;
    }
    const Json* object(const char* name) { return take(name, false); }
    // To be called when all is taken.
    void finish() const {
        for (const auto& [name, value] : json_.items())
            if (taken_.count(name) == 0) fail("field " + name + " is not known");
    }
    [[noreturn]] void fail(const std::string& why) const { throw std::runtime_error(place_ + ": " + why); }

  private:
    const Json* take(const char* name, bool required) {
        taken_.insert(name);
        const auto found = json_.find(name);
        if (found == json_.end() && required) fail(std::string("field ") + name + " is missing");
        return found == json_.end() ? nullptr : &*found;
    }

    const Json& json_;
    std::string place_;
    std::set<std::string> taken_;
};

constexpr double kMostMs = 1e6, kMostFactor = 1000;

PublishedRow row_of(const Json& json, const std::string& place) {
    Fields fields(json, place);
    PublishedRow row;
    row.rule = fields.text("rule");
    row.label = fields.text("label");
    row.ms_per_token = fields.number("ms_per_token", 1e-6, kMostMs);
    row.simulated_ms_per_token = fields.number("simulated_ms_per_token", 1e-6, kMostMs);
    row.speedup = fields.number("speedup", 1e-6, kMostFactor);
    row.expected_speedup = fields.number("expected_speedup", 1e-6, kMostFactor);
    row.alpha = fields.number("alpha", 0, 1);
    row.accepted_share = fields.number("accepted_share", 0, 1);
    for (const Json& share : fields.list("level_shares")) {
        if (!share.is_number() || share < 0 || share > 1) fields.fail("level_shares must list shares");
        row.level_shares.push_back(share.get<double>());
    }
    row.drop_stop_token = fields.is_on("drop_stop_token");
    row.min_draft_tokens = fields.integer("min_draft_tokens", 1, 1, 127);
    row.max_draft_tokens = fields.integer("max_draft_tokens", 0, 1, 127);
    row.lenience = fields.number("lenience", 1e-6, 1).value_or(1);
    if (row.rule.empty() && row.label.empty()) fields.fail("neither rule nor label is given");
    fields.finish();
    return row;
}

PresetCase case_of(const Json& json, const std::string& preset) {
    Fields fields(json, preset);
    PresetCase one;
    one.name = fields.text("name", true);
    one.temperature = fields.number("temperature", 0, 100).value_or(0);
    one.t_draft_ms = fields.number("t_draft_ms", 1e-6, kMostMs);
    one.t_target_ms = fields.number("t_target_ms", 1e-6, kMostMs);
    one.c = fields.number("c", 0, kMostFactor);
    one.costs_origin = fields.text("costs_origin");
    one.alpha = fields.number("alpha", 0, 1);
    one.alpha_from = fields.text("alpha_from");
    one.matching_share = fields.number("matching_share", 0, 1);
    one.cascade = fields.is_on("cascade");
    for (const Json& row : fields.list("rows"))
        one.rows.push_back(row_of(row, preset + ", case " + one.name + ", row " + std::to_string(one.rows.size())));
    fields.finish();
    if (one.rows.empty()) fields.fail("case " + one.name + " has no rows");
    if (one.t_draft_ms.has_value() != one.t_target_ms.has_value() || (one.c && one.t_draft_ms))
        fields.fail("case " + one.name + " has either t_draft_ms and t_target_ms or c");
    if (one.has_costs() == one.costs_origin.empty())
        fields.fail("case " + one.name + ": costs and costs_origin go together");
    if ((one.alpha ? 1 : 0) + (one.alpha_from.empty() ? 0 : 1) + (one.matching_share ? 1 : 0) > 1)
        fields.fail("case " + one.name + " has more than one source of its acceptance");
    const auto is_source = [&](const PublishedRow& row) { return row.rule == one.alpha_from; };
    if (!one.alpha_from.empty() && std::none_of(one.rows.begin(), one.rows.end(), is_source))
        fields.fail("case " + one.name + ": no row has the rule of alpha_from, " + one.alpha_from);
    return one;
}

PresetSetting setting_of(const Json& json, const std::string& place) {
    Fields fields(json, place + ", setting");
    PresetSetting setting;
    setting.prompt_tokens = fields.integer("prompt_tokens", 0, 1, 1'000'000);
    setting.max_new_tokens = fields.integer("max_new_tokens", setting.max_new_tokens, 1, 1'000'000);
    setting.mean_new_tokens = fields.integer("mean_new_tokens", 0, 1, setting.max_new_tokens);
    setting.max_draft_tokens = fields.integer("max_draft_tokens", setting.max_draft_tokens, 1, 127);
    setting.no_repeat_ngram_size = fields.integer("no_repeat_ngram_size", 0, 1, 1000);
    setting.top_p = fields.number("top_p", 1e-6, 1).value_or(1);
    if (const std::string drafter = fields.text("drafter"); !drafter.empty()) {
        if (drafter != "ngram") fields.fail("drafter must be ngram, or left out");
        setting.drafter = DrafterKind::ngram;
    }
    setting.ngram_max = fields.integer("ngram_max", setting.ngram_max, 1, 1000);
    setting.ngram_first = fields.is_on("ngram_first");
    fields.finish();
    return setting;
}

PresetKind kind_of(const std::string& name, const Fields& fields) {
    for (const PresetKind kind :
         {PresetKind::speed, PresetKind::alpha, PresetKind::theory, PresetKind::study, PresetKind::simulation_cost})
        if (to_string(kind) == name) return kind;
    fields.fail("kind " + name + " is not known");
}

void check(const Preset& preset, const Fields& fields) {
    const bool has_cases = preset.kind == PresetKind::speed || preset.kind == PresetKind::alpha ||
                           preset.kind == PresetKind::simulation_cost;
    if (has_cases == preset.cases.empty()) fields.fail("its kind and its cases do not go together");
    for (const PresetCase& one : preset.cases)
        for (const PublishedRow& row : one.rows) {
            if ((preset.kind == PresetKind::alpha) != row.rule.empty())
                fields.fail("case " + one.name + ": rows of kind alpha name a drafter, others a rule");
            try {
                rule_of(row, preset.setting);
            } catch (const BadOption& error) {
                fields.fail("case " + one.name + ": " + error.what());
            }
        }
}

Preset preset_of(const Json& json, std::size_t number) {
    Preset preset;
    preset.name = Fields(json, "preset number " + std::to_string(number)).text("name", true);
    Fields fields(json, "preset " + preset.name);
    fields.text("name");
    preset.kind = kind_of(fields.text("kind", true), fields);
    preset.source = fields.text("source", true);
    preset.about = fields.text("about", true);
    if (const Json* setting = fields.object("setting")) preset.setting = setting_of(*setting, "preset " + preset.name);
    for (const Json& one : fields.list("cases"))
        preset.cases.push_back(case_of(one, "preset " + preset.name));
    preset.shows_lengths = fields.is_on("shows_lengths");
    preset.shows_texts = fields.is_on("shows_texts");
    preset.facts = fields.texts("facts");
    preset.notes = fields.texts("notes");
    preset.commands = fields.texts("commands");
    fields.finish();
    check(preset, fields);
    return preset;
}

} // namespace

bool Preset::drafts_nothing() const {
    for (const PresetCase& one : cases)
        for (const PublishedRow& row : one.rows)
            if (row.rule != "none") return false;
    return true;
}

std::string to_string(PresetKind kind) {
    switch (kind) {
    case PresetKind::speed:
        return "speed";
    case PresetKind::alpha:
        return "alpha";
    case PresetKind::theory:
        return "theory";
    case PresetKind::study:
        return "study";
    case PresetKind::simulation_cost:
        return "simulation-cost";
    }
    throw std::invalid_argument("no such kind of preset");
}

spec::Costs PresetCase::costs() const {
    constexpr double kSecondsPerMs = 1e-3;
    if (t_draft_ms) return {*t_draft_ms * kSecondsPerMs, {*t_target_ms * kSecondsPerMs}};
    return {c.value() * kSecondsPerMs, {kSecondsPerMs}};
}

double PresetCase::cost_ratio() const {
    return t_draft_ms ? *t_draft_ms / *t_target_ms : c.value();
}

std::vector<Preset> parse_presets(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_array()) throw std::runtime_error("presets: not a JSON list");
    std::vector<Preset> all;
    for (const Json& one : json) {
        all.push_back(preset_of(one, all.size()));
        const auto same = [&](const Preset& preset) { return preset.name == all.back().name; };
        if (std::count_if(all.begin(), all.end(), same) > 1)
            throw std::runtime_error("preset " + all.back().name + ": there are two of this name");
    }
    return all;
}

const std::vector<Preset>& presets() {
    static const std::vector<Preset> all = parse_presets(kPresetsJson);
    return all;
}

const Preset& preset_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) {
        if (preset.name == name) return preset;
        names.push_back(preset.name);
    }
    const auto meant = nearest(name, names);
    throw BadOption("unknown preset '" + name + "'" +
                    (meant ? "; did you mean " + *meant + "?" : "; see entrodraft bench preset --list"));
}

std::optional<spec::StopRuleOptions> rule_of(const PublishedRow& row, const PresetSetting& setting) {
    if (row.rule.empty() || row.rule == "none") return std::nullopt;
    ParsedOptions options;
    options.add("rules", row.rule, "");
    const int cap = row.max_draft_tokens > 0 ? row.max_draft_tokens : setting.max_draft_tokens;
    options.add("max-draft-tokens", std::to_string(cap), "");
    options.add("min-draft-tokens", std::to_string(row.min_draft_tokens), "");
    if (row.drop_stop_token) options.add("drop-stop-token", "true", "");
    const auto levels = compared_rules(options, 1);
    if (levels.size() != 1) throw BadOption("--rules " + row.rule + ": must be one rule");
    return levels.front().front();
}

std::vector<PublishedRow> with_usual_rows(const PresetCase& preset_case) {
    std::vector<PublishedRow> rows = preset_case.rows;
    const auto has = [&](const std::string& rule) {
        return std::any_of(rows.begin(), rows.end(), [&](const PublishedRow& row) {
            return row.rule.substr(0, row.rule.find(':')) == rule.substr(0, rule.find(':'));
        });
    };
    for (const char* rule : {"none", "constant:5", "heuristic:5", "expected-gain"}) {
        if (has(rule)) continue;
        PublishedRow usual;
        usual.rule = rule;
        rows.insert(usual.rule == "none" ? rows.begin() : rows.end(), usual);
    }
    return rows;
}

} // namespace entrodraft::launch
