// What inspect has found, as facts, and how they are shown: aligned text for people, JSON for programs. Formatting is
// pure. Private to this module, as json_line.h is. Called by inspect.
#pragma once

#include "launch/io/json_line.h"
#include "model/config.h"
#include "model/inspection.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct WeightFacts {
    std::string format; // "safetensors" or "torch"
    std::int64_t n_files = 0;
    std::uint64_t file_bytes = 0;
    std::int64_t n_tensors = 0;
    std::map<std::string, std::uint64_t> bytes_by_type; // of the tensors that the model reads, by safetensors' names
    double header_seconds = 0;                          // opening and checking them took
};

struct TokenizerFacts {
    std::string kind;
    int n_tokens = 0;
    std::uint64_t fingerprint = 0;
};

// Where something is missing or cannot be read, `no_...` says why.
struct ModelFacts {
    std::string name; // as the option has it
    std::string directory;
    model::ModelConfig config;
    std::int64_t n_parameters = 0;
    std::optional<WeightFacts> weights;
    std::string no_weights;
    std::optional<TokenizerFacts> tokenizer;
    std::string no_tokenizer;
};

struct RankShare {
    model::RankNeeds needs;
    std::uint64_t draft_bytes = 0; // of the whole draft, where the rank drafts
    std::optional<int> longest;    // positions that fit the memory
    std::uint64_t total_bytes() const { return needs.total_bytes() + draft_bytes; }
};

struct Inspection {
    ModelFacts model;
    std::optional<ModelFacts> draft;
    bool may_pair = false;
    std::string no_pair;      // why not, or why nobody knows
    std::string not_compared; // of a pair that may be; empty: everything was compared
    model::RunShape run;
    std::optional<model::RunShape> draft_run;
    std::optional<std::uint64_t> memory_bytes; // of a rank
    std::vector<RankShare> ranks;
    model::AllReduces all_reduces;

    std::uint64_t largest_rank_bytes() const;
    std::optional<int> longest() const; // with which every rank fits
};

// Ends with a newline. Local.
std::string to_text(const Inspection& inspection);
// Local.
Json to_json(const Inspection& inspection);

} // namespace entrodraft::launch
