// Counts, times and the formulas that use them; the costs file. See stats.h.
#include "spec/protocol/stats.h"

#include "model/files/json_file.h"
#include "model/files/json_object.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

using Json = nlohmann::json;

constexpr int kCostsVersion = 1;
constexpr std::size_t kMaxCostsBytes = 1 << 20;
constexpr double kMsPerSecond = 1000;

double ratio(double numerator, double denominator) {
    return denominator != 0 ? numerator / denominator : 0;
}
double ratio(std::int64_t numerator, std::int64_t denominator) {
    return ratio(static_cast<double>(numerator), static_cast<double>(denominator));
}

[[noreturn]] void bad_costs(const std::string& file, const std::string& reason) {
    throw std::runtime_error(file + ": " + reason);
}

double seconds_of(const Json& value, double least, const std::string& what) {
    const double ms = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!std::isfinite(ms) || ms < least)
        model::refuse_value(what,
                            fmt::format("must be a number of milliseconds {}",
                                        least > 0 ? fmt::format("from {} up", kMinPassMsInWords) : "not below 0"));
    return ms / kMsPerSecond;
}

std::string read_text(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) bad_costs(file, std::string("cannot be opened: ") + std::strerror(errno));
    std::string text(kMaxCostsBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.bad()) bad_costs(file, "cannot be read; it must be a file");
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxCostsBytes) bad_costs(file, "is larger than 1 MiB and thus no costs file");
    return text;
}

void add_at(std::vector<double>& sums, int index, double value) {
    const auto at = static_cast<std::size_t>(index);
    if (sums.size() <= at) sums.resize(at + 1);
    sums[at] += value;
}

template <typename T> void add_each(std::vector<T>& to, const std::vector<T>& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
        to[i] += from[i];
}

void count_at(std::vector<std::int64_t>& counts, int index) {
    const auto at = static_cast<std::size_t>(index);
    if (counts.size() <= at) counts.resize(at + 1);
    ++counts[at];
}

} // namespace

Acceptances& Acceptances::operator+=(const Acceptances& other) {
    verified += other.verified;
    accepted += other.accepted;
    return *this;
}

double DraftedAhead::hit_rate() const {
    return rounds > 0 ? static_cast<double>(hits) / static_cast<double>(rounds) : 0;
}

DraftedAhead& DraftedAhead::operator+=(const DraftedAhead& other) {
    rounds += other.rounds;
    hits += other.hits;
    outcomes += other.outcomes;
    passes += other.passes;
    tokens += other.tokens;
    used += other.used;
    seconds += other.seconds;
    return *this;
}

StepSeconds& StepSeconds::operator+=(const StepSeconds& other) {
    draft += other.draft;
    entropy += other.entropy;
    broadcast += other.broadcast;
    score += other.score;
    gather += other.gather;
    verify += other.verify;
    prefill += other.prefill;
    first_token += other.first_token;
    total += other.total;
    return *this;
}

StepSeconds StepSeconds::operator/(double n) const {
    return {draft / n,  entropy / n, broadcast / n,   score / n, gather / n,
            verify / n, prefill / n, first_token / n, total / n};
}

namespace {

struct RoundCounts {
    int drafted = 0;
    int levels = 0;   // positions that the draft reached
    int verified = 0; // positions of these that were verified
    int accepted = 0;
    int passes = 0;
    int further_rows = 0; // rows of these passes beyond one each
    int rows = 0;         // of the target's pass
};

void count(Stats& stats, const RoundCounts& round) {
    ++stats.rounds;
    ++stats.target_passes;
    stats.drafted += round.drafted;
    stats.drafted_levels += round.levels;
    stats.accepted += round.accepted;
    stats.draft_passes += round.passes;
    stats.further_draft_rows += round.further_rows;
    stats.drafting_rounds += round.passes > 0 ? 1 : 0;
    count_at(stats.passes_of_rows, round.rows);
    count_at(stats.rounds_of_accepted, round.accepted);
    const auto verified = static_cast<std::size_t>(round.verified);
    if (stats.by_position.size() < verified) stats.by_position.resize(verified);
    for (int i = 0; i < round.verified; ++i)
        stats.by_position[i] += {1, i < round.accepted ? 1 : 0};
}

} // namespace

