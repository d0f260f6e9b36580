// See post_processor.h.
#include "model/text/tokenizer/post_processor.h"

#include <string>
#include <utility>

#include "model/text/tokenizer/tokenizer_json.h"

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

TextTemplate template_from_json(const nlohmann::json& step) {
    TextTemplate result;
    for (const auto& piece : array_field(step, "single", kTemplate)) {
        if (!piece.is_object()) throw BadFile(kTemplate + ": a piece of 'single' is not an object");
        if (piece.contains("SpecialToken")) {
            const std::string& name = string_field(object_field(piece, "SpecialToken", kTemplate), "id", kTemplate);
            result.emplace_back(special_token_ids(step, name));
        } else if (string_field(object_field(piece, "Sequence", kTemplate), "id", kTemplate) == "A") {
            result.emplace_back();
        } else {
            throw BadFile(kTemplate + ": 'single' names a sequence other than A");
        }
    }
    return result;
}

// Reads BERT's and RoBERTa's form: "cls" and "sep", ["token", id] each, around the text.
TextTemplate around_from_json(const nlohmann::json& step, const std::string& what) {
    const auto special = [&](const char* name) {
        const nlohmann::json& pair = array_field(step, name, what);
        if (pair.size() != 2) throw BadFile(what + ": '" + name + "' is not [\"token\", id]");
        return std::vector<TokenId>{token_id(pair[1], what)};
    };
    return {special("cls"), std::nullopt, special("sep")};
}

} // namespace

PostProcessor PostProcessor::from_json(const nlohmann::json& post_processor) {
    PostProcessor result;
    for (const auto& [fields, type, what] : steps_of(post_processor, "post_processor", "processors")) {
        if (type == "TemplateProcessing") {
            result.steps_.push_back(template_from_json(fields));
        } else if (type == "BertProcessing" || type == "RobertaProcessing") {
            result.steps_.push_back(around_from_json(fields, what));
        } else if (type != "ByteLevel") {
            throw_unsupported("post_processor", type);
        }
    }
    return result;
}

std::vector<TokenId> PostProcessor::process(std::vector<TokenId> ids, bool add_special_tokens) const {
    for (const TextTemplate& pieces : steps_) {
        std::vector<TokenId> result;
        for (const auto& special : pieces) {
            if (special && !add_special_tokens) continue;
            const std::vector<TokenId>& part = special ? *special : ids;
            result.insert(result.end(), part.begin(), part.end());
        }
        ids = std::move(result);
    }
    return ids;
}

std::vector<TokenId> PostProcessor::special_ids() const {
    std::vector<TokenId> ids;
    for (const TextTemplate& pieces : steps_)
        for (const auto& special : pieces)
            if (special) ids.insert(ids.end(), special->begin(), special->end());
    return ids;
}

} // namespace entrodraft::model
