// Two vocabularies side by side, and texts of one in the other's tokens.
#include "model/text/tokenizer/vocabulary_map.h"

#include "tests/model/tokenizer_support.h"

#include <algorithm>
#include <random>
#include <tuple>

namespace vocabulary_map_test {

using namespace entrodraft::model;

constexpr int kAllRows = 1 << 20;

ModelVocabulary vocabulary(const std::string& family, int n_rows = kAllRows) {
    return {Tokenizer::open(fixture(family)), n_rows, {}};
}

VocabularyMap map_of(const std::string& target, const std::string& draft) {
    return {vocabulary(target), vocabulary(draft)};
}

TokenId id_of(const Tokenizer& tokenizer, const std::string& token) {
    for (TokenId id = 0; id < tokenizer.size(); ++id)
        if (tokenizer.has_token(id) && tokenizer.token(id) == token) return id;
    return -1;
}

// Of all pairs of families, those of byte-level alphabets, of "▁" and of bytes as tokens among them.
const char* const kPairs[][2] = {{"gpt2", "llama2"}, {"llama2", "gpt2"},    {"llama3", "gemma"},
                                 {"gemma", "qwen2"}, {"opt", "neox"},       {"neox", "llama2"},
                                 {"gpt2", "gpt2"},   {"falcon3", "llama3"}, {"qwen2", "t5-new"}};

std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
    std::string text;
    for (const TokenId id : ids)
        if (!tokenizer.is_special(id)) text += tokenizer.token_bytes(id);
    return text;
}

TEST(VocabularyMap, TokensAreTheSameWhereTheirBytesAre) {
    for (const auto& [target, draft] : kPairs) {
        const VocabularyMap map = map_of(target, draft);
        EXPECT_GT(map.shared().size(), 50U) << target << ", " << draft;
        std::vector<TokenId> of_draft;
        for (const auto& token : map.shared()) {
            EXPECT_EQ(map.draft_token(token.target), token.draft);
            EXPECT_EQ(map.target_token(token.draft), token.target);
            of_draft.push_back(token.draft);
            EXPECT_EQ(map.target().is_special(token.target), map.draft().is_special(token.draft));
            if (map.target().is_special(token.target)) continue;
            EXPECT_EQ(map.target().token_bytes(token.target), map.draft().token_bytes(token.draft));
        }
        std::ranges::sort(of_draft);
        EXPECT_TRUE(std::ranges::adjacent_find(of_draft) == of_draft.end()) << "a token of the draft twice";
    }
}

TEST(VocabularyMap, SpellingsOfSpacesAndBytesAreOneAndTheSame) {
    const VocabularyMap map = map_of("gpt2", "llama2");
    const TokenId space = id_of(map.target(), "\u0120"); // a space in the byte-level alphabet
    EXPECT_EQ(map.draft_token(space), id_of(map.draft(), "\u2581"));
    const TokenId byte = id_of(map.target(), "\u0100"); // the byte 0, which is no character of llama2's
    EXPECT_EQ(map.draft_token(byte), id_of(map.draft(), "<0x00>"));
    const VocabularyMap back = map_of("llama2", "gpt2"); // has "a" and <0x61>: text is encoded with the first
    EXPECT_EQ(back.target_token(id_of(back.draft(), "a")), id_of(back.target(), "a"));
    EXPECT_EQ(back.draft_token(id_of(back.target(), "<0x61>")), id_of(back.draft(), "a"));
}

TEST(VocabularyMap, EqualVocabulariesShareAllThatModelsEmit) {
    const VocabularyMap map = map_of("gpt2", "gpt2");
    EXPECT_EQ(static_cast<int>(map.shared().size()), map.n_target_tokens());
    EXPECT_EQ(map.target_share(), 1);
    const VocabularyMap narrow(vocabulary("gpt2"), vocabulary("gpt2", 100));
    EXPECT_EQ(narrow.shared().size(), 100U);
    EXPECT_EQ(narrow.n_draft_tokens(), 100);
    EXPECT_EQ(narrow.draft_token(150), -1);
}

TEST(VocabularyMap, EndsOfTextAreTheSameWhateverTheirText) {
    const Tokenizer gpt2 = Tokenizer::open(fixture("gpt2")), llama2 = Tokenizer::open(fixture("llama2"));
    const TokenId end = id_of(gpt2, "<|endoftext|>"), other_end = id_of(llama2, "</s>");
    ASSERT_GE(end, 0);
    const VocabularyMap without({gpt2, kAllRows, {}}, {llama2, kAllRows, {}});
    EXPECT_EQ(without.draft_token(end), -1);
    const VocabularyMap map({gpt2, kAllRows, {end}}, {llama2, kAllRows, {other_end}});
    EXPECT_EQ(map.draft_token(end), other_end);
    EXPECT_EQ(map.target_token(other_end), end);
    EXPECT_EQ(map.shared().size(), without.shared().size() + 1);
}

std::vector<TokenId> translated(const VocabularyMap& map, std::span<const TokenId> target) {
    TranslatedText text(map);
    text.follow(target);
    return {text.tokens().begin(), text.tokens().end()};
}

