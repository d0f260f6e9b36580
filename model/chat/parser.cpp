// Tokens to a tree, by the grammar of jinja2's own parser: see syntax.h.
#include "model/chat/syntax.h"
#include "model/checkpoint/bad_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <span>

namespace entrodraft::model::jinja {

namespace {

using Kind = Expression::Kind;
using Words = std::initializer_list<std::string_view>;

// Binary operators, those that bind least first; behind them come signs.
constexpr std::string_view kPrecedence[] = {"+ -", "~", "* / // %", "**"};

bool is_one_of(std::string_view words, std::string_view word) {
    const std::size_t at = words.find(word);
    return at != std::string_view::npos && (at == 0 || words[at - 1] == ' ') &&
           (at + word.size() == words.size() || words[at + word.size()] == ' ');
}

class Parser {
  public:
    explicit Parser(std::string_view source) : tokens_(tokenize_template(source)) {}

    Block run() { return parse_body({}); }

  private:
    // A level of nesting, as long as it lives.
    struct Level {
        explicit Level(Parser& its) : parser(its) {
            if (++parser.level_ > kMaxSyntaxDepth) parser.fail("the template nests too deep");
        }
        ~Level() { --parser.level_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        Parser& parser;
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

    // Statements up to one of these tags, whose word is then here; at top up to the end.
    Block parse_body(Words ends) {
        const Level level(*this);
        Block block;
        while (here().kind != TokenKind::end) {
            if (here().kind == TokenKind::begin_block && ahead().kind == TokenKind::name &&
                std::ranges::find(ends, ahead().text) != ends.end()) {
                ++at_;
                return block;
            }
            block.push_back(parse_statement());
        }
        if (ends.size() > 0) fail(fmt::format("the template ends without {{% {} %}}", *(ends.end() - 1)));
        return block;
    }
    Block parse_body_to(std::string_view end) {
        Block body = parse_body({end});
        ++at_;
        expect_end_of_tag();
        return body;
    }

    std::unique_ptr<Statement> parse_statement() {
        auto made = std::make_unique<Statement>();
        made->line = here().line;
        if (here().kind == TokenKind::text) {
            made->text = here().text;
            ++at_;
        } else if (here().kind == TokenKind::begin_output) {
            ++at_;
            made->kind = Statement::Kind::output;
            made->value = parse_tuple();
            if (here().kind != TokenKind::end_output) fail("expected }}, found " + shown());
            ++at_;
        } else {
            ++at_;
            parse_tag(*made, expect_name());
        }
        return made;
    }

    void parse_tag(Statement& made, const std::string& word) {
        using S = Statement::Kind;
        if (word == "if") return parse_if(made);
        if (word == "for") return parse_for(made);
        if (word == "set") return parse_set(made);
        if (word == "macro" || word == "call") return parse_macro(made, word == "macro");
        if (word == "with") return parse_with(made);
        if (word == "generation") {
            made.kind = S::scope;
            expect_end_of_tag();
            made.body = parse_body_to("endgeneration");
        } else if (word == "filter") {
            made.kind = S::filter;
            made.value = parse_filter(make(Kind::name, made.line, kBlockInput), true);
            expect_end_of_tag();
            made.body = parse_body_to("endfilter");
        } else if (word == "break" || word == "continue") {
            if (loops_ == 0) fail(word + " is outside of a loop");
            made.kind = word == "break" ? S::break_loop : S::continue_loop;
            expect_end_of_tag();
        } else {
            --at_;
            fail("the tag " + in_quotes(word) + " is not known here");
        }
    }

    void parse_if(Statement& made) {
        made.kind = Statement::Kind::condition;
        while (true) {
            ExpressionPtr condition = parse_tuple(false);
            expect_end_of_tag();
            made.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
            if (!skip_word("elif")) break;
        }
        const bool has_else = is_word("else");
        ++at_;
        expect_end_of_tag();
        if (has_else) made.branches.emplace_back(nullptr, parse_body_to("endif"));
    }

    void parse_for(Statement& made) {
        made.kind = Statement::Kind::loop;
        made.target = parse_target("in");
        if (!skip_word("in")) fail("expected 'in', found " + shown());
        made.value = parse_tuple(false, "recursive");
        if (skip_word("if")) made.test = parse_expression();
        if (is_word("recursive")) fail("recursive loops are not supported");
        expect_end_of_tag();
        ++loops_;
        made.body = parse_body({"else", "endfor"});
        --loops_;
        const bool has_else = is_word("else");
        ++at_;
        expect_end_of_tag();
        if (has_else) made.otherwise = parse_body_to("endfor");
    }

    void parse_set(Statement& made) {
        made.target = parse_target();
        if (skip_symbol("=")) {
            made.kind = Statement::Kind::set;
            made.value = parse_tuple();
            return expect_end_of_tag();
        }
        made.kind = Statement::Kind::set_block;
        if (is_symbol("|")) made.value = parse_filter(make(Kind::name, made.line, kBlockInput), false);
        expect_end_of_tag();
        made.body = parse_body_to("endset");
    }

    void parse_macro(Statement& made, bool is_macro) {
        made.kind = is_macro ? Statement::Kind::macro : Statement::Kind::call;
        made.text = is_macro ? expect_name() : "caller";
        if (is_macro || is_symbol("(")) parse_parameters(made);
        if (!is_macro) {
            made.value = parse_expression();
            if (made.value->kind != Kind::call) fail("expected a call");
        }
        expect_end_of_tag();
        const int loops = std::exchange(loops_, 0);
        macros_.push_back(&made);
        made.body = parse_body_to(is_macro ? "endmacro" : "endcall");
        macros_.pop_back();
        loops_ = loops;
    }

    void parse_parameters(Statement& made) {
        expect_symbol("(");
        while (!is_symbol(")")) {
            if (!made.parameters.empty()) expect_symbol(",");
            Parameter parameter{expect_name(), nullptr};
            if (skip_symbol("="))
                parameter.default_value = parse_expression();
            else if (!made.parameters.empty() && made.parameters.back().default_value)
                fail("a parameter without default behind one with a default");
            made.parameters.push_back(std::move(parameter));
        }
        ++at_;
    }

    void parse_with(Statement& made) {
        made.kind = Statement::Kind::with;
        while (here().kind != TokenKind::end_block) {
            if (!made.with.empty()) expect_symbol(",");
            ExpressionPtr target = parse_target();
            expect_symbol("=");
            made.with.emplace_back(std::move(target), parse_expression());
        }
        ++at_;
        made.body = parse_body_to("endwith");
    }

    // What is assigned to: a name, name.attribute of a namespace, or a tuple of them.
    ExpressionPtr parse_target(std::string_view end = {}) {
        const int line = here().line;
        ExpressionPtr first = parse_one_target();
        if (!is_symbol(",")) return first;
        ExpressionPtr tuple = add(make(Kind::tuple, line), std::move(first));
        while (skip_symbol(",") && !is_symbol("=") && !is_word(end))
            tuple = add(std::move(tuple), parse_one_target());
        return tuple;
    }
    ExpressionPtr parse_one_target() {
        const Level level(*this);
        const int line = here().line;
        if (skip_symbol("(")) {
            ExpressionPtr target = parse_target();
            expect_symbol(")");
            return target;
        }
        std::string name = expect_name();
        if (is_one_of("true false none True False None", name)) fail("a constant cannot be assigned to");
        if (!skip_symbol(".")) return make(Kind::name, line, std::move(name));
        ExpressionPtr target = make(Kind::namespace_attribute, line, std::move(name));
        target->text = expect_name();
        return target;
    }

    bool is_tuple_end(std::string_view end_word) const {
        return here().kind == TokenKind::end_output || here().kind == TokenKind::end_block || is_symbol(")") ||
               (!end_word.empty() && is_word(end_word));
    }
    ExpressionPtr parse_tuple(bool with_conditional = true, std::string_view end_word = {},
                              bool in_parentheses = false) {
        const int line = here().line;
        std::vector<ExpressionPtr> parts;
        bool is_tuple = false;
        while (!is_tuple_end(end_word)) {
            parts.push_back(parse_expression(with_conditional));
            if (!is_symbol(",")) break;
            ++at_;
            is_tuple = true;
        }
        if (!is_tuple && parts.size() == 1) return std::move(parts.front());
        if (parts.empty() && !in_parentheses) fail("expected an expression, found " + shown());
        ExpressionPtr tuple = make(Kind::tuple, line);
        for (ExpressionPtr& part : parts)
            tuple = add(std::move(tuple), std::move(part));
        return tuple;
    }

    ExpressionPtr parse_expression(bool with_conditional = true) {
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
    ExpressionPtr parse_or() {
        ExpressionPtr left = parse_and();
        for (int line = here().line; skip_word("or"); line = here().line)
            left = add(add(make(Kind::logical_or, line), std::move(left)), parse_and());
        return left;
    }
    ExpressionPtr parse_and() {
        ExpressionPtr left = parse_not();
        for (int line = here().line; skip_word("and"); line = here().line)
            left = add(add(make(Kind::logical_and, line), std::move(left)), parse_not());
        return left;
    }
    ExpressionPtr parse_not() {
        const Level level(*this);
        const int line = here().line;
        return skip_word("not") ? add(make(Kind::logical_not, line), parse_not()) : parse_compare();
    }
    ExpressionPtr parse_compare() {
        const int line = here().line;
        ExpressionPtr first = parse_binary(kPrecedence);
        ExpressionPtr made;
        while (true) {
            std::string symbol;
            if (here().kind == TokenKind::symbol && is_one_of("== != < <= > >=", here().text))
                symbol = here().text;
            else if (is_word("in"))
                symbol = "in";
            else if (is_word("not") && ahead().kind == TokenKind::name && ahead().text == "in")
                symbol = "not in";
            if (symbol.empty()) return made ? std::move(made) : std::move(first);
            at_ += symbol == "not in" ? 2 : 1;
            if (!made) made = add(make(Kind::compare, line), std::move(first));
            made->operators.push_back(symbol);
            made = add(std::move(made), parse_binary(kPrecedence));
        }
    }
    ExpressionPtr parse_binary(std::span<const std::string_view> levels) {
        if (levels.empty()) return parse_unary();
        ExpressionPtr left = parse_binary(levels.subspan(1));
        while (here().kind == TokenKind::symbol && is_one_of(levels.front(), here().text)) {
            ExpressionPtr made = make(Kind::binary, here().line, here().text);
            ++at_;
            left = add(add(std::move(made), std::move(left)), parse_binary(levels.subspan(1)));
        }
        return left;
    }
    ExpressionPtr parse_unary(bool with_filter = true) {
        const Level level(*this);
        const int line = here().line;
        ExpressionPtr value;
        if (skip_symbol("-"))
            value = add(make(Kind::negative, line), parse_unary(false));
        else if (skip_symbol("+"))
            value = add(make(Kind::positive, line), parse_unary(false));
        else
            value = parse_primary();
        value = parse_postfix(std::move(value));
        while (with_filter) {
            if (is_symbol("|"))
                value = parse_filter(std::move(value), false);
            else if (is_word("is"))
                value = parse_test(std::move(value));
            else if (is_symbol("("))
                value = parse_call(std::move(value));
            else
                break;
        }
        return value;
    }

    ExpressionPtr parse_primary() {
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
            ExpressionPtr made = parse_tuple(true, {}, true);
            expect_symbol(")");
            return made;
        }
        if (is_symbol("[") || is_symbol("{")) return parse_list_or_dict();
        fail("unexpected " + shown());
    }
    ExpressionPtr parse_name() {
        const std::string& name = here().text;
        ExpressionPtr made = make(Kind::name, here().line, name);
        const bool is_none = is_one_of("none None", name);
        if (is_none || is_one_of("true True false False", name)) {
            made->kind = Kind::constant;
            made->value = is_none ? Value(None{}) : Value(is_one_of("true True", name));
        }
        for (Statement* macro : macros_) {
            macro->takes_more_positional |= name == "varargs";
            macro->takes_more_named |= name == "kwargs";
            macro->takes_caller |= name == "caller";
        }
        ++at_;
        return made;
    }
    ExpressionPtr parse_list_or_dict() {
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

    ExpressionPtr parse_postfix(ExpressionPtr value) {
        while (true) {
            const int line = here().line;
            if (is_symbol("(")) {
                value = parse_call(std::move(value));
            } else if (skip_symbol(".")) {
                if (here().kind == TokenKind::name) {
                    value = add(make(Kind::attribute, line, expect_name()), std::move(value));
                } else if (here().kind == TokenKind::constant && here().value.is(Type::integer)) {
                    value = add(add(make(Kind::item, line), std::move(value)), parse_primary());
                } else {
                    fail("expected a name or a number behind the dot, found " + shown());
                }
            } else if (skip_symbol("[")) {
                value = add(add(make(Kind::item, line), std::move(value)), parse_subscript());
                expect_symbol("]");
            } else {
                return value;
            }
        }
    }
    ExpressionPtr parse_subscript() {
        const int line = here().line;
        ExpressionPtr first = is_symbol(":") ? nullptr : parse_expression();
        if (!is_symbol(":") && !is_symbol(",")) return first;
        const bool is_slice = is_symbol(":");
        ExpressionPtr made = add(make(is_slice ? Kind::slice : Kind::tuple, line), std::move(first));
        for (int i = 0; is_slice ? i < 2 : is_symbol(","); ++i) {
            const bool has_part = skip_symbol(is_slice ? ":" : ",") && !is_symbol("]") && !is_symbol(":");
            made = add(std::move(made), has_part ? parse_expression() : nullptr);
        }
        return made;
    }

    void parse_arguments(Expression& call) {
        const Level level(*this);
        Arguments& arguments = call.arguments;
        const auto take = [&](ExpressionPtr& into) {
            if (into) fail("an argument list has two of * or **");
            ++at_;
            into = parse_expression();
            deepen(call, into);
        };
        expect_symbol("(");
        for (bool is_first = true; !is_symbol(")"); is_first = false) {
            if (!is_first) expect_symbol(",");
            if (is_symbol(")")) break;
            if (is_symbol("*")) {
                take(arguments.more_positional);
            } else if (is_symbol("**")) {
                take(arguments.more_named);
            } else if (here().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
                std::string name = expect_name();
                ++at_;
                arguments.named.emplace_back(std::move(name), parse_expression());
                deepen(call, arguments.named.back().second);
            } else {
                if (arguments.more_positional || arguments.more_named || !arguments.named.empty())
                    fail("an argument without a name behind one with a name");
                arguments.positional.push_back(parse_expression());
                deepen(call, arguments.positional.back());
            }
        }
        ++at_;
    }
    ExpressionPtr parse_call(ExpressionPtr callee) {
        ExpressionPtr made = add(make(Kind::call, here().line), std::move(callee));
        parse_arguments(*made);
        return made;
    }
    std::string parse_dotted_name() {
        std::string name = expect_name();
        while (skip_symbol("."))
            name += "." + expect_name();
        return name;
    }
    // One filter or several, behind | each; `without_bar`: not the first, in {% filter %}.
    ExpressionPtr parse_filter(ExpressionPtr value, bool without_bar) {
        while (without_bar || skip_symbol("|")) {
            const int line = here().line;
            value = add(make(Kind::filter, line, parse_dotted_name()), std::move(value));
            if (is_symbol("(")) parse_arguments(*value);
            without_bar = false;
        }
        return value;
    }
    ExpressionPtr parse_test(ExpressionPtr value) {
        const int line = here().line;
        ++at_;
        const bool is_negated = skip_word("not");
        ExpressionPtr made = add(make(Kind::test, line, parse_dotted_name()), std::move(value));
        if (is_symbol("(")) {
            parse_arguments(*made);
        } else if (here().kind == TokenKind::constant || is_symbol("[") || is_symbol("{") ||
                   (here().kind == TokenKind::name && !is_one_of("else or and", here().text))) {
            if (is_word("is")) fail("tests cannot be chained with is");
            made->arguments.positional.push_back(parse_postfix(parse_primary()));
            deepen(*made, made->arguments.positional.back());
        }
        return is_negated ? add(make(Kind::logical_not, line), std::move(made)) : std::move(made);
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int level_ = 0;
    int loops_ = 0;                  // around what is parsed, in the same macro
    std::vector<Statement*> macros_; // around what is parsed
};

} // namespace

Block parse_template(std::string_view source) {
    return Parser(source).run();
}

} // namespace entrodraft::model::jinja
