// A text under way: budgets and ends. Text that a stop string then removes is never shown.
#include "spec/round/sequence.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sequence_test {

using namespace entrodraft;
using spec::Completion;
using spec::FinishReason;
using spec::Request;
using spec::Sequence;
using spec::TokenId;

constexpr int kContext = 1000;
constexpr TokenId kEndOfText = 0;
const std::vector<std::int64_t> kEos = {kEndOfText};

const model::Tokenizer& tokenizer() {
    static const auto golden =
        model::Tokenizer::open(std::filesystem::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/golden/llama-target");
    return golden;
}

std::vector<TokenId> encode(const std::string& text) {
    return tokenizer().encode(text, false);
}

// One token a byte, so that every border between characters and tokens occurs.
std::vector<TokenId> byte_tokens(const std::string& text) {
    std::vector<TokenId> tokens;
    for (const char byte : text) {
        for (TokenId id = 1; id < tokenizer().size(); ++id) {
            if (tokenizer().token_bytes(id) == std::string(1, byte)) {
                tokens.push_back(id);
                break;
            }
        }
    }
    EXPECT_EQ(tokens.size(), text.size());
    return tokens;
}

struct Spoken {
    Completion completion;
    std::vector<std::string> shown; // all text shown so far, after each call
};

// Emits `tokens`, `each` tokens a call, until the text ends.
Spoken speak(Request request, const std::vector<TokenId>& tokens, std::size_t each = 1, int max_positions = kContext) {
    if (request.prompt.empty()) request.prompt = {5, 6, 7};
    Spoken spoken;
    std::string shown;
    Sequence sequence(request, {}, nullptr, &tokenizer(),
                      [&](const Request&, const spec::TextPiece& piece) { shown += piece.text; });
    for (std::size_t begin = 0; begin < tokens.size() && !sequence.ended(); begin += each) {
        sequence.emit(std::span(tokens).subspan(begin, std::min(each, tokens.size() - begin)), kEos, max_positions);
        spoken.shown.push_back(shown);
    }
    EXPECT_TRUE(sequence.ended());
    spoken.completion = sequence.finish();
    EXPECT_EQ(shown, spoken.completion.text) << "shown is not the text";
    for (const std::string& early : spoken.shown)
        EXPECT_EQ(spoken.completion.text.substr(0, early.size()), early) << "something shown was taken back";
    return spoken;
}

Request with_stops(std::vector<std::string> stops, int max_new_tokens = 100) {
    Request request;
    request.stop_strings = std::move(stops);
    request.max_new_tokens = max_new_tokens;
    return request;
}

TEST(Sequence, EndsAtItsBudgetHoweverManyTokensAreSaidAtOnce) {
    const std::vector<TokenId> tokens = byte_tokens("the captain drank his tea");
    for (const std::size_t each : {1U, 3U, 8U, 25U}) {
        const Spoken spoken = speak(with_stops({}, 11), tokens, each);
        EXPECT_EQ(spoken.completion.tokens, std::vector<TokenId>(tokens.begin(), tokens.begin() + 11));
        EXPECT_EQ(spoken.completion.text, "the captain");
        EXPECT_EQ(spoken.completion.finish_reason, FinishReason::length);
        EXPECT_EQ(spoken.completion.stats.new_tokens, 11);
        EXPECT_EQ(spoken.completion.stats.prompt_tokens, 3);
    }
}

TEST(Sequence, CountsDownItsBudget) {
    Request request = with_stops({}, 5);
    request.prompt = {9};
    Sequence sequence(request, {}, nullptr, &tokenizer(), nullptr);
    EXPECT_EQ(sequence.remaining_tokens(), 5);
    sequence.emit(std::vector<TokenId>{1, 2, 3}, kEos, kContext);
    EXPECT_EQ(sequence.remaining_tokens(), 2);
    EXPECT_EQ(sequence.tokens().size(), 4U);
    EXPECT_FALSE(sequence.ended());
}

TEST(Sequence, EndsWhereTheModelsContextIsFull) {
    Request request = with_stops({});
    request.prompt = std::vector<TokenId>(250, 3);
    const Spoken spoken = speak(request, byte_tokens("0123456789"), 4, 256);
    EXPECT_EQ(spoken.completion.text, "012345");
    EXPECT_EQ(spoken.completion.finish_reason, FinishReason::length);
}

TEST(Sequence, KeepsTheEndOfTextTokenAndShowsNothingOfIt) {
    std::vector<TokenId> tokens = byte_tokens("ab");
    tokens.push_back(kEndOfText);
    tokens.push_back(tokens[0]);
    for (const std::size_t each : {1U, 4U}) {
        const Spoken spoken = speak(with_stops({}), tokens, each);
        EXPECT_EQ(spoken.completion.tokens, std::vector<TokenId>(tokens.begin(), tokens.begin() + 3));
        EXPECT_EQ(spoken.completion.text, "ab");
        EXPECT_EQ(spoken.completion.finish_reason, FinishReason::eos);
    }
    Request deaf = with_stops({}, 4);
    deaf.ignore_eos = true;
    const Spoken on = speak(deaf, tokens, 4);
    EXPECT_EQ(on.completion.tokens, tokens);
    EXPECT_EQ(on.completion.text, "aba");
    EXPECT_EQ(on.completion.finish_reason, FinishReason::length);
}

TEST(Sequence, ReportsTheEndOfTextWhereItIsAlsoTheLastTokenOfTheBudget) {
    std::vector<TokenId> tokens = byte_tokens("ab");
    tokens.push_back(kEndOfText);
    EXPECT_EQ(speak(with_stops({}, 3), tokens).completion.finish_reason, FinishReason::eos);
}

TEST(Sequence, CutsTheTextBeforeAStopStringAcrossTokenBorders) {
    const std::string text = "one two. END three";
    for (const std::size_t each : {1U, 2U, 5U, 30U}) {
        const Spoken spoken = speak(with_stops({"END"}), byte_tokens(text), each);
        EXPECT_EQ(spoken.completion.text, "one two. ");
        EXPECT_EQ(spoken.completion.finish_reason, FinishReason::stop);
        EXPECT_EQ(spoken.completion.tokens, byte_tokens("one two. END")) << "tokens up to the one that completed it";
    }
    // Tokens are whole words: the stop string begins and ends inside of them.
    const std::vector<TokenId> words = encode("The captain drank his tea and looked at the water.");
    const Spoken spoken = speak(with_stops({"ea and loo"}), words, 2);
    EXPECT_EQ(spoken.completion.text, "The captain drank his t");
    EXPECT_LT(spoken.completion.tokens.size(), words.size());
}

TEST(Sequence, NeverShowsWhatMayBecomeAStopString) {
    const Spoken spoken = speak(with_stops({"abcd"}), byte_tokens("xxabcd"));
    EXPECT_EQ(spoken.shown, (std::vector<std::string>{"x", "xx", "xx", "xx", "xx", "xx"}));
}

TEST(Sequence, ShowsHeldBackTextOnceItTurnsOutHarmless) {
    const Spoken spoken = speak(with_stops({"abcd"}, 6), byte_tokens("xabcxz"));
    EXPECT_EQ(spoken.shown, (std::vector<std::string>{"x", "x", "x", "x", "xabcx", "xabcxz"}));
    EXPECT_EQ(spoken.completion.finish_reason, FinishReason::length);
    // Also at the end, after which nothing can come.
    const Spoken cut = speak(with_stops({"abcd"}, 4), byte_tokens("xabcd"));
    EXPECT_EQ(cut.completion.text, "xabc");
    EXPECT_EQ(cut.completion.finish_reason, FinishReason::length);
}

TEST(Sequence, FindsStopStringsThatOverlapThemselvesAndEachOther) {
    EXPECT_EQ(speak(with_stops({"aab"}), byte_tokens("xaaab")).completion.text, "xa");
    EXPECT_EQ(speak(with_stops({"abab"}), byte_tokens("abaabab")).completion.text, "aba");
    EXPECT_EQ(speak(with_stops({"bc", "abcd"}), byte_tokens("xabcd")).completion.text, "xa");
    EXPECT_EQ(speak(with_stops({"abcd", "cx"}), byte_tokens("zabcx")).completion.text, "zab");
    EXPECT_EQ(speak(with_stops({"c", "abc"}), byte_tokens("zabc"), 4).completion.text, "z");
    // Two stop strings end in one piece: the one that begins first cuts the text.
    EXPECT_EQ(speak(with_stops({"ter", "wa"}), byte_tokens("a water"), 7).completion.text, "a ");
}

TEST(Sequence, AStopStringOfOneCharacterAndOneThatIsTheWholeText) {
    EXPECT_EQ(speak(with_stops({"."}), byte_tokens("ab.c")).completion.text, "ab");
    const Spoken spoken = speak(with_stops({"ab"}), byte_tokens("ab"));
    EXPECT_EQ(spoken.completion.text, "");
    EXPECT_EQ(spoken.shown.back(), "");
}

TEST(Sequence, AStopStringThatCompletesWithTheLastTokenOfTheBudgetStops) {
    EXPECT_EQ(speak(with_stops({"cd"}, 4), byte_tokens("abcd")).completion.finish_reason, FinishReason::stop);
}

TEST(Sequence, ShowsWholeCharactersOnlyAndReplacesAnUnfinishedOneAtTheEnd) {
    const std::string text = "h\u00e9\u20ac\U0001F600!"; // characters of 1, 2, 3, 4 and 1 bytes
    const Spoken spoken = speak(with_stops({}, 11), byte_tokens(text));
    EXPECT_EQ(spoken.completion.text, text);
    EXPECT_EQ(spoken.shown[1], "h");
    EXPECT_EQ(spoken.shown[2], "h\u00e9");
    EXPECT_EQ(spoken.shown[4], "h\u00e9");
    EXPECT_EQ(spoken.shown[5], "h\u00e9\u20ac");
    EXPECT_EQ(spoken.shown[8], "h\u00e9\u20ac");
    const Spoken cut = speak(with_stops({}, 5), byte_tokens(text));
    EXPECT_EQ(cut.completion.text.substr(0, 3), "h\u00e9");
    EXPECT_NE(cut.completion.text.find("\ufffd"), std::string::npos);
}

TEST(Sequence, FindsAStopStringOfManyByteCharacters) {
    const Spoken spoken = speak(with_stops({"\u20ac\u20ac"}), byte_tokens("a\u20acb\u20ac\u20acc"));
    EXPECT_EQ(spoken.completion.text, "a\u20acb");
    EXPECT_EQ(spoken.completion.finish_reason, FinishReason::stop);
}

// The log-probability of each token is its number. Returns "text: numbers" of each piece.
std::vector<std::string> pieces_with_logprobs(Request request, const std::vector<TokenId>& tokens, std::size_t each) {
    request.prompt = {5};
    request.logprobs = 0;
    std::vector<std::string> pieces;
    Sequence sequence(request, {}, nullptr, &tokenizer(), [&](const Request&, const spec::TextPiece& piece) {
        std::string& shown = pieces.emplace_back(std::string(piece.text) + ":");
        for (const auto& part : {piece.logprobs_of_given, piece.logprobs})
            for (const spec::TokenLogProbs& of_token : part)
                shown += " " + std::to_string(static_cast<int>(of_token.emitted.log_prob));
    });
    if (!request.given.empty()) sequence.logprobs_of_given = {{{request.given[0], -1}, {}}};
    sequence.take_given(request.given);
    for (std::size_t begin = 0; begin < tokens.size() && !sequence.ended(); begin += each) {
        const std::size_t n = std::min(each, tokens.size() - begin);
        for (std::size_t i = begin; i < begin + n; ++i)
            sequence.logprobs.push_back({{tokens[i], static_cast<float>(i)}, {}});
        sequence.emit(std::span(tokens).subspan(begin, n), kEos, kContext);
    }
    EXPECT_TRUE(sequence.ended());
    return pieces;
}

TEST(Sequence, HandsOutLogProbabilitiesWithTheTextOfTheirTokens) {
    using Pieces = std::vector<std::string>;
    for (const std::size_t each : {1U, 2U, 8U}) {
        EXPECT_EQ(pieces_with_logprobs(with_stops({}, 3), byte_tokens("abc"), each), (Pieces{"a: 0", "b: 1", "c: 2"}));
        EXPECT_EQ(pieces_with_logprobs(with_stops({}, 5), byte_tokens("a\u20acb"), each),
                  (Pieces{"a: 0", "\u20ac: 1 2 3", "b: 4"}));
        // Text that may be a stop string's beginning, and a stop string, whose tokens have no piece.
        EXPECT_EQ(pieces_with_logprobs(with_stops({"bcd"}), byte_tokens("abcabcd"), each),
                  (Pieces{"a: 0", "bca: 1 2 3"}));
        // A character is not whole while text before it is held back, and at the end it never is.
        EXPECT_EQ(pieces_with_logprobs(with_stops({"b!", "\u20ac!"}, 6), byte_tokens("ab\u20acc"), each),
                  (Pieces{"a: 0", "b: 1", "\u20acc: 2 3 4 5"}));
        EXPECT_EQ(pieces_with_logprobs(with_stops({}, 2), byte_tokens("a\u20ac"), each), (Pieces{"a: 0", "\ufffd: 1"}));
        Request echoed = with_stops({}, 2);
        echoed.given = {6};
        EXPECT_EQ(pieces_with_logprobs(echoed, byte_tokens("ab"), each), (Pieces{"a: -1 0", "b: 1"}));
    }
}

TEST(Sequence, HandsOutAsManyMarginsAsTokens) {
    Request request = with_stops({}, 2);
    request.prompt = {4};
    Sequence sequence(request, {}, nullptr, &tokenizer(), nullptr);
    sequence.logit_margins = {1, 2, 3, 4}; // of a round that the budget cut short
    sequence.emit(byte_tokens("abcd"), kEos, kContext);
    EXPECT_EQ(sequence.finish().logit_margins, (std::vector<double>{1, 2}));
}

} // namespace sequence_test
