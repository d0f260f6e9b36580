// Rules by name, their settings, and their limits: see stop_rule.h.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <tuple>

namespace entrodraft::spec {

std::vector<StopRuleType> stop_rules_of_files(); // made by CMakeLists.txt out of the files in this folder

namespace {

std::vector<StopRuleType> sorted_stop_rules() {
    std::vector<StopRuleType> rules = stop_rules_of_files();
    std::ranges::sort(rules, {}, [](const StopRuleType& rule) { return std::tie(rule.position, rule.name); });
    for (const StopRuleType& rule : rules)
        if (rule.parameters.size() > StopRuleOptions::kMaxParameters)
            throw std::logic_error("the stop rule " + rule.name + " has too many parameters; raise kMaxParameters");
    return rules;
}

std::string why_value_is_invalid(const std::string& rule, const StopRuleParameter& parameter, double value) {
    const bool is_high_enough = parameter.above_min ? value > parameter.min : value >= parameter.min;
    if (std::isfinite(value) && is_high_enough && value <= parameter.max) return {};
    const std::string must = fmt::format("--stop-rule {}: {} must be ", rule, parameter.name);
    if (parameter.max < StopRuleParameter::kUnlimited)
        return fmt::format("{}from {:g} to {:g}", must, parameter.min, parameter.max);
    if (parameter.is_whole()) return fmt::format("{}at least {:g}, not {:g}", must, parameter.min, value);
    if (parameter.above_min) return fmt::format("{}a number above {:g}", must, parameter.min);
    if (parameter.min == 0) return must + "a number that is not negative";
    return fmt::format("{}a number of at least {:g}", must, parameter.min);
}

} // namespace

// ---- rules by name ----

int StopRuleType::index_of(std::string_view parameter) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameter == parameters[i].name) return static_cast<int>(i);
    return -1;
}

const std::vector<StopRuleType>& all_stop_rules() {
    static const std::vector<StopRuleType> rules = sorted_stop_rules();
    return rules;
}

const std::vector<std::string>& stop_rule_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const StopRuleType& rule : all_stop_rules())
            all.push_back(rule.name);
        return all;
    }();
    return names;
}

const StopRuleType* find_stop_rule(std::string_view name) {
    for (const StopRuleType& rule : all_stop_rules())
        if (rule.name == name) return &rule;
    return nullptr;
}

// ---- settings ----

StopRuleOptions::StopRuleOptions(std::string_view rule,
                                 std::initializer_list<std::pair<std::string_view, double>> values) {
    const StopRuleType* found = find_stop_rule(rule);
    if (found == nullptr) throw std::invalid_argument("there is no stop rule " + std::string(rule));
    rule_ = static_cast<int>(found - all_stop_rules().data());
    for (std::size_t i = 0; i < found->parameters.size(); ++i)
        values_[i] = found->parameters[i].default_value;
    for (const auto& [parameter, value] : values)
        set(parameter, value);
}

const StopRuleType& StopRuleOptions::type() const {
    return all_stop_rules()[rule_];
}

std::size_t StopRuleOptions::checked_index(std::string_view parameter) const {
    const int index = type().index_of(parameter);
    if (index < 0) throw std::invalid_argument(fmt::format("--stop-rule {} has no {}", name(), parameter));
    return static_cast<std::size_t>(index);
}

double StopRuleOptions::get(std::string_view parameter) const {
    return values_[checked_index(parameter)];
}

void StopRuleOptions::set(std::string_view parameter, double value) {
    values_[checked_index(parameter)] = value;
}

bool StopRuleOptions::is_persistent() const {
    const std::vector<StopRuleParameter>& parameters = type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].is_persistence && values_[i] != 0) return true;
    return false;
}

