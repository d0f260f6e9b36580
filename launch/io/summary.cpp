// The figures of a run, and their forms on stderr and as JSON: see summary.h.
#include "launch/io/summary.h"

#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/start/counted.h"
#include "launch/start/statistics.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <utility>

namespace entrodraft::launch {

namespace {

// "3035", "12.4", "0.33".
std::string three_digits(double value) {
    return format_number(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

bool has_drafter(const RunSummary& summary) {
    return !summary.speculation.drafter.kinds.empty();
}

double share_of(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Returns the costs of passes that the run itself saw: mean times, whatever else ran.
spec::Costs seen_costs(const spec::Stats& stats) {
    spec::Costs costs;
    // A pass of a cascade's middle model makes several tokens.
    const std::int64_t drafting = stats.levels.empty() ? stats.draft_passes : stats.drafted;
    if (drafting > 0) costs.t_draft = stats.seconds.draft / static_cast<double>(drafting);
    costs.t_target = {stats.seconds.score / static_cast<double>(stats.target_passes)};
    return costs;
}

// Shares of decoding time without prefill, by name; draft and entropy come first. Together they are 1. None if nothing
// was decoded, or if --check used a batch's time for other texts, too.
using PhaseShares = std::vector<std::pair<const char*, double>>;
std::optional<PhaseShares> phase_shares(const RunSummary& summary) {
    const spec::StepSeconds& seconds = summary.stats.seconds;
    if (summary.batch_size > 1 && summary.checked > 0) return std::nullopt; // includes texts decoded again
    // Sequences of a batch share its steps, while the time of each sequence is the time of all.
    const double decoding =
        (summary.batch_size > 1 ? total_of(summary.replicas_busy_seconds) : seconds.total) - seconds.prefill;
    if (decoding <= 0) return std::nullopt;
    PhaseShares shares = phase_seconds(seconds, decoding);
    for (auto& [name, share] : shares)
        share = std::max(0.0, share) / decoding;
    return shares;
}

// Returns the time of a one-row pass over that of the run's mean pass: as timed, if that was done several times; as the
// rule has learnt it; or by the costs that the run was given. None if it is not known.
std::optional<double> one_row_over_all(const RunSummary& summary) {
    constexpr std::int64_t kEnough = 3; // passes
    const spec::Stats& stats = summary.stats;
    const auto passes = static_cast<double>(stats.target_passes);
    const double all = total_of(stats.seconds_of_rows);
    const std::int64_t narrow = stats.passes_of_rows.size() > 1 ? stats.passes_of_rows[1] : 0;
    if (narrow >= kEnough && all > 0 && stats.seconds_of_rows.size() > 1)
        return stats.seconds_of_rows[1] / static_cast<double>(narrow) / (all / passes);
    const bool has_learnt = summary.draft_worth && !summary.draft_worth->row_costs.empty();
    if (!has_learnt && !summary.costs) return std::nullopt;
    const spec::Costs costs = has_learnt ? spec::Costs{0, summary.draft_worth->row_costs} : *summary.costs;
    double seconds = 0;
    for (std::size_t rows = 1; rows < stats.passes_of_rows.size(); ++rows)
        if (stats.passes_of_rows[rows] > 0)
            seconds += static_cast<double>(stats.passes_of_rows[rows]) * costs.target_seconds(static_cast<int>(rows));
    if (seconds <= 0) return std::nullopt;
    return passes * costs.target_seconds(1) / seconds;
}

// ---- the two lines ----

// "64 prompts (2 failed: see their error lines) in 2.40 s on 2 ranks: 3072 tokens, 1280 tokens/s (0.78 ms/token), ...".
std::string prompts_line(const RunSummary& summary) {
    std::string text = counted(summary.served, "prompt"), others;
    if (summary.with_error > 0) others = fmt::format("{} failed: see their error lines", summary.with_error);
    if (summary.resumed > 0)
        others += fmt::format("{}{} found in the output already", others.empty() ? "" : "; ", summary.resumed);
    if (!others.empty()) text += " (" + others + ")";
    text += fmt::format(" in {:.2f} s on {}", summary.wall_seconds, counted(summary.ranks, "rank"));
    if (summary.stats.new_tokens == 0) return text + "\n";
    text += fmt::format(": {}, {} tokens/s", counted(summary.stats.new_tokens, "token"),
                        three_digits(summary.tokens_per_second()));
    const std::string median = summary.served > 1 ? "median " : "";
    const auto median_of = [](const std::vector<double>& samples) {
        return three_digits(quantiles_of(samples).median);
    };
    const LatencySamples& latencies = summary.latencies;
    if (!latencies.tpot_ms.empty()) text += fmt::format(" ({}{} ms/token)", median, median_of(latencies.tpot_ms));
    if (!latencies.ttft_ms.empty()) text += fmt::format(", {}TTFT {} ms", median, median_of(latencies.ttft_ms));
    return text + "\n";
}

// "; estimated speed-up 1.75", "; speed-up at most 2.94".
std::string speedup_text(const RunSummary& summary) {
    const auto estimate = estimated_speedup(summary);
    if (!estimate) return "";
    return estimate->likely ? fmt::format("; estimated speed-up {:.2f}", *estimate->likely)
                            : fmt::format("; speed-up at most {:.2f}", estimate->at_most);
}

// Says why a rule that weighs costs drafted in hardly any round; empty if it drafted, or if costs were not the reason.
std::string why_little_is_drafted(const RunSummary& summary) {
    constexpr double kLittle = 0.05; // share of the rounds
    const spec::Stats& stats = summary.stats;
    const auto& worth = summary.draft_worth;
    if (!worth || worth->declined == 0 ||
        static_cast<double>(stats.drafting_rounds) > kLittle * static_cast<double>(stats.rounds))
        return "";
    std::string text =
        fmt::format("; a draft pass {} {:.2f} of the time of a token without a draft, a further row of "
                    "the target {:.2f}, and a drafted token is accepted with a chance of {:.2f}",
                    worth->is_pass_timed ? "takes" : "is taken for", worth->pass, worth->row, worth->acceptance);
    if (2 * worth->declined_for_reading > worth->declined)
        return text + fmt::format(": the draft would have to read the texts first, {:.2f} a token, for longer than "
                                  "drafts would save",
                                  worth->reading);
    return text + ": drafts would cost more than they save";
}

std::string drafting_line(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const spec::AcceptanceOptions& acceptance = summary.speculation.acceptance;
    std::vector<std::string> rules;
    for (const spec::StopRuleOptions& rule : summary.speculation.stop_rules)
        rules.push_back(rule.name());
    const std::string accepted =
        stats.drafted > 0 ? fmt::format("{:.0f} % of drafted tokens accepted", 100 * stats.draft_acceptance_rate())
                          : "nothing was drafted";
    std::string text = fmt::format("drafting: {:.2f} tokens per target pass, {} ({})", stats.tokens_per_target_pass(),
                                   accepted, fmt::join(rules, " / "));
    text += why_little_is_drafted(summary);
    if (stats.drafted > 0) text += speedup_text(summary);
    if (acceptance.is_lossy())
        text += fmt::format("; acceptance {}: LOSSY, not the target's own text", describe(acceptance));
    return text + "\n";
}

// ---- the other lines ----

// Lines as a name and the text after it; empty text: there is no such line.
using DetailLines = std::vector<std::pair<const char*, std::string>>;

std::string describe_latency(const std::vector<double>& samples) {
    if (samples.empty()) return "";
    const Quantiles quantiles = quantiles_of(samples);
    return fmt::format("ms: mean {}, median {}, p90 {}, p99 {}", three_digits(quantiles.mean),
                       three_digits(quantiles.median), three_digits(quantiles.p90), three_digits(quantiles.p99));
}

// "2, busy 99 %, 97 % of the time".
std::string describe_replicas(const RunSummary& summary) {
    if (summary.replicas_busy_seconds.size() < 2 || summary.wall_seconds <= 0) return "";
    std::vector<std::string> shares;
    for (const double busy : summary.replicas_busy_seconds)
        shares.push_back(fmt::format(" {:.0f} %", 100 * busy / summary.wall_seconds));
    return fmt::format("{}, busy{} of the time", shares.size(), fmt::join(shares, ","));
}

std::string describe_time(const RunSummary& summary) {
    std::vector<std::string> phases;
    for (const auto& [name, share] : phase_shares(summary).value_or(PhaseShares{}))
        phases.push_back(fmt::format("{} {:.1f} %", name, 100 * share));
    return fmt::format("{}", fmt::join(phases, ", "));
}

// "by draft position: 0.81 0.74 0.70": accepted of verified tokens.
std::string describe_acceptances(const char* by_what, const std::vector<spec::Acceptances>& all, std::size_t most) {
    if (all.empty()) return "";
    std::string text = by_what;
    for (std::size_t i = 0; i < std::min(all.size(), most); ++i)
        text += all[i].verified == 0 ? " -" : fmt::format(" {:.2f}", share_of(all[i].accepted, all[i].verified));
    return text;
}

std::string describe_iid_model(const RunSummary& summary) {
    const auto model = iid_model(summary);
    if (!model) return "";
    std::string text = fmt::format(
        "(i.i.d. model of Leviathan et al. 2023 at acceptance rate alpha {:.3f}, draft/target cost c {:.3f}, "
        "{:.2f} drafted per round): {:.2f} tokens per target pass (measured {:.2f}), speed-up {:.2f}",
        *summary.stats.alpha(), model->c, model->mean_drafted, model->expected_tokens,
        summary.stats.tokens_per_target_pass(), model->walltime_factor);
    if (model->operations_factor > 0)
        text += fmt::format(", compute {:.2f} (measured {:.2f})", model->operations_factor,
                            model->measured_operations_factor);
    return text;
}

std::string describe_ahead(const spec::DraftedAhead& ahead) {
    if (ahead.rounds == 0) return "";
    return fmt::format("{}, hit rate {:.3f}; per round {:.1f} outcomes in {:.1f} hidden passes, {:.3f} ms; {} "
                       "drafted, {:.1f} % of them used",
                       counted(ahead.rounds, "round"), ahead.hit_rate(), share_of(ahead.outcomes, ahead.rounds),
                       share_of(ahead.passes, ahead.rounds), 1000 * ahead.seconds / static_cast<double>(ahead.rounds),
                       counted(ahead.tokens, "token"), 100 * share_of(ahead.used, ahead.tokens));
}

std::string describe_counts(const spec::Stats& stats) {
    return fmt::format("{}, {} drafted, {} accepted (draft acceptance rate {:.3f}), mean acceptance length {:.2f}",
                       counted(stats.rounds, "round"), stats.drafted, stats.accepted, stats.draft_acceptance_rate(),
                       stats.mean_acceptance_length());
}

void add_speculation(const RunSummary& summary, DetailLines& lines) {
    const spec::Stats& stats = summary.stats;
    const SpeculationOptions& speculation = summary.speculation;
    std::vector<std::string> rules;
    for (const spec::StopRuleOptions& rule : speculation.stop_rules)
        rules.push_back(describe(rule));
    lines.emplace_back("rule", fmt::format("{}; drafter {}, acceptance {}", fmt::join(rules, " / "),
                                           describe(speculation.drafter), to_string(speculation.acceptance.kind)));
    lines.emplace_back("draft", describe_counts(stats));
    for (const spec::Stats& level : stats.levels)
        lines.emplace_back("level", describe_counts(level));
    constexpr std::size_t kPositions = 8, kBins = 10;
    lines.insert(lines.end(),
                 {{"ahead", describe_ahead(stats.ahead)},
                  {"acceptance", describe_acceptances("by draft position:", stats.by_position, kPositions)},
                  {"acceptance", describe_acceptances("by entropy (0.5-nat bins):", stats.by_entropy, kBins)},
                  {"expected", describe_iid_model(summary)}});
}

std::string detail_lines(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const bool is_batched = summary.batch_size > 1;
    DetailLines lines = {{"tokens", fmt::format("{} prompt, {} new; prefill {:.3f} s, decoding {:.3f} ms/token{}",
                                                stats.prompt_tokens, stats.new_tokens, stats.seconds.prefill,
                                                stats.ms_per_token(), is_batched ? " per sequence" : "")},
                         {"TTFT", describe_latency(summary.latencies.ttft_ms)},
                         {"TPOT", describe_latency(summary.latencies.tpot_ms)},
                         {"batch", is_batched ? counted(summary.batch_size, "sequence") + " at once" : ""},
                         {"replicas", describe_replicas(summary)}};
    if (has_drafter(summary)) add_speculation(summary, lines);
    lines.insert(lines.end(), {{"passes", fmt::format("{} target, {} draft{}", stats.target_passes, stats.draft_passes,
                                                      is_batched ? ", each counted for every sequence in it" : "")},
                               {"loading", fmt::format("{:.3f} s, {:.3f} GB, {:.2f} GB/s", summary.load_seconds,
                                                       static_cast<double>(summary.load_bytes) / 1e9,
                                                       summary.load_bytes_per_second() / 1e9)},
                               {"time", describe_time(summary)}});
    std::string text;
    for (const auto& [name, words] : lines)
        if (!words.empty()) text += fmt::format("  {:<11}{}\n", name, words);
    return text;
}

// ---- JSON ----

constexpr int kSummaryVersion = 1;

// Returns the distribution of samples over prompts; null without samples.
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

Json shares_json(const std::optional<PhaseShares>& shares) {
    Json json;
    for (const auto& [name, share] : shares.value_or(PhaseShares{}))
        json[name] = share;
    return json;
}

Json iid_json(const std::optional<spec::IidFigures>& model) {
    if (!model) return {};
    const auto known = [](double ratio) { return ratio > 0 ? Json(ratio) : Json(); };
    return {{"c", model->c},
            {"drafted_per_round", model->mean_drafted},
            {"tokens_per_target_pass", model->expected_tokens},
            {"speedup", model->walltime_factor},
            {"compute", known(model->operations_factor)},
            {"measured_compute", known(model->measured_operations_factor)}};
}

Json worth_json(const std::optional<spec::DraftWorth>& worth) {
    if (!worth) return {};
    return {{"rounds_declined", worth->declined},
            {"rounds_declined_for_reading", worth->declined_for_reading},
            {"draft_pass", worth->pass},
            {"draft_pass_timed", worth->is_pass_timed},
            {"row", worth->row},
            {"reading_a_token", worth->reading},
            {"acceptance", worth->acceptance}};
}

// Returns the options of the command line and --config, by name: text, or a list if an option may be repeated.
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
        rules.push_back(describe(rule));
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

void LatencySamples::add(const spec::Stats& text) {
    ttft_ms.push_back(text.seconds.first_token * 1e3);
    if (const auto tpot = text.tpot_ms()) tpot_ms.push_back(*tpot);
    latency_ms.push_back(text.seconds.total * 1e3);
}

double RunSummary::tokens_per_second() const {
    return wall_seconds > 0 ? static_cast<double>(stats.new_tokens) / wall_seconds : 0;
}

std::string describe_slowest(const std::vector<RankWait>& ranks) {
    constexpr double kMinShare = 0.1; // smaller differences between ranks are normal
    struct Group {
        std::size_t slowest = 0; // the rank that waited least
        std::size_t size = 0;
        double waited = 0; // time of all of them together
    };
    std::map<int, Group> groups;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank].replica < 0) continue;
        Group& group = groups[ranks[rank].replica];
        if (group.size++ == 0 || ranks[rank].waited_seconds < ranks[group.slowest].waited_seconds) group.slowest = rank;
        group.waited += ranks[rank].waited_seconds;
    }
    double worst = kMinShare;
    std::string text;
    for (const auto& [replica, group] : groups) {
        const RankWait& slowest = ranks[group.slowest];
        if (group.size < 2 || slowest.run_seconds <= 0) continue;
        const double others = (group.waited - slowest.waited_seconds) / static_cast<double>(group.size - 1);
        const double share = (others - slowest.waited_seconds) / slowest.run_seconds;
        if (share < worst) continue;
        worst = share;
        text = fmt::format("rank {} (host {}): the others waited {} % of the time for it", group.slowest, slowest.host,
                           std::lround(100 * share));
    }
    return text;
}

std::optional<SpeedupEstimate> estimated_speedup(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const auto shares = phase_shares(summary);
    if (!shares || !has_drafter(summary) || summary.batch_size > 1 || summary.num_beams > 0) return std::nullopt;
    const double not_drafting = 1 - shares->at(0).second - shares->at(1).second;
    SpeedupEstimate estimate = {stats.tokens_per_target_pass() * not_drafting, std::nullopt};
    if (const auto narrow = one_row_over_all(summary)) {
        const double score = stats.seconds.score / (stats.seconds.total - stats.seconds.prefill);
        estimate.likely = stats.tokens_per_target_pass() * (not_drafting - score + score * *narrow);
    }
    return estimate;
}

std::optional<spec::IidFigures> iid_model(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    if (!has_drafter(summary) || !stats.alpha() || stats.rounds == 0 || summary.speculation.acceptance.is_lossy())
        return std::nullopt;
    return spec::iid_figures(stats,
                             stats.levels.empty() ? summary.costs.value_or(seen_costs(stats)) : seen_costs(stats),
                             summary.operations_ratio);
}

std::string format_summary(const RunSummary& summary, bool verbose) {
    std::string text = summary.interrupted ? "stopped by a signal" : "";
    if (summary.interrupted) text += summary.resumable ? "; run again with --resume to serve the rest\n" : "\n";
    text += prompts_line(summary);
    const bool has_tokens = summary.stats.new_tokens > 0;
    if (has_tokens && has_drafter(summary)) text += drafting_line(summary);
    if (has_tokens && verbose) text += detail_lines(summary);
    if (!summary.slowest_rank.empty()) text += "slowest: " + summary.slowest_rank + "\n";
    if (summary.checked > 0)
        text += fmt::format("check: {} of {} equal decoding without a draft\n", summary.checked - summary.check_differs,
                            counted(summary.checked, "text"));
    return text + summary.machine.warning_line();
}

Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment) {
    const spec::Stats& stats = summary.stats;
    const std::optional<SpeedupEstimate> speedup = estimated_speedup(summary);
    Json levels = Json::array();
    for (const spec::Stats& level : stats.levels)
        levels.push_back(counts_json(level));
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
    json.update({{"tokens_per_target_pass", stats.tokens_per_target_pass()},
                 {"acceptance_by_position", acceptances_json(stats.by_position)},
                 {"acceptance_by_entropy", acceptances_json(stats.by_entropy)},
                 {"time_shares", shares_json(phase_shares(summary))},
                 {"estimated_speedup", speedup && speedup->likely ? Json(*speedup->likely) : Json()},
                 {"speedup_at_most", speedup ? Json(speedup->at_most) : Json()},
                 {"draft_worth", worth_json(summary.draft_worth)},
                 {"iid_model", iid_json(iid_model(summary))},
                 {"levels", levels},
                 {"replicas_busy_seconds", summary.replicas_busy_seconds},
                 {"slowest_rank", summary.slowest_rank.empty() ? Json() : Json(summary.slowest_rank)},
                 {"checked", summary.checked},
                 {"check_differs", summary.check_differs},
                 {"settings", settings_json(options)},
                 {"options", options_json(options.given)},
                 {"environment", environment},
                 {"machine", to_json(summary.machine)}});
    return json;
}

} // namespace entrodraft::launch
