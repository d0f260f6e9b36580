// The functions that drafters share, and drafters by name: see drafter.h.
#include "spec/draft/drafter.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace entrodraft::spec {

std::vector<DrafterType> drafters_of_files(); // CMakeLists.txt makes it from the files in this folder

void Draft::clear() {
    tokens.clear();
    parents.clear();
    entropies_nats.clear();
    probabilities.clear();
    margins.clear();
    q = {};
    end = DraftEnd::none;
    passes = 0;
    further_rows = 0;
    seconds = 0;
    caught_up = 0;
    catch_up_seconds = 0;
    entropy_seconds = 0;
    ahead = {};
    levels.clear();
}

void Draft::add(TokenId token, const DraftedToken& seen) {
    add(token, seen, static_cast<int>(tokens.size()) - 1);
}

void Draft::add(TokenId token, const DraftedToken& seen, int parent) {
    tokens.push_back(token);
    parents.push_back(static_cast<std::int8_t>(parent));
    entropies_nats.push_back(seen.entropy_nats);
    probabilities.push_back(seen.probability);
    margins.push_back(seen.margin);
}

std::vector<float> Draft::entropies_on(std::span<const int> path) const {
    std::vector<float> entropies;
    for (const int node : path)
        entropies.push_back(entropies_nats[node]);
    const std::vector<int> rest = first_path(parents, path.empty() ? -1 : path.back());
    if (!rest.empty()) entropies.push_back(entropies_nats[rest.front()]);
    return entropies;
}

RoundFeedback feedback_of(const Draft& draft, std::span<const int> accepted_path) {
    const std::vector<int> best = first_path(draft.parents);
    RoundFeedback feedback;
    feedback.drafted = static_cast<int>(best.size());
    feedback.accepted = static_cast<int>(std::ranges::mismatch(best, accepted_path).in1 - best.begin());
    feedback.cut_short = is_cut_short(draft.end);
    feedback.rows = static_cast<int>(draft.tokens.size()) + 1;
    feedback.emitted = static_cast<int>(accepted_path.size()) + 1;
    feedback.caught_up = draft.caught_up;
    feedback.catch_up_seconds = draft.catch_up_seconds;
    return feedback;
}

DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size) {
    DraftLimits limits;
    limits.vocab_size = vocab_size;
    for (const std::int64_t token : target.eos_token_ids)
        limits.eos_tokens.push_back(static_cast<TokenId>(token));
    return limits;
}

bool DraftLimits::take(const DraftTask& task, int most, TokenId token, const DraftedToken& seen) const {
    const bool is_dropped = task.rule->decide(seen) == StopDecision::drop;
    if (!is_dropped) task.draft->add(token, seen);
    task.draft->end = is_dropped ? task.rule->end() : why_end(task, most, task.rule->end());
    return !is_dropped;
}

DraftEnd DraftLimits::why_end(const DraftTask& task, int most, DraftEnd rule_end) const {
    if (rule_end != DraftEnd::none) return rule_end;
    const std::vector<TokenId>& tokens = task.draft->tokens;
    const bool ends = std::ranges::find(eos_tokens, tokens.back()) != eos_tokens.end();
    if (ends && !task.request->ignore_eos) return DraftEnd::end_of_text;
    const int drafted = static_cast<int>(tokens.size());
    if (drafted < most) return DraftEnd::none;
    if (drafted < task.max_tokens) return DraftEnd::context;
    return drafted < task.left_tokens ? DraftEnd::cap : DraftEnd::budget; // the batch's pass has room for this cap
}

std::vector<float> hidden_of_rows(const model::PassResult& result, std::span<const int> rows, std::size_t n_layers,
                                  const model::ModelConfig& target) {
    if (n_layers == 0) return {};
    const auto width = static_cast<std::size_t>(target.hidden_size);
    const std::size_t of_layer = result.hidden.size() / n_layers;
    std::vector<float> states;
    for (const int row : rows)
        for (std::size_t layer = 0; layer < n_layers; ++layer) {
            const auto state = result.hidden.subspan(layer * of_layer + static_cast<std::size_t>(row) * width, width);
            states.insert(states.end(), state.begin(), state.end());
        }
    return states;
}

int begin_draft(const DraftTask& task, std::size_t context, const RoundContext& round) {
    task.draft->clear();
    task.rule->begin_round(round);
    const auto room = static_cast<std::ptrdiff_t>(context) - static_cast<std::ptrdiff_t>(task.tokens.size()) + 1;
    const int cap = std::min(task.max_tokens, task.rule->options().max_tokens);
    const int most = static_cast<int>(std::clamp<std::ptrdiff_t>(room, 0, std::max(cap, 0)));
    if (most == 0) task.draft->end = task.max_tokens <= 0 ? DraftEnd::budget : DraftEnd::context;
    return most;
}

// ---- several, of which the first that drafts anything in a round provides the draft ----