void Stats::count_round(int n_drafted, int n_accepted, int n_draft_passes) {
    if (n_drafted < 0 || n_accepted < 0 || n_accepted > n_drafted || n_draft_passes < 0)
        throw std::invalid_argument(fmt::format("a round of {} drafted and {} accepted tokens in {} passes cannot be",
                                                n_drafted, n_accepted, n_draft_passes));
    count(*this,
          {n_drafted, n_drafted, std::min(n_drafted, n_accepted + 1), n_accepted, n_draft_passes, 0, n_drafted + 1});
}

void Stats::count_tree(Parents parents, int last_accepted, int n_draft_passes, int n_further_rows) {
    const auto n_drafted = static_cast<int>(parents.size());
    int n_levels = 0;
    bool goes_on = false; // a drafted token follows the accepted path
    for (int node = 0; node < n_drafted; ++node) {
        n_levels = std::max(n_levels, depth_of(parents, node));
        goes_on = goes_on || parent_of(parents, node) == last_accepted;
    }
    const int n_accepted = depth_of(parents, last_accepted);
    count(*this, {n_drafted, n_levels, n_accepted + (goes_on ? 1 : 0), n_accepted, n_draft_passes, n_further_rows,
                  n_drafted + 1});
}

void Stats::count_beams(const BeamRound& round) {
    count(*this, {round.levels, round.levels, std::min(round.levels, round.accepted + 1), round.accepted,
                  round.draft_passes, round.further_draft_rows, round.rows});
}

void Stats::count_seconds(const StepSeconds& of_round, int n_rows) {
    seconds += of_round;
    add_at(seconds_of_rows, n_rows, of_round.score);
}

void Stats::count_entropies(std::span<const float> entropies_nats, int n_accepted) {
    for (int i = 0; i < std::min(static_cast<int>(entropies_nats.size()), n_accepted + 1); ++i) {
        const auto entropy = static_cast<double>(entropies_nats[i]);
        if (std::isnan(entropy)) continue;
        by_entropy.resize(kEntropyBins);
        const double bin = std::clamp(entropy / kEntropyBinNats, 0.0, static_cast<double>(kEntropyBins - 1));
        by_entropy[static_cast<std::size_t>(bin)] += {1, i < n_accepted ? 1 : 0};
    }
}

Stats& Stats::operator+=(const Stats& other) {
    sequences += other.sequences;
    prompt_tokens += other.prompt_tokens;
    new_tokens += other.new_tokens;
    rounds += other.rounds;
    drafted += other.drafted;
    drafted_levels += other.drafted_levels;
    accepted += other.accepted;
    target_passes += other.target_passes;
    draft_passes += other.draft_passes;
    further_draft_rows += other.further_draft_rows;
    drafting_rounds += other.drafting_rounds;
    add_each(passes_of_rows, other.passes_of_rows);
    add_each(seconds_of_rows, other.seconds_of_rows);
    add_each(rounds_of_accepted, other.rounds_of_accepted);
    add_each(by_position, other.by_position);
    add_each(by_entropy, other.by_entropy);
    ahead += other.ahead;
    overlap += other.overlap;
    overlaps += other.overlaps;
    seconds += other.seconds;
    add_levels(levels, other.levels);
    return *this;
}

