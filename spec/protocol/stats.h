// Counts and times of a run, per sequence and in total, and the figures computed from them. Pure.
#pragma once

#include "spec/verify/token_tree.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// Seconds of the round's steps. entropy is the part of drafting spent on entropy and stop decision; draft does not
// contain it.
struct StepSeconds {
    double draft = 0;
    double entropy = 0;
    double broadcast = 0;
    double score = 0;
    double gather = 0;
    double verify = 0;
    double prefill = 0;
    double first_token = 0; // wall time from admission to the end of the round that gave the first new token
    double total = 0;       // wall time from admission to retirement

    StepSeconds& operator+=(const StepSeconds& other);
    StepSeconds operator/(double n) const; // each divided by n
};

constexpr double kEntropyBinNats = 0.5;
constexpr std::size_t kEntropyBins = 16; // the last one has no upper bound

// Number of verified drafted tokens, and how many of them were accepted. Tokens after the first rejected one are not
// verified.
struct Acceptances {
    std::int64_t verified = 0;
    std::int64_t accepted = 0;

    Acceptances& operator+=(const Acceptances& other);
};

// Counts of drafting ahead: for the next round, while the target scores the present one.
struct DraftedAhead {
    std::int64_t rounds = 0;   // rounds for which the draft could draft ahead
    std::int64_t hits = 0;     // rounds whose outcome was among the prepared ones
    std::int64_t outcomes = 0; // prepared outcomes
    std::int64_t passes = 0;   // draft passes during the target's
    std::int64_t tokens = 0;   // tokens drafted in these passes
    std::int64_t used = 0;     // tokens of these that were broadcast
    double seconds = 0;        // time spent on it

    double hit_rate() const; // 0 before any round
    DraftedAhead& operator+=(const DraftedAhead& other);
};

// A round of a beam search, which accepts levels of drafted tokens.
struct BeamRound {
    int rows = 0;   // of the target's pass
    int levels = 0; // levels of drafted tokens; each counts as one drafted token
    int accepted = 0;
    int draft_passes = 0;
    int further_draft_rows = 0; // rows of these passes beyond one each
};

struct Stats {
    std::int64_t sequences = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t new_tokens = 0;
    std::int64_t rounds = 0;
    std::int64_t drafted = 0;
    std::int64_t drafted_levels = 0; // positions that drafts reached; with trees fewer than drafted
    std::int64_t accepted = 0;
    std::int64_t target_passes = 0;               // rounds; prefill not counted
    std::int64_t draft_passes = 0;                // prefill not counted
    std::int64_t further_draft_rows = 0;          // rows of these passes beyond one each, as trees have
    std::int64_t drafting_rounds = 0;             // rounds with a draft pass in them
    std::vector<std::int64_t> passes_of_rows;     // [r]: target passes of r rows
    std::vector<double> seconds_of_rows;          // [r]: StepSeconds::score of passes over r - 1 drafted tokens
    std::vector<std::int64_t> rounds_of_accepted; // [a]: rounds in which a drafted tokens were accepted
    std::vector<Acceptances> by_position;         // [i]: of the i-th position of a draft, from 0
    std::vector<Acceptances> by_entropy;          // [bin], if the drafter has entropies
    double overlap = 0;                           // sum over verified tokens of sum min(p / lenience, q), greedy 1 or 0
    std::int64_t overlaps = 0;                    // number of these tokens; gumbel has none
    DraftedAhead ahead;
    StepSeconds seconds;
    std::vector<Stats> levels; // for a cascade: rounds among its models; first those with the largest as the target

    // Counts a round of a chain.
    void count_round(int n_drafted, int n_accepted, int n_draft_passes);
    // Counts a round of any tree. A position counts as verified if a token there follows the accepted path.
    void count_tree(Parents parents, int last_accepted, int n_draft_passes, int n_further_rows = 0);
    void count_beams(const BeamRound& round);
    void count_seconds(const StepSeconds& of_round, int n_rows);
    // Counts the entropies of a round's drafted tokens; NaN: no entropy.
    void count_entropies(std::span<const float> entropies_nats, int n_accepted);
    Stats& operator+=(const Stats& other);

