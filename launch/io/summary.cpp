// The figures of a run, and their form on stderr: see summary.h.
#include "launch/io/summary.h"

#include "launch/counted.h"
#include "launch/environment.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

// "3035", "12.4", "0.33".
std::string three_digits(double value) {
    return format_number(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

bool has_drafter(const RunSummary& summary) {
    return !summary.speculation.drafter.kinds.empty();
}

template <typename T> void append_samples(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

// Costs of passes that the run saw itself: mean times, whatever was beside them.
spec::Costs seen_costs(const spec::Stats& stats) {
    spec::Costs costs;
    // A pass of a cascade's middle model brings several tokens.
    const std::int64_t drafting = stats.levels.empty() ? stats.draft_passes : stats.drafted;
    if (drafting > 0) costs.t_draft = stats.seconds.draft / static_cast<double>(drafting);
    costs.t_target = {stats.seconds.score / static_cast<double>(stats.target_passes)};
    return costs;
}

// ---- the two lines ----

// "64 prompts (2 failed: see their error lines) in 2.40 s on 2 ranks: 3072 tokens, 1280 tokens/s (0.78 ms/token), ...".
std::string prompts_line(const RunSummary& summary) {
    std::string text = counted(summary.served, "prompt"), others;
    if (summary.with_error > 0) others = std::to_string(summary.with_error) + " failed: see their error lines";
    if (summary.resumed > 0)
        others += (others.empty() ? "" : "; ") + std::to_string(summary.resumed) + " found in the output already";
    if (!others.empty()) text += " (" + others + ")";
    text += formatted(" in %.2f s on ", summary.wall_seconds) + counted(summary.ranks, "rank");
    if (summary.stats.new_tokens == 0) return text + "\n";
    text += ": " + counted(summary.stats.new_tokens, "token") + ", " + three_digits(summary.tokens_per_second()) +
            " tokens/s";
    const std::string median = summary.served > 1 ? "median " : "";
    const LatencySamples& latencies = summary.latencies;
    if (!latencies.tpot_ms.empty())
        text += " (" + median + three_digits(quantiles_of(latencies.tpot_ms).median) + " ms/token)";
    if (!latencies.ttft_ms.empty())
        text += ", " + median + "TTFT " + three_digits(quantiles_of(latencies.ttft_ms).median) + " ms";
    return text + "\n";
}

std::string lossy_words(const spec::AcceptanceOptions& acceptance) {
    if (!acceptance.is_lossy()) return "";
    const std::string lenience = acceptance.lenience < 1 ? formatted(", lenience %g", acceptance.lenience) : "";
    return "; acceptance " + to_string(acceptance.kind) + lenience + ": LOSSY, not the target's own text";
}

std::string drafting_line(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    std::string rules;
    for (const spec::StopRuleOptions& rule : summary.speculation.stop_rules)
        rules += (rules.empty() ? "" : " / ") + rule.name();
    std::string text = formatted("drafting: %.2f tokens per target pass, %.0f %% of drafted tokens accepted (%s)",
                                 stats.tokens_per_target_pass(), 100 * stats.draft_acceptance_rate(), rules.c_str());
    if (const auto speedup = estimated_speedup(summary)) text += formatted("; estimated speed-up %.2f", *speedup);
    return text + lossy_words(summary.speculation.acceptance) + "\n";
}

// ---- the other lines ----

std::string detail_line(const char* name, const std::string& text) {
    return formatted("  %-11s", name) + text + "\n";
}

std::string latency_line(const char* name, const std::vector<double>& samples) {
    if (samples.empty()) return "";
    const Quantiles quantiles = quantiles_of(samples);
    return detail_line(name, "ms: mean " + three_digits(quantiles.mean) + ", median " + three_digits(quantiles.median) +
                                 ", p90 " + three_digits(quantiles.p90) + ", p99 " + three_digits(quantiles.p99));
}

// "2, busy 99 %, 97 % of the time".
std::string replicas_line(const RunSummary& summary) {
    const std::vector<double>& busy = summary.replicas_busy_seconds;
    if (busy.size() < 2 || summary.wall_seconds <= 0) return "";
    std::string text = std::to_string(busy.size()) + ", busy";
    for (std::size_t replica = 0; replica < busy.size(); ++replica)
        text += formatted("%s %.0f %%", replica > 0 ? "," : "", 100 * busy[replica] / summary.wall_seconds);
    return detail_line("replicas", text + " of the time");
}

std::string time_line(const RunSummary& summary) {
    const auto shares = phase_shares(summary);
    if (!shares) return "";
    return detail_line("time",
                       formatted("draft %.1f %%, entropy %.1f %%, broadcast %.1f %%, score %.1f %%, gather %.1f %%, "
                                 "verify %.1f %%, other %.1f %%",
                                 100 * shares->draft, 100 * shares->entropy, 100 * shares->broadcast,
                                 100 * shares->score, 100 * shares->gather, 100 * shares->verify, 100 * shares->other));
}

// "0.81 0.74 0.70": accepted of verified tokens.
std::string acceptances(const std::vector<spec::Acceptances>& all, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), most); ++i)
        text += all[i].verified == 0
                    ? " -"
                    : formatted(" %.2f", static_cast<double>(all[i].accepted) / static_cast<double>(all[i].verified));
    return text;
}

