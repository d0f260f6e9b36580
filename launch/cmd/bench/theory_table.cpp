// The textbook's tables: see theory_table.h.
#include "launch/cmd/bench/theory_table.h"

#include "launch/environment.h"
#include "spec/stats.h"

#include <functional>
#include <sstream>

namespace entrodraft::launch {

namespace {

using Table = std::vector<std::vector<std::string>>;

// A number as it was given: 0.05, not 0.050000.
std::string short_number(double value) {
    std::ostringstream text;
    text << value;
    return text.str();
}

// A row for each alpha, a column for each of `heads`.
std::string table_over_alpha(const TheoryPlan& plan, const std::vector<std::string>& heads,
                             const std::function<std::string(std::size_t alpha, std::size_t column)>& cell) {
    Table table = {{"alpha"}};
    table[0].insert(table[0].end(), heads.begin(), heads.end());
    for (std::size_t i = 0; i < plan.alphas.size(); ++i) {
        table.push_back({short_number(plan.alphas[i])});
        for (std::size_t column = 0; column < heads.size(); ++column)
            table.back().push_back(cell(i, column));
    }
    return format_table(table);
}

// The factors at fixed draft lengths (Figure 4), for one c.
std::string factors_text(const TheoryPlan& plan, std::size_t of_c) {
    const std::vector<int> lengths = figure_lengths(plan.most_tokens);
    std::vector<std::string> heads;
    for (const char* name : {"walltime k=", "operations k="})
        for (const int k : lengths)
            heads.push_back(name + std::to_string(k));
    const auto cell = [&](std::size_t i, std::size_t column) {
        const int k = lengths[column % lengths.size()];
        return format_number(column < lengths.size()
                                 ? spec::walltime_factor(plan.alphas[i], k, plan.cs[of_c])
                                 : spec::operations_factor(plan.alphas[i], k, plan.c_operations[of_c]),
                             2);
    };
    return "Factors over plain decoding, c " + short_number(plan.cs[of_c]) + ", c in operations " +
           short_number(plan.c_operations[of_c]) + " (Figure 4)\n" + table_over_alpha(plan, heads, cell);
}

Json row_json(const TheoryRow& row) {
    return {{"alpha", row.alpha},
            {"c", row.c},
            {"c_operations", row.c_operations},
            {"best_k", row.best_k},
            {"expected_tokens", row.expected_tokens},
            {"walltime_factor", row.walltime_factor},
            {"operations_factor", row.operations_factor},
            {"bound", row.bound ? Json(*row.bound) : Json()}};
}

} // namespace

TheoryRow best_draft_length(double alpha, double c, double c_operations, int most_tokens) {
    TheoryRow row = {alpha, c, c_operations, 0, 1, spec::walltime_factor(alpha, 0, c), 1, std::nullopt};
    for (int k = 1; k <= most_tokens; ++k) {
        const double factor = spec::walltime_factor(alpha, k, c);
        if (factor <= row.walltime_factor) continue;
        row.best_k = k;
        row.walltime_factor = factor;
    }
    row.expected_tokens = spec::expected_tokens(alpha, row.best_k);
    row.operations_factor = spec::operations_factor(alpha, row.best_k, c_operations);
    if (alpha > c) row.bound = (1 + alpha) / (1 + c);
    return row;
}

std::vector<TheoryRow> theory_rows(const TheoryPlan& plan) {
    std::vector<TheoryRow> rows;
    for (std::size_t i = 0; i < plan.cs.size(); ++i)
        for (const double alpha : plan.alphas)
            rows.push_back(best_draft_length(alpha, plan.cs[i], plan.c_operations[i], plan.most_tokens));
    return rows;
}

std::vector<int> figure_lengths(int most_tokens) {
    std::vector<int> lengths;
    for (const int k : {1, 3, 5, 7, 10})
        if (k <= most_tokens) lengths.push_back(k);
    return lengths;
}

std::string theory_text(const TheoryPlan& plan) {
    const std::vector<int> lengths = figure_lengths(plan.most_tokens);
    const std::vector<TheoryRow> rows = theory_rows(plan);
    std::vector<std::string> of_lengths, of_cs;
    for (const int k : lengths)
        of_lengths.push_back("k=" + std::to_string(k));
    for (const double c : plan.cs)
        of_cs.push_back("c=" + short_number(c));
    const auto over_c = [&](const std::function<std::string(const TheoryRow&)>& cell) {
        return table_over_alpha(plan, of_cs, [&](std::size_t i, std::size_t column) {
            return cell(rows[column * plan.alphas.size() + i]);
        });
    };
    std::string text = "Acceptances independent of each other, each with chance alpha; k drafted tokens a round; c: a "
                       "draft pass over a target pass\n\nExpected tokens a target pass (Figure 2)\n";
    text += table_over_alpha(plan, of_lengths, [&](std::size_t i, std::size_t column) {
        return format_number(spec::expected_tokens(plan.alphas[i], lengths[column]), 3);
    });
    text += "\nBest k, of 0 to " + std::to_string(plan.most_tokens) + " (Figure 3)\n" +
            over_c([](const TheoryRow& row) { return std::to_string(row.best_k); });
    text += "\nWalltime factor at the best k, and its bound (1 + alpha) / (1 + c) where alpha > c\n" +
            over_c([](const TheoryRow& row) {
                return format_number(row.walltime_factor, 3) +
                       (row.bound ? " >= " + format_number(*row.bound, 3) : "  no gain");
            });
    text += "\nOperations factor at the best k\n" +
            over_c([](const TheoryRow& row) { return format_number(row.operations_factor, 3); });
    for (std::size_t i = 0; i < plan.cs.size(); ++i)
        text += "\n" + factors_text(plan, i);
    return text;
}

Json theory_json(const TheoryPlan& plan) {
    Json json = {{"command", "theory"},
                 {"most_tokens", plan.most_tokens},
                 {"rows", Json::array()},
                 {"expected_tokens", Json::array()},
                 {"factors", Json::array()}};
    for (const TheoryRow& row : theory_rows(plan))
        json["rows"].push_back(row_json(row));
    for (const int k : figure_lengths(plan.most_tokens)) {
        for (const double alpha : plan.alphas)
            json["expected_tokens"].push_back(
                {{"k", k}, {"alpha", alpha}, {"expected_tokens", spec::expected_tokens(alpha, k)}});
        for (std::size_t i = 0; i < plan.cs.size(); ++i)
            for (const double alpha : plan.alphas)
                json["factors"].push_back(
                    {{"k", k},
                     {"c", plan.cs[i]},
                     {"c_operations", plan.c_operations[i]},
                     {"alpha", alpha},
                     {"walltime_factor", spec::walltime_factor(alpha, k, plan.cs[i])},
                     {"operations_factor", spec::operations_factor(alpha, k, plan.c_operations[i])}});
    }
    return json;
}

} // namespace entrodraft::launch
