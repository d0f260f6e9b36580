// See tokenizer.h. Puts the components of a tokenizer.json together: added tokens, normalizer, pre_tokenizer and
// BPE on the way in, the template of special tokens at the end of it, and the bytes of tokens on the way out.
// The file's truncation and padding are not applied: lengths are the caller's business.
#include "entrodraft/model/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "entrodraft/model/added_tokens.h"
#include "entrodraft/model/bpe.h"
#include "entrodraft/model/byte_level.h"
#include "entrodraft/model/json_file.h"
#include "entrodraft/model/normalizer.h"
#include "entrodraft/model/post_processor.h"
#include "entrodraft/model/pre_tokenizer.h"
#include "entrodraft/model/tokenizer_json.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

// One entry of the whole vocabulary, the model's and the added tokens'.
struct Entry {
    std::string content; // as in the file
    std::string bytes;   // what it stands for in text
    bool special = false;
};

using Entries = std::vector<std::optional<Entry>>; // by id

// As the reference decodes: in the byte-level alphabet where every character is of it, else as it stands.
std::string bytes_of(const std::string& content) {
    return from_byte_level(content).value_or(content);
}

// An added token with normalized = true decodes as its normalized content, as in the reference.
Entries entries_of(const BpeModel& model, const std::vector<AddedToken>& added, const Normalizer& normalizer) {
    Entries entries(model.tokens.size());
    std::unordered_map<std::string_view, TokenId> ids;
    for (std::size_t id = 0; id < model.tokens.size(); ++id) {
        if (!model.tokens[id]) continue;
        entries[id] = Entry{*model.tokens[id], bytes_of(*model.tokens[id]), false};
        ids.emplace(*model.tokens[id], static_cast<TokenId>(id));
    }
    for (const AddedToken& token : added) {
        const auto index = static_cast<std::size_t>(token.id);
        const auto [known, is_new] = ids.try_emplace(token.content, token.id);
        if (known->second != token.id) {
            throw BadFile("added token '" + token.content + "' has the ids " + std::to_string(token.id) + " and " +
                          std::to_string(known->second));
        }
        if (entries.size() <= index) entries.resize(index + 1);
        if (entries[index] && entries[index]->content != token.content) {
            throw BadFile("added token '" + token.content + "' has the same id " + std::to_string(token.id) +
                          " as the token '" + entries[index]->content + "'");
        }
        const std::string decoded = token.normalized ? normalizer.normalize(token.content) : token.content;
        entries[index] = Entry{token.content, bytes_of(decoded), token.special};
    }
    return entries;
}

AddedTokenFinder finder_of(const std::vector<AddedToken>& added, bool normalized, const Normalizer& normalizer,
                           const std::shared_ptr<const CharClasses>& classes) {
    std::vector<AddedToken> tokens;
    const auto wanted = [&](const AddedToken& token) { return token.normalized == normalized; };
    std::copy_if(added.begin(), added.end(), std::back_inserter(tokens), wanted);
    std::vector<std::string> needles;
    for (const AddedToken& token : tokens) {
        needles.push_back(normalized ? normalizer.normalize(token.content) : token.content);
    }
    return {std::move(tokens), needles, classes};
}

// Only ByteLevel is supported, alone or in a Sequence, where Fuse may follow: there is one string to fuse by then.
void check_decoder(const nlohmann::json& decoder, int depth, bool& has_byte_level) {
    const std::string& type = component_type(decoder, "decoder", depth);
    if (type == "Sequence") {
        for (const auto& part : array_field(decoder, "decoders", "decoder Sequence")) {
            check_decoder(part, depth + 1, has_byte_level);
        }
    } else if (type == "ByteLevel" && !has_byte_level) {
        has_byte_level = true;
    } else if (type != "Fuse") {
        throw_unsupported("decoder", type);
    } else if (!has_byte_level) {
        throw BadFile("decoder: a Fuse before ByteLevel is not supported yet");
    }
}

class Fnv1a {
  public:
    void add(std::string_view bytes) {
        for (const char byte : bytes)
            hash_ = (hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
    }
    void add(std::uint64_t number) {
        for (int shift = 0; shift < 64; shift += 8)
            hash_ = (hash_ ^ ((number >> shift) & 0xFFU)) * 0x100000001B3U;
    }
    std::uint64_t value() const { return hash_; }

  private:
    std::uint64_t hash_ = 0xCBF29CE484222325U;
};

std::uint64_t fingerprint_of(const Entries& entries, const std::vector<Merge>& merges) {
    Fnv1a hash;
    for (std::size_t id = 0; id < entries.size(); ++id) {
        if (!entries[id]) continue;
        hash.add(id);
        hash.add(entries[id]->content.size());
        hash.add(entries[id]->content);
    }
    for (const Merge& merge : merges) {
        hash.add(static_cast<std::uint64_t>(merge.left));
        hash.add(static_cast<std::uint64_t>(merge.right));
    }
    return hash.value();
}

} // namespace

struct Tokenizer::Impl {
    Entries entries;
    Normalizer normalizer;
    AddedTokenFinder raw_added;
    AddedTokenFinder normalized_added;
    PreTokenizer pre_tokenizer;
    Bpe bpe;
    PostProcessor post_processor;
    std::uint64_t fingerprint = 0;

