// A chat template's text as a tree: the lexer and parser of jinja2's language make it. The settings are transformers':
// trim_blocks, lstrip_blocks, and the tags break, continue and generation. Trees are at most kMaxSyntaxDepth deep. This
// file renders nothing; interpreter.h calls it.
#pragma once

#include "model/text/chat/value.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::model::jinja {

constexpr int kMaxSyntaxDepth = 250;

enum class TokenKind { text, begin_output, end_output, begin_block, end_block, name, constant, symbol, end };
struct Token {
    TokenKind kind = TokenKind::end;
    std::string text; // of text, name, symbol
    int line = 1;
    Value value = {}; // of a constant
};
// Throws TemplateError with the line.
std::vector<Token> tokenize_template(std::string_view source);

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Arguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Expression {
    enum class Kind {
        constant,
        name,
        list,
        tuple,
        dict /* key, value, key, .. */,
        attribute,
        item,
        slice,
        call,
        filter,
        test,
        logical_not,
        negative,
        binary,
        compare,
        logical_and,
        logical_or,
        conditional,
        namespace_attribute // as a target: name.text
    };
    Kind kind = Kind::constant;
    int line = 1;
    int depth = 1;
    std::string name = {};                 // or the operator
    std::string text = {};                 // of namespace_attribute
    Value value = {};                      // of a constant
    std::vector<ExpressionPtr> parts = {}; // null where a slice or a conditional leaves one out
    Arguments arguments = {};
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;
struct Parameter {
    std::string name;
    ExpressionPtr default_value; // null: none
};
struct Statement {
    enum class Kind { text, output, condition, loop, set, set_block, macro, filter, scope, break_loop, continue_loop };
    Kind kind = Kind::text;
    int line = 1;
    std::string text = {};                                      // or the macro's name
    ExpressionPtr target = {};                                  // of loop, set, set_block
    ExpressionPtr value = {};                                   // the value to write, iterate or assign
    ExpressionPtr test = {};                                    // of a loop
    std::vector<std::pair<ExpressionPtr, Block>> branches = {}; // if, elif, ..; without condition: else
    std::vector<Parameter> parameters = {};                     // of macro
    Block body = {};
    Block otherwise = {}; // of a loop without iterations
};

// The input in filters of blocks: an expression of this name.
constexpr const char* kBlockInput = " block";

// Throws TemplateError with the line.
Block parse_template(std::string_view source);

} // namespace entrodraft::model::jinja