std::string why_invalid(const StopRuleOptions& options) {
    const StopRuleType& type = options.type();
    for (std::size_t i = 0; i < type.parameters.size(); ++i)
        if (std::string reason = why_value_is_invalid(type.name, type.parameters[i], options.values()[i]);
            !reason.empty())
            return reason;
    if (options.max_tokens < 1 || options.max_tokens > Packet::kMaxDraftTokens)
        return fmt::format("--max-draft-tokens must be 1 to {}, not {}", Packet::kMaxDraftTokens, options.max_tokens);
    if (options.min_tokens < 1 || options.min_tokens > options.max_tokens)
        return fmt::format("--stop-rule {}: min must be 1 to --max-draft-tokens ({}), not {}", type.name,
                           options.max_tokens, options.min_tokens);
    return {};
}

// Some acceptances assume that a drafted token was drawn from q, and so was not kept for a reason of its own.
std::string why_biased(const StopRuleOptions& options, Acceptance acceptance) {
    const bool goes_by_q = acceptance == Acceptance::rejection || acceptance == Acceptance::block;
    const StopRuleType& type = options.type();
    if (!goes_by_q || !options.drop_stop_token || !type.may_drop() || type.looks_at != LooksAt::token) return {};
    return fmt::format("--stop-rule {}:drop would bias --acceptance {}, as the rule looks at the token it drops; use "
                       "gumbel, or leave it out",
                       type.name, to_string(acceptance));
}

// ---- a rule under its caps ----

StopRule::StopRule(const StopRuleOptions& options, GainModel* gain) : options_(options) {
    if (const std::string reason = why_invalid(options); !reason.empty()) throw std::invalid_argument(reason);
    if (gain == nullptr && options.type().weighs_costs)
        throw std::invalid_argument("the rule " + options.name() + " needs a gain model");
    if (gain == nullptr && options.is_persistent())
        throw std::invalid_argument("a persistent rule needs what its replica has learnt");
    condition_ = options.type().make(options, gain);
}

StopRule::StopRule(const StopRule& other)
    : options_(other.options_), condition_(other.condition_->clone()), drafting_(other.drafting_), end_(other.end_) {}

StopRule& StopRule::operator=(const StopRule& other) {
    if (this != &other) *this = StopRule(other);
    return *this;
}

void StopRule::begin_round(const RoundContext& round) {
    drafting_.tokens.clear();
    drafting_.passes = drafting_.further_rows = 0;
    drafting_.asked = false;
    drafting_.round = round;
    end_ = DraftEnd::none;
    condition_->begin_round();
    if (round.may_begin_within) drafting_.round.unread = condition_->tokens_to_read(drafting_);
}

bool StopRule::wants_another(const PassCost& cost) {
    drafting_.asked = true;
    if (cost.load) drafting_.round.load = *cost.load;
    const bool may_stop = drafting_.drafted() >= options_.min_tokens || options_.min_tokens == 1;
    if (may_stop && !condition_->wants_another(drafting_, cost)) {
        end_ = DraftEnd::rule;
        return false;
    }
    drafting_.passes += cost.next;
    return true;
}

DeviceStopRule StopRule::forecast(int most) const {
    DeviceStopRule rule;
    rule.max_rows = std::max(1, most);
    rule.first = std::max(1, options_.min_tokens - drafting_.drafted());
    condition_->forecast(drafting_, rule);
    return rule;
}

StopDecision StopRule::decide(const DraftedToken& token) {
    drafting_.tokens.push_back(token);
    const bool fired = condition_->fires(drafting_);
    if (fired && drafting_.drafted() >= options_.min_tokens) {
        end_ = DraftEnd::rule;
        const StopRuleType& type = options_.type();
        const bool drops = type.weighs_costs || (options_.drop_stop_token && type.may_drop());
        return drops ? StopDecision::drop : StopDecision::stop;
    }
    end_ = drafting_.drafted() >= options_.max_tokens ? DraftEnd::cap : DraftEnd::none;
    return end_ == DraftEnd::none ? StopDecision::go_on : StopDecision::stop;
}

} // namespace entrodraft::spec