std::string iid_line(const RunSummary& summary) {
    const auto model = iid_model(summary);
    if (!model) return "";
    std::string text = formatted("(i.i.d. model of Leviathan et al. 2023 at acceptance rate alpha %.3f, draft/target "
                                 "cost c %.3f, %.2f drafted per round): %.2f tokens per target pass (measured %.2f), "
                                 "speed-up %.2f",
                                 *summary.stats.alpha(), model->c, model->mean_drafted, model->expected_tokens,
                                 summary.stats.tokens_per_target_pass(), model->walltime_factor);
    if (model->operations_factor > 0)
        text +=
            formatted(", compute %.2f (measured %.2f)", model->operations_factor, model->measured_operations_factor);
    return detail_line("expected", text);
}

std::string ahead_line(const spec::DraftedAhead& ahead) {
    if (ahead.rounds == 0) return "";
    const auto share = [](std::int64_t part, std::int64_t whole) {
        return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
    };
    return detail_line(
        "ahead", counted(ahead.rounds, "round") +
                     formatted(", hit rate %.3f; per round %.1f outcomes in %.1f hidden passes, %.3f ms; ",
                               ahead.hit_rate(), share(ahead.outcomes, ahead.rounds), share(ahead.passes, ahead.rounds),
                               1000 * ahead.seconds / static_cast<double>(ahead.rounds)) +
                     counted(ahead.tokens, "token") +
                     formatted(" drafted, %.1f %% of them used", 100 * share(ahead.used, ahead.tokens)));
}

std::string counts_of_level(const spec::Stats& stats) {
    return counted(stats.rounds, "round") + ", " + std::to_string(stats.drafted) + " drafted, " +
           std::to_string(stats.accepted) +
           formatted(" accepted (draft acceptance rate %.3f), mean acceptance length %.2f",
                     stats.draft_acceptance_rate(), stats.mean_acceptance_length());
}

std::string speculation_lines(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const SpeculationOptions& speculation = summary.speculation;
    std::string rules;
    for (const spec::StopRuleOptions& rule : speculation.stop_rules)
        rules += (rules.empty() ? "" : " / ") + describe(rule, speculation.entropy_unit);
    std::string text = detail_line("rule", rules + "; drafter " + describe(speculation.drafter) + ", acceptance " +
                                               to_string(speculation.acceptance.kind)) +
                       detail_line("draft", counts_of_level(stats));
    for (const spec::Stats& level : stats.levels)
        text += detail_line("level", counts_of_level(level));
    text += ahead_line(stats.ahead);
    constexpr std::size_t kPositions = 8, kBins = 10;
    if (!stats.by_position.empty())
        text += detail_line("acceptance", "by draft position:" + acceptances(stats.by_position, kPositions));
    if (!stats.by_entropy.empty())
        text += detail_line("acceptance", "by entropy (0.5-nat bins):" + acceptances(stats.by_entropy, kBins));
    return text + iid_line(summary);
}

