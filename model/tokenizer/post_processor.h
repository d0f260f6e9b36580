// The post_processor of a tokenizer.json: where special tokens are around a text. TemplateProcessing, and
// BertProcessing and RobertaProcessing, which are fixed templates; ByteLevel, which only trims offsets, does nothing
// here. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <variant>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace entrodraft::model {

struct TextPiece {};
using TemplatePiece = std::variant<TextPiece, std::vector<TokenId>>; // the text, or the ids of a special token

struct TemplateStep {
    std::vector<TemplatePiece> pieces; // the file's template for a single text
};

class PostProcessor {
  public:
    // From the file's "post_processor" (null: none). Throws BadFile naming what is not supported. Local.
    static PostProcessor from_json(const nlohmann::json& post_processor);

    // The ids with the templates' special tokens, or with these left out. Local.
    std::vector<TokenId> process(std::vector<TokenId> ids, bool add_special_tokens) const;
    // All special ids that the templates name. Local.
    std::vector<TokenId> special_ids() const;

  private:
    void add(const nlohmann::json& step, int depth);
    std::vector<TemplateStep> steps_;
};

} // namespace entrodraft::model
