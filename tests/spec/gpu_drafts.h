// Drafts for rounds of one text, and their cost on a GPU: rows that a device reads by itself, and rows read level by
// level. For tests only.
#pragma once

#include "tests/model/gpu_models.h"
#include "tests/spec/engine_support.h"

#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace entrodraft {

// Changes the plan, then passes it on to the device.
class ChangedPlans final : public spec::DeviceRound {
  public:
    using Tree = std::function<void(spec::DeviceTreePlan&)>;
    using Chain = std::function<void(spec::DeviceStopRule&)>;
    explicit ChangedPlans(Tree tree, Chain chain = {}) : tree_(std::move(tree)), chain_(std::move(chain)) {}
    model::DeviceExtension* draft(const spec::DeviceStopRule& rule, int first_kept) override {
        spec::DeviceStopRule changed = rule;
        if (chain_) chain_(changed);
        return inner_->draft(changed, first_kept);
    }
    model::DeviceExtension* grow(const spec::DeviceTreePlan& plan) override {
        spec::DeviceTreePlan changed = plan;
        tree_(changed);
        return inner_->grow(changed);
    }
    std::span<const spec::GrownRow> grown() const override { return inner_->grown(); }
    model::DeviceExtension* select(int n_rows, int n, int vocab_size) override {
        return inner_->select(n_rows, n, vocab_size);
    }
    model::DeviceExtension* verify(std::span<const spec::DraftedRow> rows) override { return inner_->verify(rows); }
    std::span<const spec::VerifiedRow> verified() const override { return inner_->verified(); }

  private:
    std::unique_ptr<spec::DeviceRound> inner_ = spec::gpu::make_device_round();
    Tree tree_;
    Chain chain_;
};

struct Rounds {
    std::string tree; // empty: chains
    spec::StopRuleOptions rule = constant_rule(63, 63);
    spec::Acceptance acceptance = spec::Acceptance::gumbel;
    double temperature = 0;
    int rounds = 4;
    model::WeightType type = model::WeightType::float32;
    spec::GainModel* gain = nullptr;
};

struct Drafts {
    std::vector<spec::Draft> drafts;
    std::vector<int> cached;           // positions after each round
    std::vector<long> launches, waits; // on the stand-in, of each round
};

// A drafter and its clock.
struct TestDrafter {
    TestDrafter(const Rounds& of, const std::string& type, int vocab_size,
                const std::function<void(spec::DrafterParts&)>& add)
        : vocab(vocab_size) {
        spec::DrafterParts parts{{{.vocab_size = vocab, .eos_tokens = {3, 77}}, clock, 1}};
        if (!of.tree.empty()) parts.tree = spec::parse_tree(of.tree);
        add(parts);
        drafter = spec::drafter_type(type).make(parts);
    }
    dist::SteadyClock clock;
    int vocab;
    std::unique_ptr<spec::Drafter> drafter;
};

// Drafts rounds of one text, in which some branch of each draft is accepted. Calls `read` with the text before each.
inline Drafts rounds_of(const Rounds& of, TestDrafter& with, model::KvCache& cache,
                        const std::function<void(std::span<const spec::TokenId> text)>& read) {
    spec::Request request;
    request.sampling.temperature = of.temperature;
    request.sampling.seed = 5;
    request.sequence_key = 6;
    with.drafter->begin_sequence(0, request);
    spec::StopRule rule(of.rule, of.gain);
    std::vector<spec::TokenId> text = {7, 30, 12, 5, 9};
    std::mt19937 random(4);
    Drafts all;
    for (int round = 0; round < of.rounds; ++round) {
        read(text);
        spec::Draft draft;
        spec::DraftTask task = {0, text, 40, &request, choice_of(request, of.acceptance), &rule, &draft};
        task.left_tokens = task.max_nodes = 40;
        task.gain = of.gain;
#ifdef ENTRODRAFT_ON_STAND_IN
        const long launches = cuda_stand_in::graphs_launched(), waits = cuda_stand_in::streams_awaited();
#endif
        with.drafter->propose(task);
#ifdef ENTRODRAFT_ON_STAND_IN
        all.launches.push_back(cuda_stand_in::graphs_launched() - launches);
        all.waits.push_back(cuda_stand_in::streams_awaited() - waits);
#endif
        all.cached.push_back(cache.length(0));
        std::vector<spec::TokenId> path;
        if (draft.parents.empty()) { // a chain
            path.assign(draft.tokens.rbegin() + static_cast<int>(random() % draft.tokens.size()), draft.tokens.rend());
        } else {
            int last = static_cast<int>(random() % draft.tokens.size());
            for (; last >= 0; last = spec::parent_of(draft.parents, last))
                path.push_back(draft.tokens[static_cast<std::size_t>(last)]);
        }
        text.insert(text.end(), path.rbegin(), path.rend());
        text.push_back(static_cast<spec::TokenId>(random() % static_cast<unsigned>(with.vocab)));
        draft.q = {};
        all.drafts.push_back(std::move(draft));
    }
    return all;
}