    static std::unique_ptr<Impl> from_json(const nlohmann::json& file);
    void encode_normalized(std::string_view text, WordEncoder& words, std::vector<TokenId>& ids) const;
    const Entry& entry(TokenId id) const;
};

std::unique_ptr<Tokenizer::Impl> Tokenizer::Impl::from_json(const nlohmann::json& file) {
    if (!file.is_object()) throw BadFile("not an object");
    const nlohmann::json& version = field(file, "version");
    if (!version.is_null() && version != "1.0") throw BadFile("'version' is not \"1.0\"");
    const BpeModel model = bpe_model_from_json(field(file, "model"));
    const std::vector<AddedToken> added = added_tokens_from_json(field(file, "added_tokens"));
    bool has_byte_level = false;
    check_decoder(field(file, "decoder"), 0, has_byte_level);
    if (!has_byte_level) throw BadFile("decoder has no ByteLevel: not supported yet");

    const auto classes = std::make_shared<const CharClasses>();
    Normalizer normalizer = Normalizer::from_json(field(file, "normalizer"));
    Entries entries = entries_of(model, added, normalizer);
    AddedTokenFinder raw_added = finder_of(added, false, normalizer, classes);
    AddedTokenFinder normalized_added = finder_of(added, true, normalizer, classes);
    PostProcessor post_processor = PostProcessor::from_json(field(file, "post_processor"));
    for (const TokenId id : post_processor.special_ids()) {
        const auto index = static_cast<std::size_t>(id);
        if (index >= entries.size() || !entries[index]) {
            throw BadFile("post_processor TemplateProcessing: no token has the id " + std::to_string(id));
        }
    }
    const std::uint64_t fingerprint = fingerprint_of(entries, model.merges);
    return std::make_unique<Impl>(Impl{std::move(entries), std::move(normalizer), std::move(raw_added),
                                       std::move(normalized_added),
                                       PreTokenizer::from_json(field(file, "pre_tokenizer"), classes), Bpe(model),
                                       std::move(post_processor), fingerprint});
}

void Tokenizer::Impl::encode_normalized(std::string_view text, WordEncoder& words, std::vector<TokenId>& ids) const {
    for (const Segment& segment : normalized_added.split(text)) {
        if (segment.id >= 0) {
            ids.push_back(segment.id);
            continue;
        }
        const Pieces pieces =
            pre_tokenizer.split(text.substr(segment.span.begin, segment.span.end - segment.span.begin));
        const std::string_view bytes = pieces.text;
        for (const Span& span : pieces.spans)
            words.encode(bytes.substr(span.begin, span.end - span.begin), ids);
    }
}

const Entry& Tokenizer::Impl::entry(TokenId id) const {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index >= entries.size() || !entries[index]) {
        throw std::out_of_range("token id " + std::to_string(id) + " is not in the vocabulary, whose ids are below " +
                                std::to_string(entries.size()));
    }
    return *entries[index];
}

Tokenizer Tokenizer::open(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "tokenizer.json";
    const nlohmann::json file = read_json_file(path, kMaxFileBytes);
    try {
        return Tokenizer(Impl::from_json(file));
    } catch (const BadFile& error) {
        throw BadFile(path.string() + ": " + error.what());
    }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    if (const std::size_t offset = first_invalid_utf8(text); offset != std::string_view::npos) {
        throw std::invalid_argument("the text is not UTF-8 at byte " + std::to_string(offset));
    }
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3);
    WordEncoder words(impl_->bpe);
    for (const Segment& segment : impl_->raw_added.split(text)) {
        const std::string_view part = text.substr(segment.span.begin, segment.span.end - segment.span.begin);
        if (segment.id >= 0) {
            ids.push_back(segment.id);
        } else if (impl_->normalizer.changes_nothing()) {
            impl_->encode_normalized(part, words, ids);
        } else {
            impl_->encode_normalized(impl_->normalizer.normalize(part), words, ids);
        }
    }
    return impl_->post_processor.process(std::move(ids), add_special_tokens);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
    std::string bytes;
    for (const TokenId id : ids) {
        const Entry& entry = impl_->entry(id);
        if (!(skip_special_tokens && entry.special)) bytes += entry.bytes;
    }
    std::string text;
    text.reserve(bytes.size());
    append_lossy(bytes, true, text);
    return text;
}

std::string Tokenizer::token_bytes(TokenId id) const {
    return impl_->entry(id).bytes;
}

bool Tokenizer::is_special(TokenId id) const {
    return impl_->entry(id).special;
}

int Tokenizer::size() const {
    return static_cast<int>(impl_->entries.size());
}

std::uint64_t Tokenizer::fingerprint() const {
    return impl_->fingerprint;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(TokenId id) {
    std::string bytes = tokenizer_->token_bytes(id);
    if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
    pending_ += bytes;
    std::string text;
    pending_.erase(0, append_lossy(pending_, false, text));
    return text;
}

std::string StreamDecoder::finish() {
    std::string text;
    append_lossy(pending_, true, text);
    pending_.clear();
    return text;
}

} // namespace entrodraft::model
