// A target and a draft in an engine, on one rank or on all ranks of a communicator. Also drafters and communicators
// that misbehave on purpose. For tests only.
#pragma once

#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/chain.h"
#include "spec/draft/sharded_draft_model.h"
#include "spec/gpu/device_round.h"
#include "spec/round/engine.h"
#include "tests/model/golden_models.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft {

using spec::TokenId;

struct RunOptions {
    spec::StopRuleOptions rule = {};
    spec::Acceptance acceptance = spec::Acceptance::rejection;
    double lenience = 1;
    double timeout_seconds = 60;
    int vocab_size = 0;                              // tokens that count; 0: all that both models know
    int n_slots = 1;                                 // sequences decoded together
    int num_beams = 0;                               // most beams of a beam search; 0: none
    std::optional<spec::Costs> costs = std::nullopt; // for expected-gain; none: measured
    std::vector<int> hidden_layers = {};             // of the target; the drafter reads them
};

inline std::unique_ptr<spec::Drafter> model_drafter_of(model::Decoder& decoder, const spec::DraftLimits& limits,
                                                       const dist::Clock& clock, int n_slots = 1,
                                                       spec::DeviceRound* device = nullptr) {
    return spec::make_chain_drafter(spec::make_model_source(decoder, limits.vocab_size, n_slots, device),
                                    {limits, clock, n_slots});
}

inline spec::ChoiceSetting choice_of(const spec::Request& request,
                                     spec::Acceptance acceptance = spec::Acceptance::rejection) {
    return {acceptance, request.sampling.seed, request.sequence_key};
}

// The target is sharded across `tp`, the draft is on this rank alone; if `replica` and `tp` are null, this rank is
// alone. Both models hold target_options.decoder.n_slots sequences. A dedicated drafter's rank has the target too, but
// its engine does not use it.
class TestPair {
  public:
    TestPair(const std::filesystem::path& target_directory, const std::filesystem::path& draft_directory,
             const TestModelOptions& target_options = {}, dist::Communicator* replica_ranks = nullptr,
             dist::DraftPlacement placement = dist::DraftPlacement::colocated)
        : target(target_directory, target_options), draft(draft_directory, draft_options(target_options, placement)),
          tokenizer(model::Tokenizer::open(target_directory)), replica(replica_ranks ? replica_ranks : &target.self),
          layout(dist::make_layout(replica->rank(), replica->size(), 1, placement)) {
        if (placement == dist::DraftPlacement::sharded) sharded_draft.emplace(draft.decoder, *replica, 60);
    }

    int vocab_size() const { return std::min(target.config.vocab_size, tokenizer.size()); }

    std::unique_ptr<spec::Drafter> model_drafter(int n_slots = 1) {
        return model_drafter_of(draft.decoder, limits(), clock, n_slots, device.get());
    }
    spec::DraftLimits limits() const { return spec::draft_limits_of(target.config, vocab_size()); }

    // The engine's drafter is `drafter`, which outlives it; null: plain decoding.
    std::unique_ptr<spec::Engine> engine(const RunOptions& options, spec::Drafter* drafter) {
        spec::EngineOptions engine_options;
        engine_options.acceptance = {options.acceptance, options.lenience, {}};
        engine_options.stop_rule = options.rule;
        engine_options.n_slots = options.n_slots;
        engine_options.num_beams = options.num_beams;
        engine_options.vocab_size = options.vocab_size > 0 ? options.vocab_size : vocab_size();
        engine_options.costs = options.costs;
        engine_options.timeout_seconds = options.timeout_seconds;
        const bool coordinates = layout.is_coordinator();
        return std::make_unique<spec::Engine>(
            engine_options,
            spec::EngineParts{&layout, replica, layout.holds_target() ? &target.decoder : nullptr,
                              coordinates ? drafter : nullptr, coordinates ? &tokenizer : nullptr, &clock,
                              &target.config, static_cast<double>(target.decoder.weight_bytes()), nullptr,
                              sharded_draft ? &*sharded_draft : nullptr, device.get(), target.decoder.max_prompt_rows(),
                              options.hidden_layers, static_cast<int>(target.decoder.tree_room())});
    }

