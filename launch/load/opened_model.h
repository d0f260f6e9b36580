// What is read of checkpoint directories before their weights, and whether they go together.
//
// Called by model_pair and doctor, and for the warning by inspect; local throughout.
#pragma once

#include "dist/layout.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config.h"
#include "model/tokenizer/tokenizer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct OpenedModel {
    std::string directory;      // as the option names it
    std::filesystem::path path; // that it means
    model::ModelConfig config;
    bool was_untied = false; // by model::untie_stored_head
    std::optional<model::Checkpoint> checkpoint;
    std::optional<model::Tokenizer> tokenizer; // none: the directory has no file of one
};

struct OpenedPair {
    OpenedModel target;
    std::vector<OpenedModel> drafts;       // the largest first
    std::vector<std::string> not_compared; // a line for each draft whose tokens could not be compared
};

// Throws BadOption, naming the option, where a directory is missing or a draft has another vocabulary than the target;
// what reading throws otherwise.
OpenedPair open_pair(const std::string& target, const std::vector<std::string>& drafts);

// That model::untie_stored_head() has untied `model`, "--target DIR".
std::string stored_head_warning(const std::string& model);

// Throws BadOption where the heads of the target, or of a draft that is sharded too, cannot be sharded across the ranks
// of the layout.
void require_heads_for_all(const OpenedPair& pair, const dist::RankLayout& layout);

} // namespace entrodraft::launch
