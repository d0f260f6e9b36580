// The tests behind `is`, and the functions, of chat templates: see builtins.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

template <Type type> Value has_type(const BuiltinCall& call) {
    return Value(call.self.is(type));
}

template <bool result, typename Compare> Value compared(const BuiltinCall& call, Compare holds) {
    return Value(holds(compare(call.self, *call.arguments[0], call.in.budget())) == result);
}
Value is_equal(const BuiltinCall& call) {
    return Value(equal(call.self, *call.arguments[0], call.in.budget()));
}
Value is_different(const BuiltinCall& call) {
    return Value(!equal(call.self, *call.arguments[0], call.in.budget()));
}
Value is_less(const BuiltinCall& call) {
    return compared<true>(call, [](int order) { return order < 0; });
}
Value is_at_least(const BuiltinCall& call) {
    return compared<false>(call, [](int order) { return order < 0; });
}
Value is_greater(const BuiltinCall& call) {
    return compared<true>(call, [](int order) { return order > 0; });
}
Value is_at_most(const BuiltinCall& call) {
    return compared<false>(call, [](int order) { return order > 0; });
}

// Whether the remainder of a number by the divisor is this.
Value leaves(const BuiltinCall& call, std::int64_t divisor, double rest) {
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (!call.self.is_number()) call.refuse(fmt::format("takes a number, not a {}", type_name(call.self)));
    if (divisor == 0) call.refuse("division by zero");
    if (!call.self.is_whole()) {
        const double number = call.self.number(), by = static_cast<double>(divisor);
        return Value(number - by * std::floor(number / by) == rest);
    }
    return Value((divisor == -1 ? 0 : call.self.whole() % divisor != 0 ? 1 : 0) == static_cast<int>(rest));
}

// Whether there are cased characters, and all are of this case.
Value is_all(const BuiltinCall& call, bool (*of_case)(char32_t), bool (*of_other)(char32_t)) {
    const std::u32string points = call.points();
    return Value(std::ranges::any_of(points, of_case) && std::ranges::none_of(points, of_other));
}

Value is_callable(const BuiltinCall& call) {
    const bool is_object = call.self.is(Type::object);
    return Value(call.self.is(Type::undefined) ||
                 (is_object && !std::holds_alternative<Namespace>(call.self.object().is) &&
                  !std::holds_alternative<Cycler>(call.self.object().is)));
}

Value is_sequence(const BuiltinCall& call) {
    const Value& self = call.self;
    return Value(self.is(Type::undefined) || self.is(Type::string) || self.is(Type::dict) ||
                 (self.is(Type::list) && self.list().kind <= ListKind::range));
}

Value is_iterable(const BuiltinCall& call) {
    const Value& self = call.self;
    return Value(self.is(Type::undefined) || self.is(Type::string) || self.is(Type::dict) || self.is(Type::list) ||
                 (self.is(Type::object) && std::holds_alternative<Loop>(self.object().is)));
}

template <bool truth_value> Value is_truth(const BuiltinCall& call) {
    return Value(call.self.is(Type::boolean) && call.self.boolean() == truth_value);
}