    // Serves the requests. Returns completions in the order of their requests, on the coordinator. Checks that the
    // streamed pieces are the text.
    std::vector<spec::Completion> serve(spec::Engine& engine, std::vector<spec::Request> requests,
                                        const volatile int& stop_signal, spec::RunEnd* end = nullptr) {
        std::size_t next = 0;
        std::map<std::size_t, spec::Completion> completions;
        std::map<std::size_t, std::string> streamed;
        const auto number_of = [](const spec::Request& request) { return std::stoul(request.id); };
        spec::EngineCallbacks callbacks;
        callbacks.next_request = [&]() -> std::optional<spec::Request> {
            if (next == requests.size()) return std::nullopt;
            requests[next].id = std::to_string(next);
            return requests[next++];
        };
        callbacks.on_text = [&](const spec::Request& request, const spec::TextPiece& piece) {
            streamed[number_of(request)] += piece.text;
        };
        callbacks.on_complete = [&](const spec::Request& request, spec::Completion completion) {
            EXPECT_EQ(streamed[number_of(request)], completion.text) << "what was shown is not the text";
            EXPECT_TRUE(completions.emplace(number_of(request), std::move(completion)).second) << "served twice";
        };
        const spec::RunEnd how = engine.run(callbacks, stop_signal);
        if (end) *end = how;
        std::vector<spec::Completion> in_order;
        for (auto& [number, completion] : completions)
            in_order.push_back(std::move(completion));
        return in_order;
    }

    // Runs with the model drafter, or another one.
    std::vector<spec::Completion> run(std::vector<spec::Request> requests, const RunOptions& options = {},
                                      spec::Drafter* drafter = nullptr) {
        const std::unique_ptr<spec::Drafter> own = model_drafter(options.n_slots);
        const volatile int no_signal = 0;
        return serve(*engine(options, drafter ? drafter : own.get()), std::move(requests), no_signal);
    }

    std::unique_ptr<spec::DeviceRound> device; // set if both models are on a GPU
    TestModel target;
    TestModel draft;
    std::optional<spec::ShardedDraftModel> sharded_draft; // set if the draft is sharded across the ranks too
    model::Tokenizer tokenizer;
    dist::SteadyClock clock;
    dist::Communicator* replica;
    dist::RankLayout layout;

  private:
    static TestModelOptions draft_options(const TestModelOptions& target_options, dist::DraftPlacement placement) {
        TestModelOptions options;
        if (placement == dist::DraftPlacement::sharded) options.tp = target_options.tp;
        options.max_positions = target_options.max_positions;
        options.load = target_options.load;
        options.decoder.capacity = target_options.decoder.capacity;
        options.decoder.tree_positions = target_options.decoder.tree_positions;
        options.decoder.tree_room = target_options.decoder.tree_room;
        options.decoder.n_slots = std::max(target_options.decoder.n_slots, 1 + spec::AheadOptions::kMaxOutcomes);
        return options;
    }
};

// The same requests without drafts.
inline std::vector<spec::Request> plainly(std::vector<spec::Request> requests) {
    for (spec::Request& request : requests)
        request.plain = true;
    return requests;
}

inline spec::Request request_of(std::vector<TokenId> prompt, int max_new_tokens, bool plain = false) {
    spec::Request request;
    request.prompt = std::move(prompt);
    request.max_new_tokens = max_new_tokens;
    request.plain = plain;
    return request;
}

// A rule with its defaults except for the number of tokens.
inline spec::StopRuleOptions rule_of(std::string_view rule, int num_draft_tokens = 5, int max_tokens = 15) {
    spec::StopRuleOptions options(rule);
    if (options.takes("tokens")) options.set("tokens", num_draft_tokens);
    options.max_tokens = max_tokens;
    return options;
}
inline spec::StopRuleOptions constant_rule(int num_draft_tokens, int max_tokens = 15) {
    return rule_of("constant", num_draft_tokens, max_tokens);
}

inline bool may_drop_stop_token(spec::StopRuleOptions rule) {
    rule.drop_stop_token = true;
    return why_invalid(rule).empty();
}