std::string detail_lines(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    std::string text = detail_line(
        "tokens", std::to_string(stats.prompt_tokens) + " prompt, " + std::to_string(stats.new_tokens) + " new; " +
                      formatted("prefill %.3f s, decoding %.3f ms/token%s", stats.seconds.prefill, stats.ms_per_token(),
                                summary.batch_size > 1 ? " per sequence" : ""));
    text += latency_line("TTFT", summary.latencies.ttft_ms) + latency_line("TPOT", summary.latencies.tpot_ms);
    if (summary.batch_size > 1) text += detail_line("batch", counted(summary.batch_size, "sequence") + " at once");
    text += replicas_line(summary);
    if (has_drafter(summary)) text += speculation_lines(summary);
    text +=
        detail_line("passes", std::to_string(stats.target_passes) + " target, " + std::to_string(stats.draft_passes) +
                                  " draft" + (summary.batch_size > 1 ? ", each counted for every sequence in it" : ""));
    text += detail_line("loading", formatted("%.3f s, %.3f GB, %.2f GB/s", summary.load_seconds,
                                             summary.load_bytes / 1e9, summary.load_bytes_per_second() / 1e9));
    return text + time_line(summary);
}

} // namespace

void LatencySamples::add(const spec::Stats& text) {
    ttft_ms.push_back(text.seconds.first_token * 1e3);
    if (const auto tpot = text.tpot_ms()) tpot_ms.push_back(*tpot);
    latency_ms.push_back(text.seconds.total * 1e3);
}

LatencySamples& LatencySamples::operator+=(const LatencySamples& other) {
    append_samples(ttft_ms, other.ttft_ms);
    append_samples(tpot_ms, other.tpot_ms);
    append_samples(latency_ms, other.latency_ms);
    return *this;
}

Tally& Tally::operator+=(const Tally& other) {
    stats += other.stats;
    served += other.served;
    with_error += other.with_error;
    checked += other.checked;
    check_differs += other.check_differs;
    busy_seconds += other.busy_seconds;
    latencies += other.latencies;
    return *this;
}

double RunSummary::tokens_per_second() const {
    return wall_seconds > 0 ? static_cast<double>(stats.new_tokens) / wall_seconds : 0;
}

// Sequences of a batch share its steps out among them, while the time of each is that of all.
std::optional<PhaseShares> phase_shares(const RunSummary& summary) {
    const spec::StepSeconds& seconds = summary.stats.seconds;
    if (summary.batch_size > 1 && summary.checked > 0) return std::nullopt; // busy with texts decoded again as well
    const double decoding = (summary.batch_size > 1 ? summary.busy_seconds : seconds.total) - seconds.prefill;
    if (decoding <= 0) return std::nullopt;
    const auto share = [&](double part) { return std::max(0.0, part) / decoding; };
    const double named =
        seconds.draft + seconds.entropy + seconds.broadcast + seconds.score + seconds.gather + seconds.verify;
    return PhaseShares{share(seconds.draft),  share(seconds.entropy), share(seconds.broadcast), share(seconds.score),
                       share(seconds.gather), share(seconds.verify),  share(decoding - named)};
}

std::optional<double> estimated_speedup(const RunSummary& summary) {
    const auto shares = phase_shares(summary);
    if (!shares || !has_drafter(summary) || summary.batch_size > 1) return std::nullopt;
    return summary.stats.tokens_per_target_pass() * (1 - shares->draft - shares->entropy);
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
        text += "check: " + std::to_string(summary.checked - summary.check_differs) + " of " +
                counted(summary.checked, "text") + " equal decoding without a draft\n";
    return text + summary.machine.warning_line();
}

} // namespace entrodraft::launch