namespace {

class FallbackDrafter final : public Drafter {
  public:
    explicit FallbackDrafter(std::vector<std::unique_ptr<Drafter>> drafters)
        : Drafter(DrafterFacts{}), drafters_(std::move(drafters)) {
        if (drafters_.empty()) throw std::invalid_argument("no drafter to choose from");
        for (const auto& drafter : drafters_) {
            const DrafterFacts& own = drafter->facts();
            facts_.name += (facts_.name.empty() ? "" : ",") + own.name;
            facts_.weight_bytes = std::max(facts_.weight_bytes, own.weight_bytes);
            if (facts_.hidden_layers.empty()) facts_.hidden_layers = own.hidden_layers; // one head at most
        }
    }

    void begin_sequence(int slot, const Request& request) override {
        drafted_[slot] = nullptr;
        for (const auto& drafter : drafters_)
            drafter->begin_sequence(slot, request);
    }
    void prefill(int slot, std::span<const TokenId> prompt) override {
        for (const auto& drafter : drafters_)
            drafter->prefill(slot, prompt);
    }
    void observe(int slot, const TargetOutcome& outcome) override {
        const Drafter* const drafted = outcome.token_after ? std::exchange(drafted_[slot], nullptr) : nullptr;
        const TargetOutcome states = {outcome.first_position, outcome.states};
        for (const auto& drafter : drafters_)
            drafter->observe(slot, drafter.get() == drafted ? outcome : states);
    }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            propose_first(task);
    }

  private:
    void propose_first(const DraftTask& task) {
        int passes = 0;
        double seconds = 0, entropy_seconds = 0;
        for (const auto& drafter : drafters_) {
            Draft& draft = *task.draft;
            drafter->propose(task);
            draft.passes = passes += draft.passes;
            draft.seconds = seconds += draft.seconds;
            draft.entropy_seconds = entropy_seconds += draft.entropy_seconds;
            if (draft.tokens.empty()) continue;
            drafted_[task.slot] = drafter.get();
            return;
        }
    }

    std::vector<std::unique_ptr<Drafter>> drafters_;
    std::map<int, Drafter*> drafted_; // [slot] which one drafted in this round; null: none
};

} // namespace

std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters) {
    return std::make_unique<FallbackDrafter>(std::move(drafters));
}

// ---- by name ----

DrafterValues DrafterType::all_values(const DrafterValues& given, bool in_list) const {
    DrafterValues values;
    for (const DrafterParameter& parameter : parameters)
        values[parameter.name] = in_list && parameter.in_list ? *parameter.in_list : parameter.default_value;
    for (const auto& [key, value] : given) {
        const auto found = values.find(key);
        if (found == values.end()) throw std::invalid_argument(name + " has no parameter " + key);
        found->second = value;
    }
    for (const DrafterParameter& parameter : parameters)
        if (const int value = values[parameter.name]; value < parameter.min || value > parameter.max)
            throw std::invalid_argument(fmt::format("{} of {} must be from {} to {}, not {}", parameter.name, name,
                                                    parameter.min, parameter.max, value));
    if (const std::string why = why_not ? why_not(values) : ""; !why.empty()) throw std::invalid_argument(why);
    return values;
}

const std::vector<DrafterType>& all_drafters() {
    static const std::vector<DrafterType> types = [] {
        std::vector<DrafterType> all = drafters_of_files();
        std::ranges::sort(all, {}, [](const DrafterType& type) { return std::tie(type.position, type.name); });
        return all;
    }();
    return types;
}

const std::vector<std::string>& drafter_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const DrafterType& type : all_drafters())
            all.push_back(type.name);
        return all;
    }();
    return names;
}

const DrafterType& drafter_type(std::string_view name) {
    for (const DrafterType& type : all_drafters())
        if (type.name == name) return type;
    throw std::invalid_argument("there is no drafter " + std::string(name));
}

namespace {

std::unique_ptr<Drafter> first_of(std::span<const NamedDrafter> named, DrafterParts parts, bool in_list) {
    parts.takes_turns = named.size() > 1;
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const NamedDrafter& one : named)
        drafters.push_back(one.type().make_of(parts, one.type().all_values(one.values, in_list)));
    return drafters.size() == 1 ? std::move(drafters.front()) : make_fallback_drafter(std::move(drafters));
}

} // namespace

std::unique_ptr<Drafter> make_drafter(std::span<const NamedDrafter> named, const DrafterParts& parts,
                                      const std::optional<AheadOptions>& ahead) {
    const bool in_list = named.size() > 1;
    if (!ahead) return first_of(named, parts, in_list);
    const std::span<const NamedDrafter> before = named.first(named.size() - 1);
    return make_ahead_drafter(*parts.models.at(0), *ahead, parts,
                              before.empty() ? nullptr : first_of(before, parts, in_list));
}

} // namespace entrodraft::spec
