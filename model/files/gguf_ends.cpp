// Names of end tokens, and the rules for them, are those of llama.cpp's vocabulary (in llama-cpp-python 0.3.36). A kind
// of token may have no metadata key and several names in the vocabulary. llama.cpp then takes one by the order of a
// hash table. We take the first of our list.
#include "model/files/gguf_ends.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;
using TokenName = std::string_view;

// Tokens with these names end texts, whatever their type.
constexpr TokenName kEnds[] = {"<|eot_id|>",
                               "<|im_end|>",
                               "<|end|>",
                               "<|return|>",
                               "<|call|>",
                               "<|flush|>",
                               "<|calls|>",
                               "<end_of_turn>",
                               "<|endoftext|>",
                               "</s>",
                               "<|eom_id|>",
                               "<EOT>",
                               "_<EOT>",
                               "[EOT]",
                               "[EOS]",
                               "<|end_of_text|>",
                               "<end_of_utterance>",
                               "<eos>",
                               "<turn|>",
                               "<|tool_response>",
                               "<｜end▁of▁sentence｜>",
                               "[e~["};

// Marks between files, which a model writes before it goes on to another file: keys, and names if there is no key.
constexpr TokenName kPads[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr TokenName kRepositories[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr TokenName kSeparators[] = {"<|file_sep|>"};
struct Mark {
    const char* key;
    std::span<const TokenName> names;
};
constexpr Mark kFileMarks[] = {{"fim_pad", kPads}, {"fim_rep", kRepositories}, {"fim_sep", kSeparators}};

class EndTokens {
  public:
    explicit EndTokens(const GgufMetadata& metadata) : metadata_(metadata) {
        const Json* tokens = metadata.find("tokenizer.ggml.tokens");
        if (!tokens || !tokens->is_array()) return;
        tokens_ = tokens;
        std::set<TokenName> wanted(std::begin(kEnds), std::end(kEnds));
        for (const Mark& mark : kFileMarks)
            wanted.insert(mark.names.begin(), mark.names.end());
        std::uint64_t id = 0;
        for (const Json& token : *tokens) {
            if (token.is_string())
                if (const auto name = wanted.find(token.get_ref<const std::string&>()); name != wanted.end())
                    named_[*name] = id; // of equal ones the last
            ++id;
        }
    }

    std::vector<std::uint64_t> find() {
        for (const Mark& mark : kFileMarks)
            if (const auto id = of_mark(mark)) ends_.insert(*id);
        for (const TokenName name : kEnds)
            if (named_.contains(name)) ends_.insert(named_.at(name));
        const auto eos = of_eos();
        for (const auto& id : {eos, of_key("eot"), of_key("eom")})
            if (id) ends_.insert(*id);
        remove_others();
        std::vector<std::uint64_t> ends(ends_.begin(), ends_.end());
        if (eos) std::ranges::stable_partition(ends, [&](std::uint64_t id) { return id == *eos; });
        return ends;
    }

  private:
    std::optional<std::uint64_t> of_key(const char* name) const {
        const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
        const Json* id = metadata_.find(key);
        if (!id) return std::nullopt;
        if (!id->is_number_unsigned()) metadata_.refuse("'" + key + "' is not the number of a token");
        return tokens_ && *id >= tokens_->size() ? std::nullopt : std::optional(id->get<std::uint64_t>());
    }
    // Without a key, the usual token of the kind's first vocabularies.
    std::optional<std::uint64_t> of_eos() const {
        if (const auto id = of_key("eos")) return id;
        const Json* kind = tokens_ ? metadata_.find("tokenizer.ggml.model") : nullptr;
        const std::uint64_t usual = !kind ? 0 : *kind == "gpt2" ? 11 : *kind == "llama" ? 2 : 0;
        return usual > 0 && usual < tokens_->size() ? std::optional(usual) : std::nullopt;
    }
    std::optional<std::uint64_t> of_mark(const Mark& mark) const {
        if (const auto id = of_key(mark.key)) return id;
        for (const TokenName name : mark.names)
            if (named_.contains(name)) return named_.at(name);
        return std::nullopt;
    }

    bool has(TokenName name) const {
        return tokens_ && std::ranges::any_of(ends_, [&](std::uint64_t id) { return (*tokens_)[id] == name; });
    }
    void remove(TokenName name) {
        if (const auto at = named_.find(name); at != named_.end()) ends_.erase(at->second);
    }
    // Removes names that end texts only in other models: here <|end|> may end one of several messages.
    void remove_others() {
        const bool has_call = has("<|call|>") || has("<|calls|>");
        if (has_call && (has("<|return|>") || has("<|flush|>"))) remove("<|end|>");
        if (has("<|tool_response>") || has("<|plamo:eos|>")) remove("</s>");
    }

    const GgufMetadata& metadata_;
    const Json* tokens_ = nullptr;
    std::map<TokenName, std::uint64_t> named_;
    std::set<std::uint64_t> ends_;
};

} // namespace

std::vector<std::uint64_t> gguf_end_tokens(const GgufMetadata& metadata) {
    return EndTokens(metadata).find();
}

} // namespace entrodraft::model