void add_levels(std::vector<Stats>& levels, const std::vector<Stats>& from, std::size_t first) {
    if (!from.empty() && levels.size() < first + from.size()) levels.resize(first + from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
        levels[first + i] += from[i];
}

std::optional<double> Stats::alpha() const {
    if (overlaps == 0) return std::nullopt;
    return overlap / static_cast<double>(overlaps);
}

double Stats::draft_acceptance_rate() const {
    return ratio(accepted, drafted);
}
double Stats::mean_acceptance_length() const {
    return rounds > 0 ? ratio(accepted, rounds) + 1 : 0;
}
double Stats::tokens_per_target_pass() const {
    return ratio(new_tokens, target_passes);
}
double Stats::ms_per_token() const {
    return ratio((seconds.total - seconds.prefill) * kMsPerSecond, static_cast<double>(new_tokens));
}

std::optional<double> Stats::tpot_ms() const {
    if (new_tokens < 2) return std::nullopt;
    return (seconds.total - seconds.first_token) * kMsPerSecond / static_cast<double>(new_tokens - 1);
}

double Costs::draft_seconds(double passes, double further_rows) const {
    return std::clamp(passes, 0.0, 1.0) * first_draft_seconds() + std::max(passes - 1, 0.0) * t_draft +
           further_rows * t_draft_row;
}

double Costs::target_seconds(int rows) const {
    if (rows < 1 || t_target.empty())
        throw std::invalid_argument(fmt::format("there is no target pass of {} rows", rows));
    const auto wanted = std::min(static_cast<std::size_t>(rows), t_target.size()) - 1;
    const auto measured = [this](std::size_t index) { return !std::isnan(t_target[index]); };
    std::size_t below = wanted, above = wanted;
    while (below > 0 && !measured(below))
        --below;
    while (above + 1 < t_target.size() && !measured(above))
        ++above;
    if (!measured(below)) return t_target[above];
    if (!measured(above) || above == below) return t_target[below];
    const double share = static_cast<double>(wanted - below) / static_cast<double>(above - below);
    return std::lerp(t_target[below], t_target[above], share);
}

std::string to_json(const Costs& costs) {
    Json rows = Json::array();
    for (const double seconds : costs.t_target)
        rows.push_back(std::isnan(seconds) ? Json() : Json(seconds * kMsPerSecond));
    nlohmann::ordered_json json = {{"schema_version", kCostsVersion}, {"t_draft_ms", costs.t_draft * kMsPerSecond}};
    if (costs.t_first_draft) json["t_first_draft_ms"] = *costs.t_first_draft * kMsPerSecond;
    if (costs.t_draft_row > 0) json["t_draft_row_ms"] = costs.t_draft_row * kMsPerSecond;
    if (costs.t_round) json["t_round_ms"] = *costs.t_round * kMsPerSecond;
    json["t_target_ms"] = rows;
    if (!costs.disturbance.empty()) json["machine"] = {{"disturbance", costs.disturbance}};
    return json.dump();
}

namespace {

Costs costs_in(const std::string& text, const std::string& file) {
    const Json json = model::parse_json(text, file);
    if (!json.is_object()) bad_costs(file, "does not hold one JSON object");
    const model::JsonObject object(json, file + ": field ");
    const Json& version = object.at("schema_version");
    if (!version.is_number_integer() || version != kCostsVersion)
        model::refuse_value(object.name_of("schema_version"), fmt::format("must be {}", kCostsVersion));
    Costs costs;
    costs.t_draft = seconds_of(object.at("t_draft_ms"), 0, object.name_of("t_draft_ms"));
    if (const Json* first = object.find("t_first_draft_ms"))
        costs.t_first_draft = seconds_of(*first, 0, object.name_of("t_first_draft_ms"));
    if (const Json* row = object.find("t_draft_row_ms"))
        costs.t_draft_row = seconds_of(*row, 0, object.name_of("t_draft_row_ms"));
    if (const Json* round = object.find("t_round_ms"))
        costs.t_round = seconds_of(*round, 0, object.name_of("t_round_ms"));
    const Json& rows = object.list("t_target_ms", "a list of milliseconds");
    if (rows.empty()) model::refuse_value(object.name_of("t_target_ms"), "must be a list of milliseconds");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool is_measured = i == 0 || !rows[i].is_null();
        costs.t_target.push_back(
            is_measured ? seconds_of(rows[i], kMinPassMs, object.name_of(fmt::format("t_target_ms[{}]", i)))
                        : std::numeric_limits<double>::quiet_NaN());
    }
    const auto disturbance = nlohmann::json::json_pointer("/machine/disturbance");
    if (json.contains(disturbance) && json[disturbance].is_string()) costs.disturbance = json[disturbance];
    return costs;
}

} // namespace

Costs read_costs(const std::string& file) {
    try {
        return costs_in(read_text(file), file);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(std::string(error.what()) + "; entrodraft bench latency --output writes such files");
    }
}

Costs costs_of(const std::string& json) {
    return costs_in(json, "costs");
}

