// Grammars, regular expressions and JSON schemas: which texts are as they ask, which tokens may come next, and what is
// refused, in what words and how soon.
#include "model/text/grammar/token_grammar.h"

#include "model/text/tokenizer/tokenizer.h"
#include "tests/model/cpu_seconds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace grammar_test {

using namespace entrodraft::model::grammar;
using entrodraft::cpu_seconds;
using entrodraft::kSlowdown;
using entrodraft::model::TokenId;

bool accepts(const Source& source, std::string_view text) {
    const auto automaton = compile(source);
    Recognizer recognizer(*automaton);
    StateId state = recognizer.start();
    for (const char byte : text)
        state = recognizer.next(state, static_cast<std::uint8_t>(byte));
    return recognizer.accepts(state);
}

std::string refusal(const Source& source) {
    try {
        (void)compile(source);
        return "";
    } catch (const BadGrammar& error) {
        return error.what();
    }
}

Source regex(std::string text) {
    return {Language::regex, std::move(text)};
}
Source gbnf(std::string text) {
    return {Language::grammar, std::move(text)};
}
Source schema(std::string text) {
    return {Language::json_schema, std::move(text)};
}

void expect_texts(const Source& source, const std::vector<std::string>& good, const std::vector<std::string>& bad) {
    for (const std::string& text : good)
        EXPECT_TRUE(accepts(source, text)) << source.text << " on " << text;
    for (const std::string& text : bad)
        EXPECT_FALSE(accepts(source, text)) << source.text << " on " << text;
}

TEST(Grammar, RegularExpressionsAreOfTheWholeText) {
    expect_texts(regex("a|bc"), {"a", "bc"}, {"", "b", "abc", "ac"});
    expect_texts(regex("^(a|b)*c{2,3}$"), {"cc", "ababccc"}, {"c", "cccc", "acb"});
    expect_texts(regex("[^\\d\"-]+?x"), {"zx", "\xC3\xA9\xF0\x9F\x98\x80x"}, {"1x", "\"x", "-x", "\xC3x", "x"});
    expect_texts(regex("\\w{3}\\s\\D"), {"a_9 z"}, {"a_9 0", "a-9 z", "\xC3\xA9zz z"});
    expect_texts(regex("(?<year>[0-9]{4})-\\x41\\u00e9."), {"2026-A\xC3\xA9-"}, {"2026-A\xC3\xA9\n", "2026-A\xC3\xA9"});
    expect_texts(regex("(a*)*b?"), {"", "aaaa", "aab", "b"}, {"ba", "bb"});
    expect_texts(regex("[\xE0\xA0\x80-\xF0\x90\x80\x81]"), {"\xE0\xA0\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x81"},
                 {"\xDF\xBF", "\xF0\x90\x80\x82", "\xED\xA0\x80"}); // no surrogates
}

