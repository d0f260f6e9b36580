// The names that chat templates can call: filters, tests, methods of strings and dicts, functions. Each kind has a
// table. Parameters are bound as in Python. Called by the interpreter.
#pragma once

#include "model/text/chat/interpreter.h"

#include <span>

namespace entrodraft::model::jinja {

// A call, with its arguments in the order of the parameters.
struct BuiltinCall {
    Interpreter& in;
    const Value& self; // the value that the filter, test or method is applied to
    std::string_view name;
    const CallArguments& all; // the arguments as given
    std::vector<std::optional<Value>> arguments = {};

    bool has(std::size_t i) const { return arguments[i] && !arguments[i]->is(Type::none); }
    // Each throws if the argument is given and has another type.
    std::int64_t whole(std::size_t i, std::int64_t default_value) const;
    bool flag(std::size_t i) const { return arguments[i] && truth(*arguments[i]); }
    std::string string(std::size_t i) const;
    [[noreturn]] void refuse(std::string_view why) const;
    std::string self_text() const { return in.text_of(self); }
    std::string costly_text() const;    // of the self; charges the time that each character takes
    std::vector<Value> items() const;   // of the self
    std::vector<Value> entries() const; // tuples of key and value; throws where the self is not a dict
    Value text(std::string utf8) const { return Value(std::move(utf8), self.is_markup()); } // markup where self is
};

struct Builtin {
    std::string_view name;
    std::string_view parameters; // separated by blanks; "*": any, unbound
    std::size_t n_required;
    Value (*run)(const BuiltinCall& call);
};

std::span<const Builtin> builtin_filters();
std::span<const Builtin> builtin_tests();
std::span<const Builtin> string_methods();
std::span<const Builtin> builtin_functions();
const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);
// Returns null where the value does not have such a method, or the method may not be called.
const Builtin* find_method(const Value& self, std::string_view name);
Value run_builtin(Interpreter& in, const Builtin& builtin, const Value& self, const CallArguments& arguments);

} // namespace entrodraft::model::jinja
