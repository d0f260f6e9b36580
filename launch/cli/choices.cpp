// Closed sets of values: see choices.h.
#include "launch/cli/choices.h"

#include "dist/layout.h"
#include "launch/cli/options.h"
#include "model/chat/chat_template.h"
#include "model/config.h"
#include "spec/draft/drafter_type.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/verify.h"

namespace entrodraft::launch {

namespace {

template <typename Kinds> Names names_of_kinds(Names names, const Kinds& kinds) {
    for (const auto kind : kinds)
        names.push_back(to_string(kind));
    return names;
}

Names with_stop_rules(Names names) {
    names.insert(names.end(), spec::stop_rule_names().begin(), spec::stop_rule_names().end());
    return names;
}

} // namespace

const Names& device_choices() {
    static const Names names = {"auto", "cpu", "cuda"};
    return names;
}

const Names& dtype_choices() {
    using enum model::WeightType;
    static const Names names = names_of_kinds({"auto"}, std::vector{float32, bfloat16, float16, int8, float8});
    return names;
}

const Names& cpu_dtype_choices() {
    static const Names names(dtype_choices().begin(), dtype_choices().end() - 1); // all but float8
    return names;
}

const Names& placement_choices() {
    using enum dist::DraftPlacement;
    static const Names names = names_of_kinds({}, std::vector{colocated, dedicated, sharded});
    return names;
}

const Names& replayed_placement_choices() {
    using enum dist::DraftPlacement;
    static const Names names = names_of_kinds({}, std::vector{colocated, dedicated});
    return names;
}

const Names& drafter_choices() {
    return spec::drafter_names();
}

const Names& ngram_match_choices() {
    static const Names names = {"latest", "first"};
    return names;
}

const Names& stop_rule_choices() {
    return spec::stop_rule_names();
}

const Names& compared_rule_choices() {
    static const Names names = with_stop_rules({"all", "none"});
    return names;
}

const Names& replayed_rule_choices() {
    static const Names names = with_stop_rules({"all", "oracle", "grid"});
    return names;
}

const Names& entropy_unit_choices() {
    static const Names names = {"nats", "bits"};
    return names;
}

const Names& entropy_of_choices() {
    static const Names names = {"raw", "adjusted"};
    return names;
}

const Names& acceptance_choices() {
    using enum spec::Acceptance;
    static const Names names = names_of_kinds({}, std::vector{rejection, block, gumbel, typical});
    return names;
}

const Names& chat_template_choices() {
    static const Names names = [] {
        Names all;
        for (const std::string_view name : model::chat_form_names())
            all.emplace_back(name);
        return all;
    }();
    return names;
}

} // namespace entrodraft::launch
