// The parser's lower half: tokens, and the expressions that consist of them. parser.cpp has the statements. See
// syntax.h.
#pragma once

#include "model/files/bad_file.h"
#include "model/text/chat/syntax.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>

namespace entrodraft::model::jinja {

// Returns whether the word is in `words`, a list separated by blanks.
bool is_word_of(std::string_view words, std::string_view word);

class ExpressionParser {
  protected:
    using Kind = Expression::Kind;
    explicit ExpressionParser(std::string_view source) : tokens_(tokenize_template(source)) {}
    // Adds a level of nesting as long as it lives.
    struct Level {
        explicit Level(ExpressionParser& its) : parser(its) {
            if (++parser.level_ > kMaxSyntaxDepth) parser.fail("the template nests too deep");
        }
        ~Level() { --parser.level_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ExpressionParser& parser;
    };

    const Token& here() const { return tokens_[at_]; }
    const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    [[noreturn]] void fail(const std::string& why) const {
        throw TemplateError(fmt::format("line {}: {}", here().line, why));
    }
    std::string shown() const {
        switch (here().kind) {
        case TokenKind::name:
        case TokenKind::symbol:
            return in_quotes(here().text);
        case TokenKind::constant:
            return "a constant";
        case TokenKind::end:
            return "the end of the template";
        default:
            return "the end of the tag";
        }
    }
    bool is_symbol(std::string_view symbol) const { return here().kind == TokenKind::symbol && here().text == symbol; }
    bool is_word(std::string_view word) const { return here().kind == TokenKind::name && here().text == word; }
    bool skip_symbol(std::string_view symbol) { return is_symbol(symbol) && ++at_; }
    bool skip_word(std::string_view word) { return is_word(word) && ++at_; }
    void expect_symbol(std::string_view symbol) {
        if (!skip_symbol(symbol)) fail(fmt::format("expected '{}', found {}", symbol, shown()));
    }
    std::string expect_name() {
        if (here().kind != TokenKind::name) fail("expected a name, found " + shown());
        return tokens_[at_++].text;
    }
    void expect_end_of_tag() {
        if (here().kind != TokenKind::end_block) fail("expected the end of the tag, found " + shown());
        ++at_;
    }

    ExpressionPtr make(Kind kind, int line, std::string name = {}) const {
        auto made = std::make_unique<Expression>();
        made->kind = kind;
        made->line = line;
        made->name = std::move(name);
        return made;
    }
    void deepen(Expression& parent, const ExpressionPtr& child) const {
        if (child) parent.depth = std::max(parent.depth, child->depth + 1);
        if (parent.depth > kMaxSyntaxDepth) fail("the template nests too deep");
    }
    ExpressionPtr add(ExpressionPtr parent, ExpressionPtr child) const {
        deepen(*parent, child);
        parent->parts.push_back(std::move(child));
        return parent;
    }

    ExpressionPtr parse_expression(bool with_conditional = true);
    ExpressionPtr parse_or();
    ExpressionPtr parse_and();
    ExpressionPtr parse_not();
    ExpressionPtr parse_compare();
    ExpressionPtr parse_binary(std::span<const std::string_view> levels);
    ExpressionPtr parse_unary(bool with_filter = true);
    ExpressionPtr parse_primary();
    ExpressionPtr parse_name();
    ExpressionPtr parse_list_or_dict();
    ExpressionPtr parse_postfix(ExpressionPtr value);
    ExpressionPtr parse_subscript();
    void parse_arguments(Expression& call);
    ExpressionPtr parse_call(ExpressionPtr callee);
    // Parses one or more filters, each after a |. `without_bar`: the first one has no |, in {% filter %}.
    ExpressionPtr parse_filter(ExpressionPtr value, bool without_bar);
    ExpressionPtr parse_test(ExpressionPtr value);

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int level_ = 0;
    int loops_ = 0; // number of loops around the current position, in the same macro
};

} // namespace entrodraft::model::jinja