inline void expect_same(const Drafts& got, const Drafts& want) {
    ASSERT_EQ(got.drafts.size(), want.drafts.size());
    for (std::size_t i = 0; i < want.drafts.size(); ++i) {
        SCOPED_TRACE(fmt::format("round {}", i));
        const spec::Draft &a = got.drafts[i], &b = want.drafts[i];
        EXPECT_EQ(a.tokens, b.tokens);
        EXPECT_EQ(a.parents, b.parents);
        EXPECT_EQ(a.passes, b.passes);
        EXPECT_EQ(a.end, b.end);
        ASSERT_EQ(a.entropies_nats.size(), b.entropies_nats.size());
        for (std::size_t n = 0; n < b.entropies_nats.size(); ++n) {
            if (std::isnan(b.entropies_nats[n]) && std::isnan(a.entropies_nats[n])) continue; // not looked at
            EXPECT_NEAR(a.entropies_nats[n], b.entropies_nats[n], 1e-3);
            EXPECT_NEAR(a.probabilities[n], b.probabilities[n], 1e-4);
            EXPECT_EQ(std::isnan(a.margins[n]), std::isnan(b.margins[n]));
            if (!std::isfinite(b.margins[n])) continue;
            EXPECT_NEAR(a.margins[n], b.margins[n], 1e-3);
        }
    }
}

// Trees are the same if a device reads other rows than drafts want. `drafts_by`: makes rounds with it, or with null
// level by level.
inline void expect_same_whatever_is_read(const std::function<Drafts(spec::DeviceRound*)>& drafts_by) {
    using spec::DeviceTreePlan;
    const std::map<std::string, std::function<void(DeviceTreePlan&)>> changes = {
        {"a level less", [](DeviceTreePlan& plan) { --plan.max_levels; }},
        {"no level", [](DeviceTreePlan& plan) { plan.max_nodes = 0; }},
        {"fewer of a level", [](DeviceTreePlan& plan) { plan.width = 2; }},
        {"first choices", [](DeviceTreePlan& plan) { plan.width = 1; }},
        {"more of a level", [](DeviceTreePlan& plan) { plan.width = 7, plan.max_nodes = 40; }},
        {"little room", [](DeviceTreePlan& plan) { plan.max_nodes = 6; }}};
    const Drafts levels = drafts_by(nullptr);
    for (const auto& [name, change] : changes) {
        SCOPED_TRACE(name);
        ChangedPlans device(change);
        const Drafts got = drafts_by(&device);
        expect_same(got, levels);
        if (name == "more of a level")
            EXPECT_GT(got.cached.front(), levels.cached.front());
        else
            EXPECT_EQ(got.cached, levels.cached) << "where it has not read enough, that is put right";
    }
}

// Once its graphs exist, a draft costs a pass and its loop in place of a pass for each level.
inline void expect_loops(const Drafts& got, const Drafts& levels) {
    for (std::size_t i = 3; i < got.launches.size(); ++i) {
        EXPECT_LE(got.launches[i], 2) << "round " << i;
        EXPECT_EQ(got.waits[i], 1) << "round " << i;
        EXPECT_EQ(levels.waits[i], levels.drafts[i].passes) << "round " << i;
    }
}

} // namespace entrodraft
