// Drafters by name. Each is one file of this folder, NAME_drafter.cpp, which holds its name, what it proposes, the
// options that it takes and how it is made, as a DrafterType; the choices of --drafter, help, completion, refusals of
// options without effect and tests over all drafters are made of these.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/draft/lookup_index.h"
#include "spec/draft/suffix_automaton.h"
#include "spec/draft/token_table.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

class DeviceVerifier;

// What drafters are made of, whichever need it. All that it points to outlives them.
struct DrafterParts : DraftSetting {
    std::vector<model::Decoder*> models = {};           // of `model`: several are a cascade, the largest first
    DeviceVerifier* device = nullptr;                   // of the GPU that the models are on; null: of CPUs
    std::vector<StopRuleOptions> rules = {};            // of the models; the first is the engine's
    std::vector<std::optional<Costs>> costs = {};       // of the models, for expected-gain
    NgramOptions ngram = {};                            // of the look-ups
    std::shared_ptr<const SuffixAutomaton> corpus = {}; // of `suffix`; may be null
    const TokenTable* table = nullptr;                  // of `bigram` and `unigram`
};

struct DrafterType {
    std::string name;
    int position = 1000;                   // in lists; drafters of one position by name
    const char* help = "";                 // what it proposes; neighbours in lists that say the same share it
    std::vector<const char*> options = {}; // that have an effect with it: "ngram-max" is --ngram-max
    std::unique_ptr<Drafter> (*make)(const DrafterParts& parts) = nullptr;

    bool takes(std::string_view option) const;
};

// The types in the order of lists. The files' own functions, as CMake lists them, are called once. Local.
const std::vector<DrafterType>& all_drafters();
const std::vector<std::string>& drafter_names();
// Throws std::invalid_argument where there is no such drafter. Local.
const DrafterType& drafter_type(std::string_view name);

// The first of these that drafts anything in a round; `ahead`: the last of them, a model, drafts ahead, and those
// before it are its backup. Throws std::invalid_argument for an unknown name, or none. Local.
std::unique_ptr<Drafter> make_drafter(std::span<const std::string> names, const DrafterParts& parts,
                                      const std::optional<AheadOptions>& ahead = std::nullopt);

} // namespace entrodraft::spec
