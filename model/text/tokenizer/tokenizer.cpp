// See tokenizer.h. Combines the components of a tokenizer.json. Encoding takes these steps: added tokens, normalizer,
// pre_tokenizer and model, then the template of special tokens. Decoding takes one: the decoder. The file's truncation
// and padding are not applied, because the caller decides about lengths.
#include "model/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "model/files/gguf_file.h"
#include "model/files/json_file.h"
#include "model/files/utf8.h"
#include "model/text/tokenizer/added_tokens.h"
#include "model/text/tokenizer/bpe.h"
#include "model/text/tokenizer/normalizer.h"
#include "model/text/tokenizer/post_processor.h"
#include "model/text/tokenizer/pre_tokenizer.h"
#include "model/text/tokenizer/token_decoder.h"
#include "model/text/tokenizer/tokenizer_files.h"
#include "model/text/tokenizer/tokenizer_json.h"
#include "model/text/tokenizer/unigram.h"

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxWordBytes = std::size_t{256} << 20; // encoders count its bytes as 32-bit numbers

// One entry of the whole vocabulary, from the model or the added tokens.
struct Entry {
    std::string content;  // as in the file
    std::string prepared; // in the decoder's form
    bool special = false;
};

using Entries = std::vector<std::optional<Entry>>; // by id
using Tokens = std::vector<std::optional<std::string>>;

// As in the reference, an added token with normalized = true decodes as its normalized content. A token is special if
// it decodes as some special token's content.
Entries entries_of(const Tokens& tokens, const std::vector<AddedToken>& added, const Normalizer& normalizer,
                   const TokenDecoder& decoder) {
    Entries entries(tokens.size());
    std::unordered_map<std::string_view, TokenId> ids;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
        if (!tokens[id]) continue;
        entries[id] = Entry{*tokens[id], decoder.prepare(*tokens[id]), false};
        ids[*tokens[id]] = static_cast<TokenId>(id); // of two equal pieces of a Unigram, the last counts
    }
    std::unordered_set<std::string_view> special;
    for (const AddedToken& token : added) {
        if (token.special) special.insert(token.content);
    }
    for (const AddedToken& token : added) {
        const auto index = static_cast<std::size_t>(token.id);
        const auto [known, is_new] = ids.try_emplace(token.content, token.id);
        if (known->second != token.id) {
            throw BadFile(
                fmt::format("added token {} has the ids {} and {}", in_quotes(token.content), token.id, known->second));
        }
        if (entries.size() <= index) entries.resize(index + 1);
        if (entries[index] && entries[index]->content != token.content) {
            throw BadFile(fmt::format("added token {} has the same id {} as the token {}", in_quotes(token.content),
                                      token.id, in_quotes(entries[index]->content)));
        }
        const std::string decoded = token.normalized ? normalizer.normalize(token.content).text : token.content;
        entries[index] = Entry{token.content, decoder.prepare(decoded), special.contains(decoded)};
    }
    return entries;
}

AddedTokenFinder finder_of(const std::vector<AddedToken>& added, bool normalized, const Normalizer& normalizer,
                           const std::shared_ptr<const CharClasses>& classes) {
    std::vector<AddedToken> tokens;
    std::vector<std::string> needles;
    for (const AddedToken& token : added) {
        if (token.normalized != normalized) continue;
        tokens.push_back(token);
        needles.push_back(normalized ? normalizer.normalize(token.content).text : token.content);
    }
    return {std::move(tokens), needles, classes};
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

using ModelFile = std::variant<BpeModel, UnigramModel>;

// Old files lack the type: then the fields that are there define it.
ModelFile model_from_json(const nlohmann::json& model) {
    if (!model.is_object()) throw BadFile("'model' is missing or not an object");
    const bool has_type = !field(model, "type").is_null();
    const std::string type = has_type                           ? string_field(model, "type", "model")
                             : model.contains("merges")         ? "BPE"
                             : field(model, "vocab").is_array() ? "Unigram"
                                                                : "(none)";
    if (type == "BPE") return bpe_model_from_json(model);
    if (type == "Unigram") return unigram_model_from_json(model);
    throw_unsupported("model", type);
}

std::uint64_t fingerprint_of(const Entries& entries, const ModelFile& model) {
    Fnv1a hash;
    for (std::size_t id = 0; id < entries.size(); ++id) {
        if (!entries[id]) continue;
        hash.add(id);
        hash.add(entries[id]->content.size());
        hash.add(entries[id]->content);
    }
    if (const auto* bpe = std::get_if<BpeModel>(&model)) {
        for (const Merge& merge : bpe->merges) {
            hash.add(static_cast<std::uint64_t>(merge.left));
            hash.add(static_cast<std::uint64_t>(merge.right));
        }
        hash.add(static_cast<std::uint64_t>(bpe->byte_fallback));
        return hash.value();
    }
    hash.add("Unigram");
    const auto& unigram = std::get<UnigramModel>(model);
    for (const double score : unigram.scores)
        hash.add(std::bit_cast<std::uint64_t>(score));
    for (const UnigramModel::Piece& piece : unigram.without_id)
        hash.add(piece.text);
    return hash.value();
}

} // namespace

