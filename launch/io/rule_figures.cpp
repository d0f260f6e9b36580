// See rule_figures.h.
#include "launch/io/rule_figures.h"

namespace entrodraft::launch {

Json parameters_json(const spec::StopRuleOptions& rule) {
    using Kind = spec::StopRuleParameter::Kind;
    Json json = Json::object();
    const std::vector<spec::StopRuleParameter>& parameters = rule.type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string name = parameters[i].name;
        const double value = rule.values()[i];
        if (parameters[i].kind != Kind::on_off)
            json[name] = parameters[i].is_whole() ? Json(static_cast<std::int64_t>(value)) : Json(value);
        else if (value != 0)
            json[name] = true;
    }
    return json;
}

std::array<Column, 3> oracle_columns(double speedup, double oracle_speedup) {
    const auto known_if = [](bool is_known, double figure) { return is_known ? Json(figure) : Column::unknown(); };
    const bool is_bounded = oracle_speedup > 0, can_gain = oracle_speedup > 1;
    const double share = is_bounded ? speedup / oracle_speedup : 0;
    const double share_of_gain = can_gain ? (speedup - 1) / (oracle_speedup - 1) : 0;
    return {Column("oracle_speedup", "", known_if(is_bounded, oracle_speedup)),
            Column("share_of_oracle_speedup", "share of oracle", known_if(is_bounded, share), or_dash(share, 3)),
            Column("share_of_oracle_gain", "", known_if(can_gain, share_of_gain))};
}

} // namespace entrodraft::launch
