// Statements of chat templates, by the grammar of jinja2's own parser: see syntax.h.
#include "model/text/chat/expression_parser.h"

#include <initializer_list>

namespace entrodraft::model::jinja {

namespace {

using Words = std::initializer_list<std::string_view>;

class Parser : ExpressionParser {
  public:
    explicit Parser(std::string_view source) : ExpressionParser(source) {}

    Block run() { return parse_body({}); }

  private:
    // Parses statements up to one of these tags, whose word is then the next token; at top level, up to the end.
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
            made->value = parse_expression();
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
        if (word == "macro") return parse_macro(made);
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
            ExpressionPtr condition = parse_expression(false);
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
        made.target = parse_target();
        if (!skip_word("in")) fail("expected 'in', found " + shown());
        made.value = parse_expression(false);
        if (skip_word("if")) made.test = parse_expression();
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
            made.value = parse_expression();
            return expect_end_of_tag();
        }
        made.kind = Statement::Kind::set_block;
        expect_end_of_tag();
        made.body = parse_body_to("endset");
    }

    void parse_macro(Statement& made) {
        made.kind = Statement::Kind::macro;
        made.text = expect_name();
        parse_parameters(made);
        expect_end_of_tag();
        const int loops = std::exchange(loops_, 0);
        made.body = parse_body_to("endmacro");
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

    // Parses the target of an assignment: a name, name.attribute of a namespace, or several of them.
    ExpressionPtr parse_target() {
        const int line = here().line;
        ExpressionPtr first = parse_one_target();
        if (!is_symbol(",")) return first;
        ExpressionPtr tuple = add(make(Kind::tuple, line), std::move(first));
        while (skip_symbol(","))
            tuple = add(std::move(tuple), parse_one_target());
        return tuple;
    }
    ExpressionPtr parse_one_target() {
        const int line = here().line;
        std::string name = expect_name();
        if (is_word_of("true false none True False None", name)) fail("a constant cannot be assigned to");
        if (!skip_symbol(".")) return make(Kind::name, line, std::move(name));
        ExpressionPtr target = make(Kind::namespace_attribute, line, std::move(name));
        target->text = expect_name();
        return target;
    }
};

} // namespace

Block parse_template(std::string_view source) {
    return Parser(source).run();
}

} // namespace entrodraft::model::jinja
