// See post_processor.h.
#include "model/tokenizer/post_processor.h"

#include <string>
#include <utility>

#include "model/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

const std::string kTemplate = "post_processor TemplateProcessing";

std::vector<TokenId> special_token_ids(const nlohmann::json& step, const std::string& name) {
    const nlohmann::json& tokens = object_field(step, "special_tokens", kTemplate);
    const auto found = tokens.find(name);
    if (found == tokens.end() || !found->is_object()) {
        throw BadFile(kTemplate + ": the template names '" + name + "', which is not among its special_tokens");
    }
    std::vector<TokenId> ids;
    for (const auto& id : array_field(*found, "ids", kTemplate))
        ids.push_back(token_id(id, kTemplate));
    return ids;
}

TemplateStep template_from_json(const nlohmann::json& step) {
    TemplateStep result;
    for (const auto& piece : array_field(step, "single", kTemplate)) {
        if (!piece.is_object()) throw BadFile(kTemplate + ": a piece of 'single' is not an object");
        if (piece.contains("SpecialToken")) {
            const std::string& name = string_field(object_field(piece, "SpecialToken", kTemplate), "id", kTemplate);
            result.pieces.emplace_back(special_token_ids(step, name));
        } else if (string_field(object_field(piece, "Sequence", kTemplate), "id", kTemplate) == "A") {
            result.pieces.emplace_back(TextPiece{});
        } else {
            throw BadFile(kTemplate + ": 'single' names a sequence other than A");
        }
    }
    return result;
}

// BERT's and RoBERTa's: "cls" and "sep", ["token", id] each, around the text.
TemplateStep around_from_json(const nlohmann::json& step, const std::string& what) {
    const auto special = [&](const char* name) -> TemplatePiece {
        const nlohmann::json& pair = array_field(step, name, what);
        if (pair.size() != 2) throw BadFile(what + ": '" + name + "' is not [\"token\", id]");
        return std::vector<TokenId>{token_id(pair[1], what)};
    };
    return {{special("cls"), TextPiece{}, special("sep")}};
}

} // namespace

PostProcessor PostProcessor::from_json(const nlohmann::json& post_processor) {
    PostProcessor result;
    if (!post_processor.is_null()) result.add(post_processor, 0);
    return result;
}

void PostProcessor::add(const nlohmann::json& step, int depth) {
    const std::string& type = component_type(step, "post_processor", depth);
    check_steps(steps_.size(), "post_processor");
    if (type == "TemplateProcessing") {
        steps_.push_back(template_from_json(step));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        steps_.push_back(around_from_json(step, "post_processor " + type));
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "processors", "post_processor Sequence"))
            add(part, depth + 1);
    } else if (type != "ByteLevel") {
        throw_unsupported("post_processor", type);
    }
}

std::vector<TokenId> PostProcessor::process(std::vector<TokenId> ids, bool add_special_tokens) const {
    for (const TemplateStep& step : steps_) {
        std::vector<TokenId> result;
        for (const TemplatePiece& piece : step.pieces) {
            const auto* special = std::get_if<std::vector<TokenId>>(&piece);
            if (special != nullptr && !add_special_tokens) continue;
            const std::vector<TokenId>& part = special != nullptr ? *special : ids;
            result.insert(result.end(), part.begin(), part.end());
        }
        ids = std::move(result);
    }
    return ids;
}

std::vector<TokenId> PostProcessor::special_ids() const {
    std::vector<TokenId> ids;
    for (const TemplateStep& step : steps_) {
        for (const TemplatePiece& piece : step.pieces) {
            const auto* special = std::get_if<std::vector<TokenId>>(&piece);
            if (special != nullptr) ids.insert(ids.end(), special->begin(), special->end());
        }
    }
    return ids;
}

} // namespace entrodraft::model
