// The post_processor of a tokenizer.json: where special tokens are around a text. TemplateProcessing, and
// BertProcessing and RobertaProcessing, which are fixed templates; ByteLevel, which only trims offsets, does nothing
// here. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <vector>

#include "model/text/token_id.h"

namespace entrodraft::model {

// The file's template for a single text: the ids of a special token, or nothing for the text.
using TextTemplate = std::vector<std::optional<std::vector<TokenId>>>;

class PostProcessor {
  public:
    // From the file's "post_processor" (null: none). Throws BadFile naming what is not supported.
    static PostProcessor from_json(const nlohmann::json& post_processor);

    // The ids with the templates' special tokens, or with these left out.
    std::vector<TokenId> process(std::vector<TokenId> ids, bool add_special_tokens) const;
    // All special ids that the templates name.
    std::vector<TokenId> special_ids() const;

  private:
    std::vector<TextTemplate> steps_;
};

} // namespace entrodraft::model
