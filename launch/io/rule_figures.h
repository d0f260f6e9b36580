// Computes figures of stop rules' settings, for several commands. Pure. Called by simulate, tune and bench compare.
#pragma once

#include "launch/io/report.h"
#include "spec/stop/stop_rule.h"

#include <array>
#include <map>
#include <vector>

namespace entrodraft::launch {

// Returns the rule's parameters, by the names of their options.
Json parameters_json(const spec::StopRuleOptions& rule);

// Returns the oracle's speed-up (0: it does not bound this setting) and the setting's share of it. JSON also has the
// share of the oracle's gain over plain decoding, if the oracle gains anything.
std::array<Column, 3> oracle_columns(double speedup, double oracle_speedup);

// Returns the item with the highest figure of each kind, in their order.
template <typename Item, typename KindOf, typename FigureOf>
std::vector<Item> best_of_each(const std::vector<Item>& all, const KindOf& kind_of, const FigureOf& figure_of) {
    std::map<decltype(kind_of(all.front())), std::size_t> best;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto [found, is_new] = best.emplace(kind_of(all[i]), i);
        if (!is_new && figure_of(all[i]) > figure_of(all[found->second])) found->second = i;
    }
    std::vector<Item> shown;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (best.at(kind_of(all[i])) == i) shown.push_back(all[i]);
    return shown;
}

} // namespace entrodraft::launch
