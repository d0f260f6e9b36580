// One rendering of a chat template: walks the syntax tree (syntax.h), computes values (value.h), and calls what
// builtins.h defines. Called by Template::render (jinja.h), and by filters and methods to evaluate their arguments.
#pragma once

#include "model/text/chat/jinja.h"
#include "model/text/chat/syntax.h"

#include <deque>
#include <functional>
#include <optional>

namespace entrodraft::model::jinja {

struct Builtin;
struct Scope {
    std::shared_ptr<Scope> parent;
    Variables names;

    Value* find(std::string_view name); // in this scope only; its time grows with the names
    void set(std::string_view name, Value value);
};

struct CallArguments {
    std::vector<Value> positional;
    Variables named;
};

struct Namespace {
    Scope attributes;
};
struct Macro {
    const Statement* definition;
    std::shared_ptr<Scope> scope; // where it was defined
};
// The items that have passed the loop's filter so far are in `ready`.
struct Loop {
    Value source; // a list
    std::function<bool(const Value&)> accepts;
    std::size_t next = 0; // next item of the source
    std::vector<Value> ready;
    std::size_t index0 = 0;

    bool has(std::size_t index, Budget& budget); // takes as many steps as it needs
};
struct Method { // or a function, whose self is undefined
    Value self;
    const Builtin* builtin;
};
// A thing with an identity. Its interpreter owns it and must outlive the values that point to it.
struct Object {
    std::variant<Namespace, Macro, Loop, Method> is;
};

class Interpreter {
  public:
    Interpreter(const Variables& variables, const std::tm& now);
    ~Interpreter();
    Interpreter(const Interpreter&) = delete;
    Interpreter& operator=(const Interpreter&) = delete;

    std::string run(const Block& block);
    int line() const { return line_; } // of the running statement, or of the failed one

    Budget& budget() { return budget_; }
    const std::tm& now() const { return now_; }
    Value make_object(decltype(Object::is) is);
    std::string text_of(const Value& value) { return to_text(value, budget_); }
    // Returns a value as a list to iterate over: a dict's keys, a string's characters, or the list itself.
    Value as_list(const Value& value);
    Value attribute(const Value& value, std::string_view name);
    Value item(const Value& value, const Value& key);
    Value call(const Value& callee, const CallArguments& arguments);
    Value binary(std::string_view op, const Value& a, const Value& b);
    bool contains(const Value& container, const Value& value);
    // Both throw where the name is unknown.
    Value filter(std::string_view name, const Value& value, const CallArguments& arguments);
    bool test(std::string_view name, const Value& value, const CallArguments& arguments);

  private:
    enum class Flow { next, break_loop, continue_loop };
    // Adds a level of depth as long as it lives.
    struct Nested {
        explicit Nested(Interpreter& its);
        ~Nested() { --in.depth_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;
        Interpreter& in;
    };

    // interpreter.cpp
    Flow execute(const Block& block);
    Flow execute(const Statement& statement);
    Flow execute_in_scope(const Block& block);
    Flow execute_loop(const Statement& statement);
    std::string captured(const Block& block, std::shared_ptr<Scope> scope);
    void set_block(const Statement& statement);
    void assign(const Expression& target, Value value, Scope& scope);
    Value call_macro(const Macro& macro, const CallArguments& arguments);
    void write(const Value& value);

    // expressions.cpp
    Value evaluate(const Expression& expression);
    Value evaluate_list(const Expression& expression);
    Value evaluate_call(const Expression& expression);
    Value evaluate_compare(const Expression& expression);
    Value evaluate_slice(const Value& value, const Expression& slice);
    Value evaluate_named(const Expression& expression); // filters and tests
    Value lookup(const std::string& name);
    void charge_key(const Value& key); // charges for finding it in a dict
    CallArguments evaluate_arguments(const Arguments& arguments);
    Value charged(Value value); // charges its size

    Budget budget_;
    std::tm now_;
    std::deque<Object> objects_;
    std::shared_ptr<Scope> scope_;
    std::string out_;
    Value block_input_; // input of a filter on a block
    int line_ = 1;
    int depth_ = 0;
};

} // namespace entrodraft::model::jinja
