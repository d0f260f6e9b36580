// The summary as JSON: see summary_json.h.
#include "launch/io/summary_json.h"

#include "launch/environment.h"
#include "launch/io/results.h"

namespace entrodraft::launch {

namespace {

constexpr int kSummaryVersion = 1;

template <typename T, typename Form> Json or_null(const std::optional<T>& value, Form form) {
    return value ? Json(form(*value)) : Json();
}

// Of samples over prompts; null without any.
Json distribution_json(const std::vector<double>& samples) {
    if (samples.empty()) return {};
    const Quantiles quantiles = quantiles_of(samples);
    return {{"mean", quantiles.mean}, {"median", quantiles.median}, {"p90", quantiles.p90}, {"p99", quantiles.p99}};
}

Json acceptances_json(const std::vector<spec::Acceptances>& all) {
    Json list = Json::array();
    for (const spec::Acceptances& one : all)
        list.push_back({{"verified", one.verified}, {"accepted", one.accepted}});
    return list;
}

Json shares_json(const PhaseShares& shares) {
    return {{"draft", shares.draft}, {"entropy", shares.entropy}, {"broadcast", shares.broadcast},
            {"score", shares.score}, {"gather", shares.gather},   {"verify", shares.verify},
            {"other", shares.other}};
}

Json iid_json(const spec::IidFigures& model) {
    const auto known = [](double ratio) { return ratio > 0 ? Json(ratio) : Json(); };
    return {{"c", model.c},
            {"drafted_per_round", model.mean_drafted},
            {"tokens_per_target_pass", model.expected_tokens},
            {"speedup", model.walltime_factor},
            {"compute", known(model.operations_factor)},
            {"measured_compute", known(model.measured_operations_factor)}};
}

// What the command line and --config asked for, by name: text, a list where an option may be repeated.
Json options_json(const ParsedOptions& given) {
    Json json = Json::object();
    for (const OptionGroup& group : groups_of<GenerateOptions>())
        for (const OptionSpec& option : group.options)
            if (given.given(option.name))
                json[option.name] =
                    option.repeatable ? Json(given.texts(option.name)) : Json(given.text(option.name, ""));
    return json;
}

Json settings_json(const GenerateOptions& options) {
    const SpeculationOptions& speculation = options.speculation;
    const bool drafts = !speculation.drafter.kinds.empty();
    Json rules = Json::array();
    for (const spec::StopRuleOptions& rule : speculation.stop_rules)
        rules.push_back(describe(rule, speculation.entropy_unit));
    return {{"drafter", drafts ? Json(describe(speculation.drafter)) : Json()},
            {"stop_rules", drafts ? rules : Json::array()},
            {"acceptance", to_string(speculation.acceptance.kind)},
            {"lossy", speculation.acceptance.is_lossy()},
            {"temperature", options.requests.sampling.temperature},
            {"max_new_tokens", options.requests.max_new_tokens},
            {"batch_size", options.batch_size},
            {"replicas", options.replicas}};
}

} // namespace

Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment) {
    const spec::Stats& stats = summary.stats;
    Json json = {
        {"schema_version", kSummaryVersion},
        {"command", "generate"},
        {"interrupted", summary.interrupted},
        {"prompts", {{"completed", summary.served}, {"failed", summary.with_error}, {"resumed", summary.resumed}}},
        {"seconds", summary.wall_seconds},
        {"load_seconds", summary.load_seconds},
        {"load_bytes", summary.load_bytes},
        {"load_bytes_per_second", summary.load_bytes_per_second()},
        {"prompt_tokens", stats.prompt_tokens},
        {"tokens_per_second", summary.tokens_per_second()},
        {"ttft_ms", distribution_json(summary.latencies.ttft_ms)},
        {"tpot_ms", distribution_json(summary.latencies.tpot_ms)},
        {"latency_ms", distribution_json(summary.latencies.latency_ms)},
        {"prefill_seconds", stats.seconds.prefill}};
    json.update(counts_json(stats));
    json["tokens_per_target_pass"] = stats.tokens_per_target_pass();
    json["acceptance_by_position"] = acceptances_json(stats.by_position);
    json["acceptance_by_entropy"] = acceptances_json(stats.by_entropy);
    json["time_shares"] = or_null(phase_shares(summary), shares_json);
    json["estimated_speedup"] = or_null(estimated_speedup(summary), [](double speedup) { return speedup; });
    json["iid_model"] = or_null(iid_model(summary), iid_json);
    json["levels"] = Json::array();
    for (const spec::Stats& level : stats.levels)
        json["levels"].push_back(counts_json(level));
    json["replicas_busy_seconds"] = summary.replicas_busy_seconds;
    json["slowest_rank"] = summary.slowest_rank.empty() ? Json() : Json(summary.slowest_rank);
    json["checked"] = summary.checked;
    json["check_differs"] = summary.check_differs;
    json["settings"] = settings_json(options);
    json["options"] = options_json(options.given);
    json["environment"] = environment;
    json["machine"] = to_json(summary.machine);
    return json;
}

} // namespace entrodraft::launch
