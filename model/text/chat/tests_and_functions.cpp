// The tests after `is`, and the functions of chat templates: see builtins.h.
#include "model/text/chat/builtins.h"

#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

template <Type type> Value has_type(const BuiltinCall& call) {
    return Value(call.self.is(type));
}

template <bool result> Value is_equal(const BuiltinCall& call) {
    return Value(equal(call.self, *call.arguments[0], call.in.budget()) == result);
}

bool is_even(const BuiltinCall& call) {
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (!call.self.is_whole()) call.refuse(fmt::format("takes a whole number, not a {}", type_name(call.self)));
    return call.self.whole() % 2 == 0;
}

Value is_sequence(const BuiltinCall& call) {
    const Value& self = call.self;
    return Value(self.is(Type::undefined) || self.is(Type::string) || self.is(Type::dict) ||
                 (self.is(Type::list) && self.list().kind <= ListKind::range));
}

Value is_iterable(const BuiltinCall& call) {
    const Value& self = call.self;
    return Value(self.is(Type::undefined) || self.is(Type::string) || self.is(Type::dict) || self.is(Type::list));
}

template <bool truth_value> Value is_truth(const BuiltinCall& call) {
    return Value(call.self.is(Type::boolean) && call.self.boolean() == truth_value);
}

constexpr Builtin kTests[] = {
    {"!=", "other", 1, is_equal<false>},
    {"==", "other", 1, is_equal<true>},
    {"boolean", "", 0, has_type<Type::boolean>},
    {"defined", "", 0, [](const BuiltinCall& call) { return Value(!call.self.is(Type::undefined)); }},
    {"eq", "other", 1, is_equal<true>},
    {"equalto", "other", 1, is_equal<true>},
    {"even", "", 0, [](const BuiltinCall& call) { return Value(is_even(call)); }},
    {"false", "", 0, is_truth<false>},
    {"float", "", 0, has_type<Type::floating>},
    {"in", "seq", 1, [](const BuiltinCall& call) { return Value(call.in.contains(*call.arguments[0], call.self)); }},
    {"integer", "", 0,
     [](const BuiltinCall& call) { return Value(call.self.is(Type::integer) || call.self.is(Type::large_integer)); }},
    {"iterable", "", 0, is_iterable},
    {"mapping", "", 0, has_type<Type::dict>},
    {"ne", "other", 1, is_equal<false>},
    {"none", "", 0, has_type<Type::none>},
    {"number", "", 0,
     [](const BuiltinCall& call) { return Value(call.self.is_number() || call.self.is(Type::large_integer)); }},
    {"odd", "", 0, [](const BuiltinCall& call) { return Value(!is_even(call)); }},
    {"sequence", "", 0, is_sequence},
    {"string", "", 0, has_type<Type::string>},
    {"true", "", 0, is_truth<true>},
    {"undefined", "", 0, has_type<Type::undefined>},
};

Value range_function(const BuiltinCall& call) {
    constexpr std::int64_t kMaxRange = 100'000; // as in jinja2's sandbox
    const auto& given = call.all.positional;
    if (given.empty() || given.size() > 3 || !call.all.named.empty()) call.refuse("takes one to three whole numbers");
    for (const Value& one : given)
        if (!one.is_whole()) call.refuse(fmt::format("takes whole numbers, not a {}", type_name(one)));
    const std::int64_t begin = given.size() > 1 ? given[0].whole() : 0, end = given[given.size() > 1 ? 1 : 0].whole();
    const std::int64_t step = given.size() > 2 ? given[2].whole() : 1;
    if (step == 0) call.refuse("the step is zero");
    std::vector<Value> numbers;
    for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
        if (std::ssize(numbers) == kMaxRange) call.refuse(fmt::format("more than {} numbers", kMaxRange));
        numbers.emplace_back(at);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    return Value(std::move(numbers), ListKind::range);
}

Value namespace_function(const BuiltinCall& call) {
    if (!call.all.positional.empty()) call.refuse("takes attributes by name only");
    Namespace made;
    for (const auto& [name, value] : call.all.named) {
        if (name.starts_with('_')) call.refuse("attributes such as '" + name + "' cannot be set; rename it");
        call.in.budget().step(made.attributes.names.size() / 16);
        made.attributes.set(name, value);
    }
    return call.in.make_object(std::move(made));
}

Value strftime_function(const BuiltinCall& call) {
    constexpr std::size_t kMaxBytes = 4096;
    const std::string format = call.string(0) + "."; // so that no text is empty
    std::string text(kMaxBytes, '\0');
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &call.in.now()));
    if (text.empty()) call.refuse("the format is too long");
    text.pop_back();
    return Value(std::move(text));
}

constexpr Builtin kFunctions[] = {
    {"namespace", "*", 0, namespace_function},
    {"raise_exception", "message", 1,
     [](const BuiltinCall& call) -> Value { throw RaisedByTemplate(call.in.text_of(*call.arguments[0])); }},
    {"range", "*", 0, range_function},
    {"strftime_now", "format", 1, strftime_function},
};

} // namespace

std::span<const Builtin> builtin_tests() {
    return kTests;
}

std::span<const Builtin> builtin_functions() {
    return kFunctions;
}

} // namespace entrodraft::model::jinja
