// See scored_texts.h.
#include "spec/distill/scored_texts.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <optional>

namespace entrodraft::spec {

using model::BadFile;
using model::TensorBytes;
using model::TokenId;

namespace {

// Names of tensors. kHead has for each text: number of tokens, of prompt tokens, n_top, and 1 if it is held out.
constexpr const char *kHead = "texts", *kDescription = "description", *kTokens = "tokens",
                     *kTemperatures = "temperatures", *kSources = "sources", *kSourceLengths = "source_lengths";
constexpr std::int64_t kHeadNumbers = 4;

template <typename T> constexpr const char* kType = "I32";
template <> constexpr const char* kType<float> = "F32";

template <typename T> TensorBytes tensor(const std::string& name, const std::vector<T>& values) {
    static_assert(sizeof(T) == 4);
    TensorBytes made = {name, kType<T>, {std::ssize(values)}, std::vector<std::byte>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
    return made;
}

// Calls `function` with name and member of each column of ScoredText that a file has.
template <typename Function> void every_column(const Function& function) {
    function("top_tokens", &ScoredText::top_tokens);
    function("top_log_probs", &ScoredText::top_log_probs);
    function("rest_mass", &ScoredText::rest_mass);
    function("rest_token", &ScoredText::rest_token);
    function("rest_log_prob", &ScoredText::rest_log_prob);
}

// Reads a tensor piece by piece, from its beginning on.
template <typename T> class Column {
  public:
    Column(const model::Checkpoint& file, const std::string& where, const std::string& name) : where_(where) {
        const model::TensorView& view = file.tensor(name);
        if (view.dtype != kType<T> || view.shape.size() != 1)
            throw BadFile(fmt::format("{}: tensor {} is not a vector of {}", where, name, kType<T>));
        bytes_ = view.bytes;
        name_ = name;
    }
    std::vector<T> take(std::size_t count) {
        if (count > bytes_.size() / sizeof(T))
            throw BadFile(fmt::format("{}: tensor {} is shorter than the texts", where_, name_));
        std::vector<T> values(count);
        if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
        bytes_ = bytes_.subspan(count * sizeof(T));
        return values;
    }
    std::size_t left() const { return bytes_.size() / sizeof(T); }

  private:
    std::string where_, name_;
    std::span<const std::byte> bytes_;
};

void check(const ScoredText& text, const std::string& name, int vocab_size) {
    const auto check_tokens = [&](const std::vector<TokenId>& tokens, TokenId least) {
        for (const TokenId token : tokens)
            if (token < least || token >= vocab_size)
                throw BadFile(fmt::format("{}: token id {} is outside the vocabulary of {}", name, token, vocab_size));
    };
    check_tokens(text.tokens, 0);
    for (const TokenId token : text.source) // ids of the encoder's vocabulary, which may differ
        if (token < 0) throw BadFile(fmt::format("{}: token id {} of a source is below 0", name, token));
    check_tokens(text.top_tokens, 0);
    check_tokens(text.rest_token, -1);
    for (const auto* numbers : {&text.top_log_probs, &text.rest_log_prob})
        for (const float number : *numbers)
            if (!(number <= 1e-3F)) throw BadFile(name + ": a logarithm of a probability is above 0");
    if (!(text.temperature >= 0)) throw BadFile(name + ": a temperature is below 0");
    for (const float mass : text.rest_mass)
        if (!(mass >= 0 && mass <= 1)) throw BadFile(name + ": a mass is outside 0 to 1");
}

} // namespace

TensorBytes text_tensor(const std::string& name, const std::string& text) {
    TensorBytes made = {name, "U8", {std::ssize(text)}, std::vector<std::byte>(text.size())};
    if (!text.empty()) std::memcpy(made.bytes.data(), text.data(), text.size());
    return made;
}

std::string text_of(const model::Checkpoint& file, const std::string& name) {
    if (!file.has(name)) return "";
    const std::span<const std::byte> bytes = file.tensor(name).bytes;
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<TensorBytes> to_tensors(const ScoredTexts& texts) {
    std::vector<std::int32_t> heads;
    std::vector<float> temperatures;
    std::vector<const ScoredText*> all;
    for (const bool is_held_out : {false, true})
        for (const ScoredText& text : is_held_out ? texts.held_out : texts.learned) {
            all.push_back(&text);
            temperatures.push_back(text.temperature);
            for (const int number : {static_cast<int>(text.tokens.size()), text.n_prompt, text.n_top, int{is_held_out}})
                heads.push_back(number);
        }
    std::vector<TensorBytes> tensors = {text_tensor(kDescription, texts.description), tensor(kHead, heads),
                                        tensor(kTemperatures, temperatures)};
    const auto add = [&](const std::string& name, auto member) {
        auto column = all.front()->*member;
        column.clear();
        for (const ScoredText* text : all)
            column.insert(column.end(), (text->*member).begin(), (text->*member).end());
        tensors.push_back(tensor(name, column));
    };
    if (all.empty()) return tensors;
    std::vector<std::int32_t> lengths; // of sources
    for (const ScoredText* text : all)
        lengths.push_back(static_cast<std::int32_t>(text->source.size()));
    if (std::ranges::max(lengths) > 0) {
        tensors.push_back(tensor(kSourceLengths, lengths));
        add(kSources, &ScoredText::source);
    }
    add(kTokens, &ScoredText::tokens);
    every_column(add);
    return tensors;
}

ScoredTexts scored_texts(const model::Checkpoint& file, const std::string& name, int vocab_size) {
    ScoredTexts texts;
    texts.description = text_of(file, kDescription);
    Column<std::int32_t> heads(file, name, kHead);
    Column<TokenId> tokens(file, name, kTokens), top_tokens(file, name, "top_tokens"),
        rest_token(file, name, "rest_token");
    Column<float> temperatures(file, name, kTemperatures), top_log_probs(file, name, "top_log_probs"),
        rest_mass(file, name, "rest_mass"), rest_log_prob(file, name, "rest_log_prob");
    std::optional<Column<std::int32_t>> source_lengths; // for models with an encoder
    std::optional<Column<TokenId>> sources;
    if (file.has(kSourceLengths)) {
        source_lengths.emplace(file, name, kSourceLengths);
        sources.emplace(file, name, kSources);
    }
    while (heads.left() > 0) {
        const std::vector<std::int32_t> head = heads.take(kHeadNumbers);
        if (head[1] < 1 || head[1] >= head[0] || head[2] < 1 || head[2] > vocab_size || head[3] < 0 || head[3] > 1)
            throw BadFile(fmt::format("{}: a text of {} tokens cannot have {} of a prompt and {} of a place", name,
                                      head[0], head[1], head[2]));
        ScoredText& text = (head[3] != 0 ? texts.held_out : texts.learned).emplace_back();
        text.n_prompt = head[1];
        text.n_top = head[2];
        text.temperature = temperatures.take(1).front();
        text.tokens = tokens.take(static_cast<std::size_t>(head[0]));
        if (sources) {
            const std::int32_t length = source_lengths->take(1).front();
            if (length < 1) throw BadFile(name + ": a text has no source, and others have one");
            text.source = sources->take(static_cast<std::size_t>(length));
        }
        const auto places = static_cast<std::size_t>(text.places()), n_top = static_cast<std::size_t>(text.n_top);
        text.top_tokens = top_tokens.take(places * n_top);
        text.top_log_probs = top_log_probs.take(places * n_top);
        text.rest_mass = rest_mass.take(places);
        text.rest_token = rest_token.take(places);
        text.rest_log_prob = rest_log_prob.take(places);
        check(text, name, vocab_size);
    }
    return texts;
}

} // namespace entrodraft::spec