constexpr Builtin kTests[] = {
    {"!=", "other", 1, is_different},
    {"<", "other", 1, is_less},
    {"<=", "other", 1, is_at_most},
    {"==", "other", 1, is_equal},
    {">", "other", 1, is_greater},
    {">=", "other", 1, is_at_least},
    {"boolean", "", 0, has_type<Type::boolean>},
    {"callable", "", 0, is_callable},
    {"defined", "", 0, [](const BuiltinCall& call) { return Value(!call.self.is(Type::undefined)); }},
    {"divisibleby", "num", 1, [](const BuiltinCall& call) { return leaves(call, call.whole(0, 0), 0); }},
    {"eq", "other", 1, is_equal},
    {"equalto", "other", 1, is_equal},
    {"escaped", "", 0, [](const BuiltinCall& call) { return Value(call.self.is_markup()); }},
    {"even", "", 0, [](const BuiltinCall& call) { return leaves(call, 2, 0); }},
    {"false", "", 0, is_truth<false>},
    {"filter", "", 0,
     [](const BuiltinCall& call) { return Value(find_builtin(builtin_filters(), call.self_text()) != nullptr); }},
    {"float", "", 0, has_type<Type::floating>},
    {"ge", "other", 1, is_at_least},
    {"greaterthan", "other", 1, is_greater},
    {"gt", "other", 1, is_greater},
    {"in", "seq", 1, [](const BuiltinCall& call) { return Value(call.in.contains(*call.arguments[0], call.self)); }},
    {"integer", "", 0,
     [](const BuiltinCall& call) { return Value(call.self.is(Type::integer) || call.self.is(Type::large_integer)); }},
    {"iterable", "", 0, is_iterable},
    {"le", "other", 1, is_at_most},
    {"lessthan", "other", 1, is_less},
    {"lower", "", 0, [](const BuiltinCall& call) { return is_all(call, is_lower, is_upper); }},
    {"lt", "other", 1, is_less},
    {"mapping", "", 0, has_type<Type::dict>},
    {"ne", "other", 1, is_different},
    {"none", "", 0, has_type<Type::none>},
    {"number", "", 0,
     [](const BuiltinCall& call) { return Value(call.self.is_number() || call.self.is(Type::large_integer)); }},
    {"odd", "", 0, [](const BuiltinCall& call) { return leaves(call, 2, 1); }},
    {"sameas", "other", 1,
     [](const BuiltinCall& call) {
         return Value(call.self.is_same(*call.arguments[0]) ||
                      (call.self.is(Type::string) && equal(call.self, *call.arguments[0], call.in.budget())));
     }},
    {"sequence", "", 0, is_sequence},
    {"string", "", 0, has_type<Type::string>},
    {"test", "", 0,
     [](const BuiltinCall& call) { return Value(find_builtin(builtin_tests(), call.self_text()) != nullptr); }},
    {"true", "", 0, is_truth<true>},
    {"undefined", "", 0, has_type<Type::undefined>},
    {"upper", "", 0, [](const BuiltinCall& call) { return is_all(call, is_upper, is_lower); }},
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

// dict(pairs or dict, name=value..).
Dict dict_of(const BuiltinCall& call) {
    Dict dict;
    if (call.all.positional.size() > 1) call.refuse("takes one dict or list of pairs");
    if (!call.all.positional.empty() && call.all.positional[0].is(Type::dict)) {
        dict.entries.reserve(call.all.positional[0].dict().entries.size());
        for (const auto& [key, value] : call.all.positional[0].dict().entries)
            dict.set(key, value);
    } else if (!call.all.positional.empty()) {
        const Value pairs = call.in.as_list(call.all.positional[0]);
        for (const Value& pair : pairs.list().items) {
            const Value both = call.in.as_list(pair);
            if (both.list().items.size() != 2) call.refuse("takes pairs of key and value");
            dict.set(both.list().items[0], both.list().items[1]);
        }
    }
    for (const auto& [name, value] : call.all.named)
        dict.set(Value(name), value);
    call.in.budget().produce(dict.entries.size() * sizeof(dict.entries[0]));
    return dict;
}

Value namespace_function(const BuiltinCall& call) {
    Namespace made;
    for (const auto& [key, value] : dict_of(call).entries) {
        const std::string name = call.in.text_of(key);
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
    {"cycler", "*", 0,
     [](const BuiltinCall& call) {
         if (call.all.positional.empty()) call.refuse("needs something to cycle through");
         return call.in.make_object(Cycler{call.all.positional});
     }},
    {"dict", "*", 0, [](const BuiltinCall& call) { return Value(dict_of(call)); }},
    {"joiner", "sep", 0, [](const BuiltinCall& call) { return call.in.make_object(Joiner{call.string(0, ", ")}); }},
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