struct Tokenizer::Impl {
    using Model = std::variant<Bpe, Unigram>;
    using Encoder = std::variant<BpeEncoder, UnigramEncoder>;

    Entries entries;
    Normalizer normalizer;
    AddedTokenFinder raw_added;
    AddedTokenFinder normalized_added;
    PreTokenizer pre_tokenizer;
    Model model;
    PostProcessor post_processor;
    TokenDecoder decoder;
    std::uint64_t fingerprint = 0;
    bool has_language_codes = false; // a part of a text may begin with >>code<<, one token

    static std::shared_ptr<const Impl> from_json(const nlohmann::json& file);
    static std::shared_ptr<const Impl> of_marian(const std::filesystem::path& directory, bool of_source);
    static std::shared_ptr<Impl> assemble(TokenizerFiles files);
    Encoder encoder() const;
    void encode_part(std::string_view text, bool at_begin, Encoder& words, std::vector<TokenId>& ids) const;
    const Entry& entry(TokenId id) const;
};

std::shared_ptr<const Tokenizer::Impl> Tokenizer::Impl::from_json(const nlohmann::json& file) {
    if (!file.is_object()) throw BadFile("not an object");
    const nlohmann::json& version = field(file, "version");
    if (!version.is_null() && version != "1.0") throw BadFile("'version' is not \"1.0\"");
    return assemble({model_from_json(field(file, "model")), {}, {}, file});
}

std::shared_ptr<const Tokenizer::Impl> Tokenizer::Impl::of_marian(const std::filesystem::path& directory,
                                                                  bool of_source) {
    auto impl = assemble(read_marian_files(directory, of_source));
    impl->has_language_codes = true;
    return impl;
}

std::shared_ptr<Tokenizer::Impl> Tokenizer::Impl::assemble(TokenizerFiles files) {
    ModelFile& model = files.model;
    const nlohmann::json& file = files.others;
    const Tokens& tokens = std::visit([](const auto& m) -> const Tokens& { return m.tokens; }, model);
    const std::vector<AddedToken> added = added_tokens_from_json(field(file, "added_tokens"));

    const auto classes = std::make_shared<const CharClasses>();
    TokenDecoder decoder = TokenDecoder::from_json(field(file, "decoder"));
    Normalizer normalizer = files.normalizer ? Normalizer::of_step(std::move(files.normalizer))
                                             : Normalizer::from_json(field(file, "normalizer"), classes);
    PreTokenizer pre_tokenizer = files.pre_tokenizer ? PreTokenizer::of_step(std::move(files.pre_tokenizer))
                                                     : PreTokenizer::from_json(field(file, "pre_tokenizer"), classes);
    Entries entries = entries_of(tokens, added, normalizer, decoder);
    AddedTokenFinder raw_added = finder_of(added, false, normalizer, classes);
    AddedTokenFinder normalized_added = finder_of(added, true, normalizer, classes);
    PostProcessor post_processor = PostProcessor::from_json(field(file, "post_processor"));
    for (const TokenId id : post_processor.special_ids()) {
        const auto index = static_cast<std::size_t>(id);
        if (index >= entries.size() || !entries[index]) {
            throw BadFile(fmt::format("post_processor: no token has the id {}", id));
        }
    }
    const std::uint64_t fingerprint = fingerprint_of(entries, model);
    const auto made = [&]() -> Model {
        if (auto* bpe = std::get_if<BpeModel>(&model)) return Bpe(std::move(*bpe), pre_tokenizer.gives_bytes());
        return Unigram(std::get<UnigramModel>(model));
    };
    Model ready = made();
    return std::make_shared<Impl>(Impl{std::move(entries), std::move(normalizer), std::move(raw_added),
                                       std::move(normalized_added), std::move(pre_tokenizer), std::move(ready),
                                       std::move(post_processor), std::move(decoder), fingerprint});
}

Tokenizer::Impl::Encoder Tokenizer::Impl::encoder() const {
    if (const auto* bpe = std::get_if<Bpe>(&model)) return BpeEncoder(*bpe);
    return UnigramEncoder(std::get<Unigram>(model));
}