// \S in brackets that are negated is every character that is no white space in either language, and so on.
TEST(Grammar, NegatedBracketsExcludeWhatAClassStandsForInEitherLanguage) {
    expect_texts(regex("[^\\S\n]"), {" ", "\t", "\f"}, {"\n", "x", "\xC3\xA9", "\x1C", "\xC2\x85", "\xE3\x80\x80"});
    expect_texts(regex("[^\\D]"), {"0", "9"}, {"x", "\xD1\x94", "\xDB\xB2"});
    expect_texts(regex("[^\\W_]"), {"a", "Z", "0"}, {"_", "-", "\xC3\xA9", "\xE4\xB8\x80"});
    expect_texts(regex("[^\\d ]"), {"x", "\xC3\xA9", "\xC2\xB2"}, {" ", "7", "\xDB\xB2", "\xEF\xBC\x91"});
    expect_texts(regex("[^\\w ]"), {"-", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
                 {"a", " ", "\xC3\xA9", "\xC2\xB2", "\xEC\x88\xBA", "\xCD\xB8"});
    expect_texts(regex("[^\\s]"), {"x", "\xC3\xA9", "\xE2\x80\x8B"},
                 {" ", "\x1C", "\x1F", "\xC2\x85", "\xC2\xA0", "\xE2\x80\xA8", "\xE3\x80\x80", "\xEF\xBB\xBF"});
    expect_texts(regex("\\S"), {"x", "\x1B"}, {" ", "\x1C", "\x1F", "\xC3\xA9"});
    for (const char* empty : {"[^\\s\\S]", "[^\\d\\D]", "[^\\w\\W]", "[^\\S\\s]x"})
        EXPECT_EQ(refusal(regex(empty)), "no text is as it asks") << empty;
    const Source pattern = schema(R"({"type": "string", "pattern": "^[^\\S\n]{2}x$"})");
    expect_texts(pattern, {"\"  x\"", "\" \\tx\""}, {"\" \xC3\xA0x\"", "\"\xC3\xA9 x\"", "\" \\nx\""});
}

// Hundreds of ranges share the bytes that they begin with.
TEST(Grammar, LargeClassesStaySmall) {
    const auto automaton = compile(regex("[^\\w ]"));
    EXPECT_LT(automaton->size(), 1000u);
    Recognizer recognizer(*automaton);
    for (int byte = 0xC2; byte < 0xF5; ++byte)
        EXPECT_LE(recognizer.n_ways(recognizer.next(recognizer.start(), static_cast<std::uint8_t>(byte))), 2u) << byte;
    EXPECT_EQ(refusal(regex("([^\\w ]{3,5}-)*[^\\d]{1,50}[^\\w\\s][^\\w]+@[^\\w]+")), "");
}

TEST(Grammar, RulesAreThoseOfLlamaCpp) {
    const Source sums =
        gbnf("# sums\nroot ::= term (\"+\" term)*\nterm ::= [0-9]{1,2} | \"(\" root \")\" |\n  \"\\x41\"\n");
    expect_texts(sums, {"1", "12+(3+A)", "((7))"}, {"123", "1+", "(1", "a"});
    expect_texts(gbnf("root ::= \"a\" root | \"b\""), {"b", "aaab"}, {"", "aa"}); // flat: no rule stays open
    expect_texts(gbnf("root ::= \"a\" root \"b\" | \"\""), {"", "ab", "aaabbb"}, {"aab", "abb"});
    expect_texts(gbnf("root ::= x{2,}\nx ::= . y?\ny ::= [^a-c]"), {"aa", "a\nbz"}, {"a"});
    EXPECT_TRUE(accepts(gbnf("root ::= \"a\" root | \"b\""), std::string(100'000, 'a') + "b"));
}

TEST(Grammar, SchemasAllowValidTexts) {
    const Source person = schema(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "age":
        {"type": "integer", "minimum": 0, "exclusiveMaximum": 150}, "tags": {"items": {"enum": ["a", 1, null]},
        "maxItems": 2}}, "required": ["name"]})");
    expect_texts(
        person,
        {R"({"name": "Ada"})", R"({"name":"\u00e9x", "age": 149})", "{\n  \"name\": \"\", \"tags\": [\"a\",1]\n}"},
        {"{}", R"({"age": 3})", R"({"name": "Adam"})", R"({"name": "A", "age": 150})", R"({"name": "A", "x": 1})",
         R"({"name": "A", "tags": [2]})", R"({"name": "A",})", R"({"age": 1, "name": "A"})"});
    expect_texts(schema(R"({"properties": {"a": true}, "additionalProperties": {"type": "boolean"}})"),
                 {"{}", R"({"a": 1, "b": true})", R"({"ab": false, "": true})"},
                 {R"({"b": 1})", R"({"b": true, "a": 1})"});
    expect_texts(schema(R"({"anyOf": [{"type": ["null", "number"]}, {"const": {"k": [1, "\n"]}}]})"),
                 {"null", "-1.5e+3", R"({"k":[1,"\n"]})"}, {"01", "1.", "{}"});
    expect_texts(schema(R"({"type": "string", "pattern": "b+$"})"), {R"("b")", R"("a\"\u0001b")"},
                 {R"("ba")", R"("\b)"});
    expect_texts(schema(R"({"type": "string", "pattern": "^[\"\\\\\n]{2}$"})"), {R"("\"\\")", R"("\n\"")"},
                 {"\"\n\n\""});
    expect_texts(schema(R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2})"),
                 {"-1", "1", "1.5", "0.1", "-0.5"}, {"-2", "2", "1.50", "-1.6"});
    expect_texts(schema(R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1})"),
                 {"[1]", "[1, 2, 3, 3]"}, {"[]", "[1, 3]", "[1, 2, 2]"});
    expect_texts(schema(R"({"$ref": "#/$defs/list", "$defs": {"list": {"oneOf": [{"type": "null"},
        {"type": "array", "items": {"$ref": "#/$defs/list"}}]}}})"),
                 {"null", "[[null], []]"}, {"[1]", "[[null]"});
    expect_texts(schema(R"({"type": "object"})"), {"{}", R"({"a": [1, {"b": null}]})"}, {"[]", "1"});
    expect_texts(schema("true"), {"1", R"(["a"])"}, {"", "a"});
}

