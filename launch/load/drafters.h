// Opens the parts of drafters that the options name: the pair's draft models, and the tables and texts of drafters
// without a model. All commands that decode call this. The drafters themselves are in spec.
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

// Returns the choice of draft number `draft` alone; for a pair with a head, the choice of the head.
DrafterChoice draft_alone(const ModelPair& models, std::size_t draft);

class Drafters {
  public:
    // Reads the files that `sources` names, on the coordinator. `models` outlives this object. Throws OrderlyFailure.
    // Collective over the world.
    Drafters(dist::Session& session, ModelPair& models, const DrafterSources& sources, double timeout_seconds);

    // Returns null if the choice has no drafter, and on ranks that do not draft. `rules` and `costs` have one entry for
    // each level of a cascade; the first is the engine's. This object outlives the drafter. Two drafters cannot take
    // turns inside a sequence.
    std::unique_ptr<spec::Drafter> make(const DrafterChoice& choice, std::span<const spec::StopRuleOptions> rules,
                                        std::span<const std::optional<spec::Costs>> costs) const;

    // Returns the pair's draft number `draft`, alone or sharded across the ranks. On draft owners.
    model::Decoder& draft_model(std::size_t draft) const;
    // Returns null if there is no head. On draft owners.
    const spec::HeadModules* head() const { return head_ ? &*head_ : nullptr; }

  private:
    ModelPair& models_;
    DrafterSources sources_;
    std::shared_ptr<const spec::LookupCorpus> corpus_; // may be null
    std::optional<spec::TokenTable> table_;
    std::optional<spec::HeadModules> head_; // none: there is no head
};

// Throws BadOption if `costs`, from --costs `file`, time only narrower passes than drafts of that many tokens make.
void require_wide_enough(const spec::Costs& costs, const std::string& file, int max_draft_tokens);

// Warns if the machine was disturbed while the costs were measured.
void say_if_disturbed(const spec::Costs& costs, const std::string& file);

// Reads the costs file of each level; an empty name gives none. Drafters without a model draft at no cost. Throws
// std::runtime_error, or BadOption if a file times no pass as wide as the level's cap needs.
std::vector<std::optional<spec::Costs>> read_costs_files(const SpeculationOptions& speculation);

// Runs before models are loaded, so that a mistake in a file name does not cost the loading. Throws std::runtime_error.
void require_readable(const DrafterSources& sources);

} // namespace entrodraft::launch
