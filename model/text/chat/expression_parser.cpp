// Expressions of chat templates, by the grammar of jinja2's own parser: see syntax.h.
#include "model/text/chat/expression_parser.h"

namespace entrodraft::model::jinja {

namespace {

// Binary operators, the ones that bind least first. Signs bind more than all of them.
constexpr std::string_view kPrecedence[] = {"+ -", "~", "* / // %"};

} // namespace

bool is_word_of(std::string_view words, std::string_view word) {
    const std::size_t at = words.find(word);
    return at != std::string_view::npos && (at == 0 || words[at - 1] == ' ') &&
           (at + word.size() == words.size() || words[at + word.size()] == ' ');
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
    const Level level(*this);
    const int line = here().line;
    ExpressionPtr value = parse_or();
    while (with_conditional && skip_word("if")) {
        ExpressionPtr condition = parse_or();
        ExpressionPtr made = add(add(make(Kind::conditional, line), std::move(condition)), std::move(value));
        value = add(std::move(made), skip_word("else") ? parse_expression() : nullptr);
    }
    return value;
}

ExpressionPtr ExpressionParser::parse_or() {
    ExpressionPtr left = parse_and();
    for (int line = here().line; skip_word("or"); line = here().line)
        left = add(add(make(Kind::logical_or, line), std::move(left)), parse_and());
    return left;
}

ExpressionPtr ExpressionParser::parse_and() {
    ExpressionPtr left = parse_not();
    for (int line = here().line; skip_word("and"); line = here().line)
        left = add(add(make(Kind::logical_and, line), std::move(left)), parse_not());
    return left;
}

ExpressionPtr ExpressionParser::parse_not() {
    const Level level(*this);
    const int line = here().line;
    return skip_word("not") ? add(make(Kind::logical_not, line), parse_not()) : parse_compare();
}

ExpressionPtr ExpressionParser::parse_compare() {
    const int line = here().line;
    ExpressionPtr left = parse_binary(kPrecedence);
    std::string symbol;
    if (here().kind == TokenKind::symbol && is_word_of("== != < <= > >=", here().text))
        symbol = here().text;
    else if (is_word("in"))
        symbol = "in";
    else if (is_word("not") && ahead().kind == TokenKind::name && ahead().text == "in")
        symbol = "not in";
    if (symbol.empty()) return left;
    at_ += symbol == "not in" ? 2 : 1;
    ExpressionPtr made = add(make(Kind::compare, line, std::move(symbol)), std::move(left));
    return add(std::move(made), parse_binary(kPrecedence));
}

ExpressionPtr ExpressionParser::parse_binary(std::span<const std::string_view> levels) {
    if (levels.empty()) return parse_unary();
    ExpressionPtr left = parse_binary(levels.subspan(1));
    while (here().kind == TokenKind::symbol && is_word_of(levels.front(), here().text)) {
        ExpressionPtr made = make(Kind::binary, here().line, here().text);
        ++at_;
        left = add(add(std::move(made), std::move(left)), parse_binary(levels.subspan(1)));
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
    const Level level(*this);
    const int line = here().line;
    ExpressionPtr value;
    if (skip_symbol("-"))
        value = add(make(Kind::negative, line), parse_unary(false));
    else
        value = parse_primary();
    value = parse_postfix(std::move(value));
    while (with_filter) {
        if (is_symbol("|"))
            value = parse_filter(std::move(value), false);
        else if (is_word("is"))
            value = parse_test(std::move(value));
        else
            break;
    }
    return value;
}

ExpressionPtr ExpressionParser::parse_primary() {
    const Token& token = here();
    if (token.kind == TokenKind::name) return parse_name();
    if (token.kind == TokenKind::constant) {
        ExpressionPtr made = make(Kind::constant, token.line);
        made->value = token.value;
        ++at_;
        if (!made->value.is(Type::string)) return made;
        std::string text = made->value.text();
        for (; here().kind == TokenKind::constant && here().value.is(Type::string); ++at_)
            text += here().value.text();
        made->value = Value(std::move(text));
        return made;
    }
    if (skip_symbol("(")) {
        ExpressionPtr tuple = make(Kind::tuple, token.line);
        bool is_tuple = is_symbol(")");
        while (!is_symbol(")")) {
            tuple = add(std::move(tuple), parse_expression());
            if (!skip_symbol(",")) break;
            is_tuple = true;
        }
        expect_symbol(")");
        return is_tuple ? std::move(tuple) : std::move(tuple->parts.front());
    }
    if (is_symbol("[") || is_symbol("{")) return parse_list_or_dict();
    fail("expected an expression, found " + shown());
}

ExpressionPtr ExpressionParser::parse_name() {
    const std::string& name = here().text;
    ExpressionPtr made = make(Kind::name, here().line, name);
    const bool is_none = is_word_of("none None", name);
    if (is_none || is_word_of("true True false False", name)) {
        made->kind = Kind::constant;
        made->value = is_none ? Value(None{}) : Value(is_word_of("true True", name));
    }
    ++at_;
    return made;
}

ExpressionPtr ExpressionParser::parse_list_or_dict() {
    const bool is_dict = is_symbol("{");
    const std::string_view close = is_dict ? "}" : "]";
    ExpressionPtr made = make(is_dict ? Kind::dict : Kind::list, here().line);
    ++at_;
    while (!is_symbol(close)) {
        if (!made->parts.empty()) expect_symbol(",");
        if (is_symbol(close)) break;
        made = add(std::move(made), parse_expression());
        if (!is_dict) continue;
        expect_symbol(":");
        made = add(std::move(made), parse_expression());
    }
    ++at_;
    return made;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
    while (true) {
        const int line = here().line;
        if (is_symbol("(")) {
            value = parse_call(std::move(value));
        } else if (skip_symbol(".")) {
            value = add(make(Kind::attribute, line, expect_name()), std::move(value));
        } else if (skip_symbol("[")) {
            value = add(add(make(Kind::item, line), std::move(value)), parse_subscript());
            expect_symbol("]");
        } else {
            return value;
        }
    }
}

ExpressionPtr ExpressionParser::parse_subscript() {
    const int line = here().line;
    ExpressionPtr first = is_symbol(":") ? nullptr : parse_expression();
    if (!is_symbol(":")) return first;
    ExpressionPtr made = add(make(Kind::slice, line), std::move(first));
    for (int i = 0; i < 2; ++i) {
        const bool has_part = skip_symbol(":") && !is_symbol("]") && !is_symbol(":");
        made = add(std::move(made), has_part ? parse_expression() : nullptr);
    }
    return made;
}

void ExpressionParser::parse_arguments(Expression& call) {
    const Level level(*this);
    Arguments& arguments = call.arguments;
    expect_symbol("(");
    for (bool is_first = true; !is_symbol(")"); is_first = false) {
        if (!is_first) expect_symbol(",");
        if (is_symbol(")")) break;
        if (here().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
            std::string name = expect_name();
            ++at_;
            arguments.named.emplace_back(std::move(name), parse_expression());
            deepen(call, arguments.named.back().second);
        } else {
            if (!arguments.named.empty()) fail("an argument without a name behind one with a name");
            arguments.positional.push_back(parse_expression());
            deepen(call, arguments.positional.back());
        }
    }
    ++at_;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
    ExpressionPtr made = add(make(Kind::call, here().line), std::move(callee));
    parse_arguments(*made);
    return made;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr value, bool without_bar) {
    while (without_bar || skip_symbol("|")) {
        const int line = here().line;
        value = add(make(Kind::filter, line, expect_name()), std::move(value));
        if (is_symbol("(")) parse_arguments(*value);
        without_bar = false;
    }
    return value;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
    const int line = here().line;
    ++at_;
    const bool is_negated = skip_word("not");
    ExpressionPtr made = add(make(Kind::test, line, expect_name()), std::move(value));
    if (is_symbol("(")) {
        parse_arguments(*made);
    } else if (here().kind == TokenKind::constant || is_symbol("[") || is_symbol("{") ||
               (here().kind == TokenKind::name && !is_word_of("else or and", here().text))) {
        if (is_word("is")) fail("tests cannot be chained with is");
        made->arguments.positional.push_back(parse_postfix(parse_primary()));
        deepen(*made, made->arguments.positional.back());
    }
    return is_negated ? add(make(Kind::logical_not, line), std::move(made)) : std::move(made);
}

} // namespace entrodraft::model::jinja