// Encodes the text between added tokens. `at_begin`: it is the beginning of the whole text.
void Tokenizer::Impl::encode_part(std::string_view text, bool at_begin, Encoder& words,
                                  std::vector<TokenId>& ids) const {
    if (const std::size_t end = text.find("<<");
        has_language_codes && text.starts_with(">>") && end != std::string_view::npos) {
        std::get<UnigramEncoder>(words).append_token(text.substr(0, end + 2), ids);
        text.remove_prefix(end + 2);
    }
    NormalizedText normalized;
    if (!normalizer.changes_nothing()) {
        normalized = normalizer.normalize(text, at_begin);
        text = normalized.text;
    }
    for (const TextPart& segment : normalized_added.split(text)) {
        if (segment.id >= 0) {
            ids.push_back(segment.id);
            continue;
        }
        const Pieces pieces =
            pre_tokenizer.split(segment.span.of(text), at_begin && normalized.keeps_begin && segment.span.begin == 0);
        for (const Span& span : pieces.spans) {
            const std::string_view word = span.of(pieces.text);
            if (word.size() > kMaxWordBytes)
                throw std::runtime_error(fmt::format("a word of {} bytes is too long to be encoded", word.size()));
            std::visit([&](auto& encoder) { encoder.encode(word, ids); }, words);
        }
    }
}

const Entry& Tokenizer::Impl::entry(TokenId id) const {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index >= entries.size() || !entries[index]) {
        throw std::out_of_range(
            fmt::format("token id {} is not in the vocabulary, whose ids are below {}", id, entries.size()));
    }
    return *entries[index];
}

Tokenizer Tokenizer::open(const std::filesystem::path& directory) {
    if (const auto gguf = gguf_file_of(directory)) {
        const GgufFile file = open_gguf(*gguf);
        try {
            return Tokenizer(Impl::assemble(read_gguf_tokenizer(file.metadata)));
        } catch (const BadFile& error) {
            throw BadFile(gguf->string() + ": " + error.what());
        }
    }
    const std::filesystem::path path = directory / "tokenizer.json";
    std::error_code ignored; // a path that cannot be examined cannot be opened, and that gives a message
    const bool has_file = std::filesystem::exists(path, ignored);
    if (!has_file && has_marian_files(directory)) return Tokenizer(Impl::of_marian(directory, false));
    if (!has_file && !file_exists(directory / "vocab.json") && !file_exists(directory / "merges.txt"))
        if (const auto other = other_tokenizer_file(directory)) try {
                return Tokenizer(Impl::assemble(read_other_tokenizer(*other)));
            } catch (const BadFile& error) {
                throw BadFile(other->string() + ": " + error.what());
            }
    const nlohmann::json file = has_file ? read_json_file(path, kMaxFileBytes) : tokenizer_from_vocabulary(directory);
    try {
        return Tokenizer(Impl::from_json(file));
    } catch (const BadFile& error) {
        throw BadFile((has_file ? path : directory / "vocab.json").string() + ": " + error.what());
    }
}

std::optional<Tokenizer> Tokenizer::open_source(const std::filesystem::path& directory) {
    if (file_exists(directory / "tokenizer.json") || !has_marian_files(directory)) return std::nullopt;
    return Tokenizer(Impl::of_marian(directory, true));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    if (const std::size_t offset = first_invalid_utf8(text); offset != std::string_view::npos) {
        throw std::invalid_argument(fmt::format("the text is not UTF-8 at byte {}", offset));
    }
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3);
    Impl::Encoder words = impl_->encoder();
    for (const TextPart& segment : impl_->raw_added.split(text)) {
        if (segment.id >= 0)
            ids.push_back(segment.id);
        else
            impl_->encode_part(segment.span.of(text), segment.span.begin == 0, words, ids);
    }
    return impl_->post_processor.process(std::move(ids), add_special_tokens);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
    TokenStream stream(impl_->decoder);
    std::string text;
    for (const TokenId id : ids) {
        const Entry& entry = impl_->entry(id);
        if (!(skip_special_tokens && entry.special)) stream.push(entry.prepared, text);
    }
    stream.finish(text);
    return text;
}

bool Tokenizer::has_token(TokenId id) const {
    return id >= 0 && id < size() && impl_->entries[id];
}

const std::string& Tokenizer::token(TokenId id) const {
    return impl_->entry(id).content;
}

std::string Tokenizer::token_bytes(TokenId id) const {
    return impl_->decoder.bytes_of(impl_->entry(id).prepared);
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

std::string_view Tokenizer::kind() const {
    return std::holds_alternative<Bpe>(impl_->model) ? "BPE" : "Unigram";
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens),
      stream_(std::make_unique<TokenStream>(tokenizer.impl_->decoder)) {}

StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(TokenId id) {
    const Entry& entry = tokenizer_->impl_->entry(id);
    std::string text;
    if (!(skip_special_tokens_ && entry.special)) stream_->push(entry.prepared, text);
    return text;
}

std::string StreamDecoder::finish() {
    std::string text;
    stream_->finish(text);
    return text;
}

} // namespace entrodraft::model
