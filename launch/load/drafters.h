// What drafters are made of, from what the options name: the pair's draft models, and the tables and texts of drafters
// without one.
//
// Called by all commands that decode. Which drafters there are, and how they draft, is spec's affair.
#pragma once

#include "dist/session/session.h"
#include "launch/cli/options.h"
#include "launch/load/model_pair.h"
#include "spec/draft/drafter.h"
#include "spec/draft/token_table.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::launch {

// The pair's draft of that number by itself; of a pair with a head, that.
DrafterChoice draft_alone(const ModelPair& models, std::size_t draft);

class Drafters {
  public:
    // Reads the files that `sources` names, on the coordinator; `models` outlives this. Throws OrderlyFailure.
    // Collective over the world.
    Drafters(dist::Session& session, ModelPair& models, const DrafterSources& sources, double timeout_seconds);

    // Null for none, and on ranks that do not draft. `rules` and `costs` are those of the levels of a cascade, of which
    // the first is the engine's. This outlives the drafter, which no other may take turns with inside a sequence.
    std::unique_ptr<spec::Drafter> make(const DrafterChoice& choice, std::span<const spec::StopRuleOptions> rules,
                                        std::span<const std::optional<spec::Costs>> costs) const;

    // The pair's draft number `draft`, alone or sharded across the ranks. On draft owners.
    model::Decoder& draft_model(std::size_t draft) const;
    // Null: there is none. On draft owners.
    const spec::HeadModules* head() const { return head_ ? &*head_ : nullptr; }

  private:
    ModelPair& models_;
    DrafterSources sources_;
    std::shared_ptr<const spec::LookupCorpus> corpus_; // may be null
    std::optional<spec::TokenTable> table_;
    std::optional<spec::HeadModules> head_; // none: there is no head
};

// Throws BadOption where costs, those of --costs `file`, are of narrower passes than drafts of so many tokens make.
void require_wide_enough(const spec::Costs& costs, const std::string& file, int max_draft_tokens);

// Warns where the machine was disturbed while the costs were measured.
void say_if_disturbed(const spec::Costs& costs, const std::string& file);

// The costs files of the levels; an empty name gives none. Drafters without a model draft for nothing. Throws BadOption
// where a file times no pass as wide as the level's cap needs, std::runtime_error.
std::vector<std::optional<spec::Costs>> read_costs_files(const SpeculationOptions& speculation);

// Before models are loaded, so that a mistake there does not cost the loading. Throws std::runtime_error.
void require_readable(const DrafterSources& sources);

} // namespace entrodraft::launch
