// Ways to decode, side by side on the same prompts: what bench compare runs. comparison_report.h shows what came of it.
//
// Settings take turns on every prompt, in rotating order, so that noise meets all alike. Each keeps its engine over all
// prompts of a temperature, so that what learns, learns; the next temperature begins with new ones.
#pragma once

#include "launch/cli/options.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/engine.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

enum class SettingKind {
    plain,       // no draft
    speculative, // a drafter, its rules and an acceptance
    longest,     // the same drafting to the cap: what an oracle would have stopped is read off it
};

// A way to decode.
struct Setting {
    SettingKind kind = SettingKind::plain;
    DrafterChoice drafter;
    std::vector<spec::StopRuleOptions> rules; // of each level
    spec::AcceptanceOptions acceptance;
    std::unique_ptr<spec::Drafter> own_drafter; // on the coordinator
    std::unique_ptr<spec::Engine> engine;

    std::string name() const;            // "model, static, threshold 2.25 nats"
    std::string acceptance_name() const; // "gumbel", "rejection, lenience 0.5"
    bool is_gumbel() const { return acceptance.kind == spec::Acceptance::gumbel; }
    bool drafts() const { return kind != SettingKind::plain; }
};

// What a setting did at one temperature. On the coordinator.
struct Outcome {
    const Setting* setting = nullptr;
    spec::Stats stats; // of all prompts
    std::vector<spec::Stats> stats_of_prompts;
    std::vector<std::vector<spec::TokenId>> texts;
};

struct Temperature {
    double temperature = 0;
    std::vector<Outcome> outcomes; // plain decoding first
};

// Plain decoding beside a setting.
const Outcome& plain_of(const Temperature& result, const Setting& setting);

class Comparison {
  public:
    // `costs` are those of the levels of drafting; of files, they are expected-gain's too. All outlive this.
    Comparison(dist::Session& session, ModelPair& models, const Drafters& drafters, const CompareOptions& options,
               const std::vector<spec::Costs>& costs, bool costs_are_fixed);

    // Collective over the world, both. Throws OrderlyFailure.
    void read_prompts();
    void take_prompts(std::vector<spec::Request> given); // in place of read_prompts(); they count on the coordinator
    void run();

    // Of greedy texts, and those sampled with gumbel, how many are not plain decoding's, as they must be; nothing where
    // they may differ from it. Local, on the coordinator.
    std::optional<int> different_texts(const Temperature& result, const Outcome& outcome) const;

    // Costs of the levels of one drafter; those without a model have none. Local.
    std::vector<spec::Costs> costs_of(const DrafterChoice& drafter) const;

    std::vector<Temperature> results;
    std::vector<spec::Request> prompts; // on the coordinator

  private:
    std::vector<spec::AcceptanceOptions> acceptances_at(double temperature) const;
    std::vector<Setting> make_settings(double temperature) const;
    void add(std::vector<Setting>& settings, SettingKind kind, const DrafterChoice& drafter,
             const std::vector<spec::StopRuleOptions>& rules, const spec::AcceptanceOptions& acceptance) const;
    void warm_up(double temperature);
    spec::Completion decode(Setting& setting, std::size_t prompt, double temperature, int max_new_tokens);

    dist::Session& session_;
    ModelPair& models_;
    const Drafters& drafters_;
    const CompareOptions& options_;
    const std::vector<spec::Costs>& costs_;
    bool costs_are_fixed_;
    std::deque<std::vector<Setting>> settings_; // of each temperature
    std::size_t n_prompts_ = 0;                 // known to all ranks
};

} // namespace entrodraft::launch