namespace {

// Seconds of one level's target passes, and of its draft passes unless a level below makes them.
double level_seconds(const Stats& stats, const Costs& costs, bool is_last) {
    double seconds = 0;
    if (is_last)
        seconds = static_cast<double>(stats.drafting_rounds) * costs.first_draft_seconds() +
                  static_cast<double>(stats.draft_passes - stats.drafting_rounds) * costs.t_draft +
                  static_cast<double>(stats.further_draft_rows) * costs.t_draft_row;
    for (std::size_t rows = 1; rows < stats.passes_of_rows.size(); ++rows)
        if (stats.passes_of_rows[rows] > 0)
            seconds += static_cast<double>(stats.passes_of_rows[rows]) * costs.target_seconds(static_cast<int>(rows));
    return seconds;
}

} // namespace

double predicted_seconds(const Stats& stats, const Costs& costs) {
    return level_seconds(stats, costs, true) + static_cast<double>(stats.rounds) * costs.t_round.value_or(0);
}

double predicted_plain_seconds(std::int64_t new_tokens, const Costs& costs) {
    return static_cast<double>(new_tokens) * (costs.target_seconds(1) + costs.t_round.value_or(0));
}

double predicted_speedup(const Stats& stats, std::span<const Costs> costs) {
    if (costs.size() <= stats.levels.size())
        throw std::invalid_argument(
            fmt::format("a cascade of {} levels has costs of {}", stats.levels.size() + 1, costs.size()));
    double seconds = level_seconds(stats, costs[0], stats.levels.empty());
    for (std::size_t level = 0; level < stats.levels.size(); ++level)
        seconds += level_seconds(stats.levels[level], costs[level + 1], level + 1 == stats.levels.size());
    return ratio(static_cast<double>(stats.new_tokens) * costs[0].target_seconds(1), seconds);
}

IidFigures iid_figures(const Stats& stats, const Costs& costs, double operations_ratio) {
    if (!stats.alpha() || stats.rounds == 0) throw std::invalid_argument("the run's alpha is not known");
    IidFigures figures;
    figures.c = ratio(costs.t_draft, costs.target_seconds(1));
    figures.mean_drafted = ratio(stats.drafted_levels, stats.rounds);
    // A mean draft length between two whole numbers is interpolated linearly.
    const int k = static_cast<int>(figures.mean_drafted);
    const double share = figures.mean_drafted - k, alpha = *stats.alpha();
    figures.expected_tokens = std::lerp(expected_tokens(alpha, k), expected_tokens(alpha, k + 1), share);
    figures.walltime_factor = figures.expected_tokens / (figures.mean_drafted * figures.c + 1);
    if (operations_ratio <= 0) return figures;
    const double drafted = ratio(stats.drafted, stats.rounds); // a tree has more tokens than positions
    figures.operations_factor = (drafted * operations_ratio + drafted + 1) / figures.expected_tokens;
    const double rows = static_cast<double>(stats.drafted + stats.rounds);
    figures.measured_operations_factor =
        ratio(static_cast<double>(stats.draft_passes) * operations_ratio + rows, static_cast<double>(stats.new_tokens));
    return figures;
}

double expected_tokens(double alpha, int k) {
    if (!(alpha >= 0 && alpha <= 1)) throw std::invalid_argument("alpha must be in [0, 1]");
    if (k < 0) throw std::invalid_argument("k, the number of drafted tokens, must not be negative");
    double sum = 0; // (1 - alpha^(k+1)) / (1 - alpha), as a sum that is also right for alpha = 1
    for (int i = 0; i <= k; ++i)
        sum = sum * alpha + 1;
    return sum;
}

double repeated_ngram_share(std::span<const std::int32_t> tokens, int n) {
    if (n < 1) throw std::invalid_argument(fmt::format("an n-gram has at least 1 token, not {}", n));
    const auto length = static_cast<std::size_t>(n);
    if (tokens.size() < length) return 0;
    const auto less = [&](std::size_t a, std::size_t b) {
        return std::ranges::lexicographical_compare(tokens.subspan(a, length), tokens.subspan(b, length));
    };
    std::set<std::size_t, decltype(less)> seen(less);
    const std::size_t positions = tokens.size() - length + 1;
    for (std::size_t i = 0; i < positions; ++i)
        seen.insert(i);
    return static_cast<double>(positions - seen.size()) / static_cast<double>(positions);
}

} // namespace entrodraft::spec
