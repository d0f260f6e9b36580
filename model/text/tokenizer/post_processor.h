// The post_processor of a tokenizer.json: it puts special tokens around a text. TemplateProcessing is supported. So are
// BertProcessing and RobertaProcessing, which are fixed templates. ByteLevel only trims offsets, so it does nothing
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
    // Reads the file's "post_processor" (null: none). Throws BadFile naming an unsupported part.
    static PostProcessor from_json(const nlohmann::json& post_processor);

    // Returns the ids with the templates' special tokens, or without them.
    std::vector<TokenId> process(std::vector<TokenId> ids, bool add_special_tokens) const;
    // Returns all special ids that the templates name.
    std::vector<TokenId> special_ids() const;

  private:
    std::vector<TextTemplate> steps_;
};

} // namespace entrodraft::model