TEST(Grammar, IntegersAreThoseWithinTheirBounds) {
    for (const auto& [low, high] : {std::pair{0, 0}, {-3, 12}, {7, 1005}, {-120, -98}, {19, 20}}) {
        const Source bounded = schema("{\"type\": \"integer\", \"minimum\": " + std::to_string(low) +
                                      ", \"maximum\": " + std::to_string(high) + "}");
        for (int value = -200; value <= 1200; ++value)
            ASSERT_EQ(accepts(bounded, std::to_string(value)), value >= low && value <= high) << bounded.text << value;
    }
}

TEST(Grammar, WhatCannotBeHeldToIsRefusedByName) {
    for (const auto& [source, words] : std::vector<std::pair<Source, std::string>>{
             {regex("a("), "line 1, byte 3: ) is missing"},
             {regex("(a)\\1"), "\\1 is not supported"},
             {regex("a(?=b)"), "(?= "},
             {regex("[]"), "brackets are empty"},
             {regex("a{3,2}"), "less than the first"},
             {regex("a**"), "repeats of repeats"},
             {regex("a^b"), "^ and $"},
             {regex("\xFF"), "not UTF-8 from byte 0"},
             {gbnf("root ::= root \"a\" | \"a\""), "'root' is left-recursive"},
             {gbnf("root ::= a\na ::= b? c\nb ::= \"b\"\nc ::= a \"c\" | \"d\""), "left-recursive"},
             {gbnf("root ::= \"a\" x"), "no rule 'x'"},
             {gbnf("x ::= \"a\""), "no rule root"},
             {gbnf("root ::= \"a\" root"), "no text is as it asks"},
             {gbnf("root ::= \"a\" \nroot ::= \"b\""), "twice"},
             {gbnf("root ::= \"a"), "ends too early"},
             {schema("{"), "no JSON"},
             {schema("3"), "must be an object, true or false"},
             {schema("false"), "no text is as it asks"},
             {schema(R"({"not": {}})"), "#: keyword 'not' is not supported"},
             {schema(R"({"items": {"properties": {"a": {"multipleOf": 2}}}})"),
              "#/items/properties/a: keyword 'multipleOf'"},
             {schema(R"({"type": "array", "uniqueItems": true})"), "uniqueItems"},
             {schema(R"({"type": "string", "format": "uri"})"), "format 'uri'"},
             {schema(R"({"type": "string", "minLength": 2, "pattern": "a"})"), "beside each other"},
             {schema(R"({"anyOf": [{}], "minimum": 3})"), "minimum beside anyOf"},
             {schema(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})"), "choices 0 and 1 may both be right"},
             {schema(R"({"$ref": "http://x"})"), "does not point into the schema"},
             {schema(R"({"$ref": "#"})"), "no text is as it asks"},
             {schema(R"({"required": ["a"]})"), "'a' is not among properties"},
             {schema(R"({"minItems": 3, "maxItems": 2})"), "fewer items"}})
        EXPECT_NE(refusal(source).find(words), std::string::npos) << source.text << ": " << refusal(source);
}

// Deep, huge, ambiguous: an error or an answer, within a second.
TEST(Grammar, HostileOnesEndSoon) {
    std::string chain = "root ::= r0\n";
    for (int i = 0; i < 5000; ++i)
        chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
    chain += "r5000 ::= \"a\"\n";
    std::string nested_schema, many = "{\"properties\": {";
    for (int i = 0; i < 20'000; ++i)
        nested_schema += "{\"items\":";
    for (int i = 0; i < 3000; ++i)
        many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\": {\"type\": \"string\"}";
    std::vector<std::string> names;
    for (TokenId byte = 0; byte < 256; ++byte)
        for (TokenId next = 0; next < 64; ++next)
            names.push_back({static_cast<char>(byte), static_cast<char>('A' + next)});
    const auto vocabulary = std::make_shared<Vocabulary>(names, std::vector<TokenId>{0});
    for (const Source& source :
         {regex(std::string(50'000, '(')), regex("((((a{1000}){1000}){1000}){1000})"),
          regex("(a|aa|aaa)*(b|[a-z]{50})*"), regex("(a?){3000}"), regex("(.*A){500}"), regex(".*A.{3000}"),
          regex("(((a*)*)*)*"), gbnf(chain), gbnf("root ::= \"A\" root \"A\" | \"A\" root \"B\" | [A-Z] root | \"\""),
          schema(nested_schema), schema(many + "}}"), regex(std::string(200'000, 'a')),
          regex("[\\x00-\\uffff]{0,99999}")}) {
        const double began = cpu_seconds();
        try {
            TokenMatcher matcher(std::make_shared<TokenGrammar>(compile(source), vocabulary));
            for (int i = 0; i < 3; ++i) {
                const TokenMask& mask = matcher.mask();
                TokenId token = static_cast<TokenId>('A') * 64; // "AA"
                if (!mask.allows(token)) break;
                matcher.push(token);
            }
        } catch (const BadGrammar&) {
        }
        EXPECT_LT(cpu_seconds() - began, kSlowdown) << source.text.substr(0, 60);
    }
}

// A text that is given up for a limit of ours is no fault of its grammar's, and the error says so.
TEST(Grammar, LimitsThatAreMetAreNamed) {
    const auto limit_of = [](const Source& source) {
        const auto vocabulary =
            std::make_shared<Vocabulary>(std::vector<std::string>{"", "a"}, std::vector<TokenId>{0});
        const auto grammar = std::make_shared<TokenGrammar>(compile(source), vocabulary);
        TokenMatcher matcher(grammar);
        for (int i = 0; i < 1200 && matcher.mask().allows(1); ++i)
            matcher.push(1);
        return grammar->limit_met();
    };
    std::string numbers;
    for (int i = 0; i < 3000; ++i)
        numbers += (i > 0 ? "," : "") + std::to_string(i);
    EXPECT_EQ(limit_of(schema("{\"enum\": [" + numbers + "]}")), "2000 ways to understand one text");
    EXPECT_EQ(limit_of(gbnf("root ::= \"a\" root \"b\" | \"\"")), "1000 rules in one another");
    EXPECT_EQ(limit_of(regex("a{5}")), "");
}

// ---- tokens ----

const std::vector<std::string> kTokens = {"",  "a",    "ab",   "b",  " a",
                                          " ", "\xC3", "\xA9", "ba", ""}; // 0 ends texts, 9 is special

std::vector<TokenId> legal(const TokenMask& mask) {
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < static_cast<TokenId>(kTokens.size()); ++token)
        if (mask.allows(token)) tokens.push_back(token);
    EXPECT_EQ(mask.count(), static_cast<int>(tokens.size()));
    return tokens;
}

TokenMatcher matcher_of(const std::string& expression, bool drops_first_space = false) {
    const auto vocabulary = std::make_shared<Vocabulary>(kTokens, std::vector<TokenId>{0}, drops_first_space);
    return TokenMatcher(std::make_shared<TokenGrammar>(compile(regex(expression)), vocabulary));
}

using Tokens = std::vector<TokenId>;

TEST(TokenGrammar, MasksFollowTokensThatArePushedAndPopped) {
    TokenMatcher text = matcher_of("ab(ab)?|\xC3\xA9");
    EXPECT_EQ(legal(text.mask()), (Tokens{1, 2, 6}));
    text.push(1);
    EXPECT_EQ(legal(text.mask()), (Tokens{3, 8})) << "b, and ba of abab";
    text.push(8);
    EXPECT_EQ(legal(text.mask()), (Tokens{3}));
    EXPECT_EQ(text.mask().only(), std::optional<TokenId>(3));
    text.push(3);
    EXPECT_EQ(legal(text.mask()), (Tokens{0})) << "the text is complete: its end alone";
    text.push(0);
    EXPECT_EQ(legal(text.mask()), (Tokens{0})) << "whose state stays, for rows behind it";
    for (int i = 0; i < 4; ++i)
        text.pop();
    text.push(2);
    EXPECT_EQ(legal(text.mask()), (Tokens{0, 1, 2})) << "it may end, or go on";
    text.pop();
    text.push(6);
    EXPECT_EQ(legal(text.mask()), (Tokens{7})) << "the rest of a character";
    text.pop();
    text.push(3);
    text.push(1);
    EXPECT_TRUE(legal(text.mask()).empty()) << "nothing goes on from what is illegal";
}

TEST(TokenGrammar, AFirstTokenMayLoseItsSpace) {
    TokenMatcher text = matcher_of("a a", true);
    EXPECT_EQ(legal(text.mask()), (Tokens{1, 4})) << "but no token of which nothing would be left";
    text.push(4);
    EXPECT_EQ(legal(text.mask()), (Tokens{4, 5}));
    EXPECT_EQ(legal(matcher_of("a a").mask()), (Tokens{1}));
}

// What masks allow is what the bytes' recognizer does, token by token.
TEST(TokenGrammar, MasksAreThoseOfEachTokenAlone) {
    const auto tokenizer =
        entrodraft::model::Tokenizer::open(std::filesystem::path(ENTRODRAFT_SOURCE_DIR) / "model/demo/target");
    const std::vector<TokenId> ends = {0};
    const auto vocabulary = std::make_shared<Vocabulary>(Vocabulary::of(tokenizer, tokenizer.size(), ends));
    std::mt19937 random(7);
    for (const Source& source :
         {schema(R"({"properties": {"a": {"type": "string"}, "bc": {"items": {"type": "number"}}}})"),
          regex("(the|door|was| ){3,9}[a-z .]*")}) {
        const auto automaton = compile(source);
        TokenMatcher text(std::make_shared<TokenGrammar>(automaton, vocabulary));
        Recognizer recognizer(*automaton);
        StateId state = recognizer.start();
        for (int step = 0; step < 30; ++step) {
            const TokenMask mask = text.mask();
            Tokens allowed;
            for (TokenId token = 0; token < tokenizer.size(); ++token) {
                StateId reached = state;
                for (const char byte : vocabulary->bytes(token))
                    reached = recognizer.next(reached, static_cast<std::uint8_t>(byte));
                const bool is_legal = token == 0 ? recognizer.accepts(state)
                                                 : !vocabulary->bytes(token).empty() && reached != Recognizer::kDead;
                ASSERT_EQ(mask.allows(token), is_legal) << vocabulary->bytes(token);
                if (is_legal && token != 0) allowed.push_back(token);
            }
            if (allowed.empty()) break;
            const TokenId token = allowed[random() % allowed.size()];
            text.push(token);
            for (const char byte : vocabulary->bytes(token))
                state = recognizer.next(state, static_cast<std::uint8_t>(byte));
        }
    }
}

} // namespace grammar_test