TEST(TranslatedText, SaysTheSame) {
    for (const auto& [target, draft] : kPairs) {
        const VocabularyMap map = map_of(target, draft);
        if (std::string(draft) == "t5-new") continue; // has no tokens for many characters
        for (const std::string text :
             {"the hat  and \n\n the 12 cats", "na\u00efve \u4f60\u597d \U0001F600, he said."}) {
            const std::vector<TokenId> ids = map.target().encode(text, true);
            const std::vector<TokenId> translation = translated(map, ids);
            // Some tokenizers begin a text with a space of their own.
            std::string said = text_of(map.draft(), translation), meant = text_of(map.target(), ids);
            for (std::string* each : {&said, &meant})
                if (each->starts_with(' ')) each->erase(0, 1);
            EXPECT_EQ(said, meant) << target << ", " << draft;
        }
    }
}

TEST(TranslatedText, IsOneTextWhicheverWayItCameAbout) {
    std::minstd_rand random(1);
    for (const auto& [target, draft] : kPairs) {
        const VocabularyMap map = map_of(target, draft);
        std::vector<TokenId> all = map.target().encode("the cat sat on the mat, and the other had", true);
        for (int i = 0; i < 60; ++i) // whatever a model may emit
            if (const auto id = static_cast<TokenId>(random() % static_cast<unsigned>(map.target().size()));
                map.target().has_token(id))
                all.push_back(id);
        TranslatedText text(map);
        std::vector<TokenId> settled;
        for (int i = 0; i < 200; ++i) {
            std::vector<TokenId> next(all.begin(),
                                      all.begin() + static_cast<std::ptrdiff_t>(random() % (all.size() + 1)));
            if (i % 3 == 0 && !next.empty()) next.back() = all.front();
            text.follow(next);
            const std::vector<TokenId> fresh = translated(map, next);
            ASSERT_TRUE(std::ranges::equal(text.tokens(), fresh)) << target << ", " << draft << ", step " << i;
            settled.assign(text.settled().begin(), text.settled().end());
            ASSERT_TRUE(std::ranges::equal(settled, std::span(fresh).first(settled.size())));
            next.push_back(all.back());
            const std::vector<TokenId> longer = translated(map, next);
            ASSERT_LE(settled.size(), longer.size());
            EXPECT_TRUE(std::ranges::equal(settled, std::span(longer).first(settled.size()))) << "is not settled";
        }
    }
}

TEST(TranslatedText, WordsThatGoOnKeepTheTokensThatBothKnow) {
    const VocabularyMap map = map_of("gpt2", "gpt2");
    const TokenId t = id_of(map.target(), "t"), h = id_of(map.target(), "h"), e = id_of(map.target(), "e");
    ASSERT_NE(map.target().encode("the", false), (std::vector<TokenId>{t, h, e}));
    TranslatedText text(map);
    text.follow(std::vector<TokenId>{t, h, e}); // not as the tokenizer writes it
    EXPECT_TRUE(std::ranges::equal(text.tokens(), std::vector<TokenId>{t, h, e}));
    const std::vector<TokenId> space = map.target().encode(" a", false);
    std::vector<TokenId> longer = {t, h, e};
    longer.insert(longer.end(), space.begin(), space.end());
    text.follow(longer); // the word is complete
    std::vector<TokenId> expected = map.target().encode("the", false);
    expected.insert(expected.end(), space.begin(), space.end());
    EXPECT_TRUE(std::ranges::equal(text.tokens(), expected));
}

TEST(TranslatedText, BeginsAsTheDraftsTextsDo) {
    const VocabularyMap map = map_of("gpt2", "llama2");
    const std::vector<TokenId> ids = map.target().encode(" the", true);
    EXPECT_EQ(translated(map, ids).front(), id_of(map.draft(), "<s>"));
    const VocabularyMap back = map_of("llama2", "gpt2"); // whose texts begin with no mark: the target's is not read
    const std::vector<TokenId> others = back.target().encode("the", true);
    EXPECT_EQ(text_of(back.draft(), translated(back, others)), " the");
    EXPECT_TRUE(translated(back, std::span(others).first(1)).empty());
}

TEST(TranslatedText, TextBehindIsTheTargetsTokens) {
    const VocabularyMap map = map_of("gpt2", "llama2");
    const Tokenizer& target = map.target();
    TranslatedText text(map);
    text.follow(target.encode("and the", false));
    EXPECT_EQ(text.target_tokens_behind(" cat"), target.encode(" cat", false));
    const TokenId space = id_of(target, "\u0120"), t = id_of(target, "t");
    text.follow(std::vector<TokenId>{space, t}); // " t", which is followed by what its tokens leave of " the"
    EXPECT_EQ(text.target_tokens_behind("he"), target.encode("he", false));
    text.follow(target.encode(" th", false));
    std::vector<TokenId> whole = target.encode(" th", false), behind = text.target_tokens_behind("em");
    whole.insert(whole.end(), behind.begin(), behind.end());
    EXPECT_EQ(text_of(target, whole), " them");
}

} // namespace vocabulary_map_test