// Every rule with its defaults. Rules with a parameter whose limits matter come with further settings that a cap of
// `max_tokens` allows.
inline std::vector<spec::StopRuleOptions> rule_settings(int max_tokens) {
    std::vector<spec::StopRuleOptions> all;
    auto add = [&](spec::StopRuleOptions options) {
        options.max_tokens = max_tokens;
        if (why_invalid(options).empty()) all.push_back(options);
    };
    for (const std::string& rule : spec::stop_rule_names())
        add(spec::StopRuleOptions(rule));
    for (const double tau : {0.3, 1e6})
        add({"static", {{"threshold", tau}}});
    spec::StopRuleOptions late("static", {{"threshold", 0}});
    late.min_tokens = 3;
    add(late);
    for (const double factor : {0.1, 2.0})
        add({"moving-average", {{"factor", factor}}});
    add({"moving-average", {{"window", 1}}});
    for (const double tau : {0.5, 200.0})
        add({"cumulative", {{"threshold", tau}}});
    for (const int k : {1, 40})
        add({"constant", {{"tokens", k}}});
    for (const int k : {1, 5})
        for (const int persistent : {0, 1})
            add({"heuristic", {{"tokens", k}, {"persistent", persistent}}});
    return all;
}

inline std::string describe(const spec::StopRuleOptions& rule) {
    std::string text = rule.name();
    for (std::size_t i = 0; i < rule.values().size(); ++i)
        text += std::string(" ") + rule.type().parameters[i].name + " " + std::to_string(rule.values()[i]);
    return text + " min " + std::to_string(rule.min_tokens) + " cap " + std::to_string(rule.max_tokens);
}

// Proposes up to `length` tokens: token_at(position) for each position of the text.
class ScriptedDrafter final : public spec::Drafter {
  public:
    ScriptedDrafter(int length, std::function<TokenId(std::size_t position)> token_at)
        : Drafter({.name = "scripted"}), length_(length), token_at_(std::move(token_at)) {}
    void begin_sequence(int, const spec::Request&) override {}
    void propose(std::span<const spec::DraftTask> tasks) override {
        for (const spec::DraftTask& task : tasks) {
            spec::Draft* const draft = task.draft;
            task.rule->begin_round();
            draft->clear();
            for (int i = 0; i < std::min(length_, task.max_tokens); ++i)
                draft->add(token_at_(task.tokens.size() + static_cast<std::size_t>(i)), {});
            draft->end = spec::DraftEnd::cap;
        }
    }

  private:
    int length_;
    std::function<TokenId(std::size_t)> token_at_;
};

// Wraps another communicator, and sees and may change what passes through it.
class WatchedComm final : public dist::Communicator {
  public:
    explicit WatchedComm(dist::Communicator& inner) : inner_(inner) {}

    std::function<void(int number, std::span<std::byte> data)> after_broadcast; // numbered from 1
    std::function<void(int number)> after_gather;
    int broadcasts = 0;
    int gathers = 0;

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::string name() const override { return inner_.name(); }
    void start_all_reduce_sum(void* data, std::size_t count, dist::ElementType type) override {
        last_ = Last::other;
        inner_.start_all_reduce_sum(data, count, type);
    }
    void start_broadcast(void* data, std::size_t bytes, int root) override {
        last_ = Last::broadcast;
        received_ = {static_cast<std::byte*>(data), bytes};
        ++broadcasts;
        inner_.start_broadcast(data, bytes, root);
    }
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override {
        last_ = Last::gather;
        ++gathers;
        inner_.start_gather(mine, all, bytes, root);
    }
    void wait(dist::Deadline deadline) override {
        inner_.wait(deadline);
        if (last_ == Last::broadcast && after_broadcast) after_broadcast(broadcasts, received_);
        if (last_ == Last::gather && after_gather) after_gather(gathers);
    }

  private:
    enum class Last { other, broadcast, gather };
    dist::Communicator& inner_;
    Last last_ = Last::other;
    std::span<std::byte> received_;
};

} // namespace entrodraft