    double draft_acceptance_rate() const;  // accepted / drafted; 0 if nothing was drafted
    double mean_acceptance_length() const; // accepted / rounds + 1: tokens a round, cuts at the end aside; 0 if none
    double tokens_per_target_pass() const;
    double ms_per_token() const; // decoding time (total minus prefill) per new token
    // Time per output token of one text after its first token: (total - first_token) / (new_tokens - 1). None for a
    // text of one token.
    std::optional<double> tpot_ms() const;
    // Mean of sum min(p, q) over the verified tokens, the i.i.d. model's alpha. None if nothing was verified, or if it
    // is not known (gumbel).
    std::optional<double> alpha() const;
};

// Adds levels[i] of `from` to levels[first + i].
void add_levels(std::vector<Stats>& levels, const std::vector<Stats>& from, std::size_t first = 0);

// Costs of passes in seconds, measured by `bench latency`: the costs file.
struct Costs {
    double t_draft = 0;           // a draft pass of one row
    std::vector<double> t_target; // [r - 1]: a target pass of r rows
    // The first draft pass of a round, if it was measured separately: the target's pass has driven the draft's weights
    // out of the caches.
    std::optional<double> t_first_draft = std::nullopt;
    std::optional<double> t_round = std::nullopt; // a round's cost without its passes: broadcast, gather, verify
    double t_draft_row = 0;                       // a further row of a draft pass, as a tree's level has
    std::string disturbance = {};                 // of the machine during the measurement; empty: none known
    double target_seconds(int rows) const;        // linear between measured rows, constant beyond the ends
    // Draft seconds of one round. A cascade also has fractions of passes.
    double draft_seconds(double passes, double further_rows = 0) const;
    double first_draft_seconds() const { return t_first_draft.value_or(t_draft); }
};

// Least milliseconds of a target pass that are valid: a ratio to a shorter pass could overflow.
inline constexpr double kMinPassMs = 1e-6;
inline constexpr char kMinPassMsInWords[] = "1e-6";

// JSON text of a costs file, and back: {"schema_version": 1, "t_draft_ms": x, "t_target_ms": [..]} and, optionally,
// "t_first_draft_ms", "t_draft_row_ms", "t_round_ms" and {"machine": {"disturbance": text}}. null stands for a number
// of rows that was not measured. Other fields are ignored. Errors are std::runtime_error with file and field.
std::string to_json(const Costs& costs);
Costs read_costs(const std::string& file);
Costs costs_of(const std::string& json);

// Seconds of the passes of a run without a cascade, plus t_round for each round if it is known.
double predicted_seconds(const Stats& stats, const Costs& costs);
// The same for plain decoding of `new_tokens` tokens.
double predicted_plain_seconds(std::int64_t new_tokens, const Costs& costs);

// new tokens * t_target(1) / sum over rounds of (draft passes * t_draft + t_target(rows)); 0 if there were no passes.
// The first draft pass of a round costs t_first_draft if it is known. `costs` has one entry for each level. In a
// cascade, a draft model is the target of the level below, and its passes have the price of that target's. Throws
// std::invalid_argument if a level has no costs.
double predicted_speedup(const Stats& stats, std::span<const Costs> costs);

// Expected tokens of a target pass over k drafted tokens, with i.i.d. acceptance alpha (Leviathan et al. 2023, equation
// 1). Throws std::invalid_argument if alpha is outside [0, 1] or k is negative.
double expected_tokens(double alpha, int k);

// The i.i.d. model (Theorems 3.8 and 3.11) at a run's alpha and mean draft length, and the measured figures. A ratio
// that is not known is 0.
struct IidFigures {
    double c = 0; // t_draft / t_target(1)
    double mean_drafted = 0;
    double expected_tokens = 0; // per pass
    double walltime_factor = 0;
    double operations_factor = 0;
    double measured_operations_factor = 0;
};

// `operations_ratio` is c', the operations of a draft row over those of a target row; 0: not known. Throws
// std::invalid_argument if the run's alpha is not known or there were no rounds.
IidFigures iid_figures(const Stats& stats, const Costs& costs, double operations_ratio);

// The share of positions in `tokens` whose n-gram occurs earlier in it: a measure of repetition. 0 for texts shorter
// than n.
double repeated_ngram_share(std::span<const std::int32_t> tokens, int n);

} // namespace entrodraft::spec
