// The textbook's model of speculative decoding, tabulated: which draft length is best and what it brings (Leviathan et
// al. 2023, Theorems 3.8 and 3.11, Corollary 3.9; spec/stats.h has the formulas). Pure.
//
// Called by bench theory.
#pragma once

#include "launch/io/json_line.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// alpha: the chance that a drafted token stands. c: the draft's pass over the target's, in time and in operations.
struct TheoryRow {
    double alpha = 0;
    double c = 0;
    double c_operations = 0;
    int best_k = 0; // the shortest of those with the largest walltime factor
    double expected_tokens = 0;
    double walltime_factor = 0;
    double operations_factor = 0;
    std::optional<double> bound; // (1 + alpha) / (1 + c), which the best walltime factor reaches; where alpha > c
};

// Over k from 0 to most_tokens. Throws std::invalid_argument outside of the formulas' range. Local.
TheoryRow best_draft_length(double alpha, double c, double c_operations, int most_tokens);

struct TheoryPlan {
    std::vector<double> alphas;
    std::vector<double> cs;
    std::vector<double> c_operations; // one for each of cs
    int most_tokens = 15;
};

// All alphas with the first c, then with the next. Local.
std::vector<TheoryRow> theory_rows(const TheoryPlan& plan);
// Draft lengths of the paper's figures: 1, 3, 5, 7, 10, up to most_tokens. Local.
std::vector<int> figure_lengths(int most_tokens);
// The tables of Figures 2 to 4 as text, and all figures as JSON. Local.
std::string theory_text(const TheoryPlan& plan);
Json theory_json(const TheoryPlan& plan);

} // namespace entrodraft::launch
