// Accesses the parts of values and calls values: attributes, items, iteration, arguments. See interpreter.h,
// builtins.h.
#include "model/files/bad_file.h"
#include "model/files/utf8.h"
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

// Returns true for methods that Python has but the sandbox refuses, because they change the value.
bool is_forbidden(const Value& self, std::string_view name) {
    static constexpr std::string_view kOfLists[] = {"append", "clear",  "pop",  "reverse",
                                                    "insert", "remove", "sort", "extend"};
    static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (self.is(Type::list) && self.list().kind == ListKind::list)
        return std::ranges::find(kOfLists, name) != std::end(kOfLists);
    return self.is(Type::dict) && std::ranges::find(kOfDicts, name) != std::end(kOfDicts);
}

constexpr Builtin kDictMethods[] = {
    {"get", "key default", 1,
     [](const BuiltinCall& call) {
         const Value* found = call.self.dict().find(*call.arguments[0]);
         return found ? *found : call.arguments[1].value_or(Value(None{}));
     }},
    {"items", "", 0, [](const BuiltinCall& call) { return Value(call.entries(), ListKind::view); }},
    {"keys", "", 0, [](const BuiltinCall& call) { return Value(call.items(), ListKind::view); }},
    {"values", "", 0,
     [](const BuiltinCall& call) {
         std::vector<Value> values;
         for (const auto& [key, value] : call.self.dict().entries)
             values.push_back(value);
         return Value(std::move(values), ListKind::view);
     }},
};

Value loop_attribute(Loop& loop, std::string_view name, Budget& budget) {
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const std::size_t at = loop.index0;
    if (name == "index") return number(at + 1);
    if (name == "index0") return number(at);
    if (name == "first") return Value(at == 0);
    if (name == "last") return Value(!loop.has(at + 1, budget));
    if (name == "length") {
        loop.has(SIZE_MAX - 1, budget);
        return number(loop.ready.size());
    }
    if (name == "previtem") return at == 0 ? undefined("there is no previous item") : loop.ready[at - 1];
    if (name == "nextitem") return loop.has(at + 1, budget) ? loop.ready[at + 1] : undefined("there is no next item");
    throw TemplateError(fmt::format("'loop' has no attribute '{}'", name));
}

} // namespace

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
    const auto found = std::ranges::find(table, name, &Builtin::name);
    return found == table.end() ? nullptr : &*found;
}

const Builtin* find_method(const Value& self, std::string_view name) {
    if (self.is(Type::string)) return find_builtin(string_methods(), name);
    if (self.is(Type::dict)) return find_builtin(kDictMethods, name);
    return nullptr;
}

Value run_builtin(Interpreter& in, const Builtin& builtin, const Value& self, const CallArguments& arguments) {
    in.budget().step(1 + (self.is(Type::string) ? self.text().size() / 256 : 0));
    const std::size_t n_self = self.is(Type::string) ? self.text().size() : 0;
    for (const Value& argument : arguments.positional) {
        if (argument.is(Type::string)) in.budget().search(n_self, argument.text().size());
        if (argument.is(Type::list)) in.budget().step(argument.list().items.size());
    }
    BuiltinCall call{in, self, builtin.name, arguments};
    if (builtin.parameters == "*") return builtin.run(call);
    std::vector<std::string_view> names;
    split(builtin.parameters, {}, -1, [&](std::string_view name) { names.push_back(name); });
    if (arguments.positional.size() > names.size())
        call.refuse(fmt::format("takes {} arguments, not {}", names.size(), arguments.positional.size()));
    call.arguments.assign(arguments.positional.begin(), arguments.positional.end());
    call.arguments.resize(names.size());
    for (const auto& [name, value] : arguments.named) {
        const auto found = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
        if (found == names.size()) call.refuse("has no parameter named " + in_quotes(name));
        if (call.arguments[found]) call.refuse("is given " + in_quotes(name) + " twice");
        call.arguments[found] = value;
    }
    for (std::size_t i = 0; i < builtin.n_required; ++i)
        if (!call.arguments[i]) call.refuse(fmt::format("needs an argument '{}'", names[i]));
    return builtin.run(call);
}

void BuiltinCall::refuse(std::string_view why) const {
    throw TemplateError(fmt::format("{}: {}", name, why));
}

std::vector<Value> BuiltinCall::items() const {
    const Value list = in.as_list(self);
    in.budget().step(list.list().items.size() / 8);
    in.budget().produce(list.list().items.size() * sizeof(Value));
    return list.list().items;
}

std::vector<Value> BuiltinCall::entries() const {
    if (!self.is(Type::dict)) refuse("takes a dict");
    in.budget().produce(self.dict().entries.size() * kBytesOfPair);
    std::vector<Value> pairs;
    for (const auto& [key, value] : self.dict().entries)
        pairs.emplace_back(std::vector<Value>{key, value}, ListKind::tuple);
    return pairs;
}

std::string BuiltinCall::costly_text() const {
    std::string text = self_text();
    in.budget().step(text.size() / 8);
    return text;
}

std::int64_t BuiltinCall::whole(std::size_t i, std::int64_t default_value) const {
    if (!has(i)) return default_value;
    if (!arguments[i]->is_whole()) refuse(fmt::format("takes a whole number, not a {}", type_name(*arguments[i])));
    return arguments[i]->whole();
}

std::string BuiltinCall::string(std::size_t i) const {
    if (!has(i)) return "";
    if (arguments[i]->is(Type::undefined)) fail_undefined(*arguments[i]);
    if (!arguments[i]->is(Type::string)) refuse(fmt::format("takes a string, not a {}", type_name(*arguments[i])));
    return arguments[i]->text();
}

Value Interpreter::as_list(const Value& value) {
    if (value.is(Type::list)) {
        const bool is_generator = value.list().kind == ListKind::generator;
        return is_generator && std::exchange(value.list().is_consumed, true) ? Value(std::vector<Value>()) : value;
    }
    std::vector<Value> items;
    if (value.is(Type::dict)) {
        for (const auto& [key, part] : value.dict().entries)
            items.push_back(key);
    } else if (value.is(Type::string)) {
        const std::string& text = value.text();
        budget_.step(text.size() / 8);
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t n_bytes = code_point_at(text, at).n_bytes;
            budget_.produce(kBytesOfText);
            items.emplace_back(text.substr(at, n_bytes));
            at += n_bytes;
        }
    } else if (!value.is(Type::undefined)) {
        throw TemplateError(fmt::format("a {} cannot be iterated over", type_name(value)));
    }
    return charged(Value(std::move(items)));
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
    if (value.is(Type::undefined)) fail_undefined(value);
    if (is_forbidden(value, name))
        return undefined(fmt::format("'{}' would change a {}, which templates may not", name, type_name(value)));
    if (const Builtin* method = find_method(value, name)) return make_object(Method{value, method});
    if (value.is(Type::dict)) {
        if (const Value* found = value.dict().find(name)) return *found;
    } else if (value.is(Type::object)) {
        Object& object = value.object();
        if (auto* space = std::get_if<Namespace>(&object.is)) {
            budget_.step(space->attributes.names.size() / 16);
            if (const Value* found = space->attributes.find(name)) return *found;
        }
        if (auto* loop = std::get_if<Loop>(&object.is)) return loop_attribute(*loop, name, budget_);
    }
    return undefined(fmt::format("a {} has no attribute '{}'", type_name(value), name));
}

Value Interpreter::item(const Value& value, const Value& key) {
    if (value.is(Type::undefined)) fail_undefined(value);
    const bool has_places = value.is(Type::string) || (value.is(Type::list) && value.list().kind <= ListKind::range);
    if (has_places && key.is_whole()) {
        if (value.is(Type::string)) budget_.step(value.text().size() / 8);
        const std::u32string points = value.is(Type::string) ? code_points(value.text()) : U"";
        const auto n = static_cast<std::int64_t>(value.is(Type::string) ? points.size() : value.list().items.size());
        const std::int64_t at = key.whole() < 0 ? key.whole() + n : key.whole();
        if (at < 0 || at >= n)
            return undefined(fmt::format("a {} of {} has no item {}", type_name(value), n, key.whole()));
        const auto place = static_cast<std::size_t>(at);
        return value.is(Type::string) ? Value(utf8(points.substr(place, 1))) : value.list().items[place];
    }
    charge_key(key);
    if (value.is(Type::dict) && !key.is(Type::list) && !key.is(Type::dict))
        if (const Value* found = value.dict().find(key)) return *found;
    if (key.is(Type::string)) return attribute(value, key.text());
    return undefined(fmt::format("a {} has no item {}", type_name(value), text_of(key)));
}

bool Interpreter::contains(const Value& container, const Value& value) {
    if (container.is(Type::dict)) {
        charge_key(value);
        return container.dict().find(value) != nullptr;
    }
    if (container.is(Type::string)) {
        if (value.is(Type::undefined)) fail_undefined(value);
        if (!value.is(Type::string)) throw TemplateError(fmt::format("'in' a string: a {} is none", type_name(value)));
        budget_.step(container.text().size() / 256);
        budget_.search(container.text().size(), value.text().size());
        return container.text().find(value.text()) != std::string::npos;
    }
    const Value list = as_list(container);
    return std::ranges::any_of(list.list().items, [&](const Value& item) { return equal(item, value, budget_); });
}

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
    const Nested nested(*this);
    if (callee.is(Type::undefined)) fail_undefined(callee);
    if (!callee.is(Type::object)) throw TemplateError(fmt::format("a {} cannot be called", type_name(callee)));
    Object& object = callee.object();
    if (const auto* macro = std::get_if<Macro>(&object.is)) return call_macro(*macro, arguments);
    if (const auto* method = std::get_if<Method>(&object.is))
        return run_builtin(*this, *method->builtin, method->self, arguments);
    throw TemplateError("a namespace or loop cannot be called");
}

Value Interpreter::filter(std::string_view name, const Value& value, const CallArguments& arguments) {
    const Builtin* filter = find_builtin(builtin_filters(), name);
    if (!filter) throw TemplateError(fmt::format("there is no filter named '{}'", name));
    return run_builtin(*this, *filter, value, arguments);
}

bool Interpreter::test(std::string_view name, const Value& value, const CallArguments& arguments) {
    const Builtin* test = find_builtin(builtin_tests(), name);
    if (!test) throw TemplateError(fmt::format("there is no test named '{}'", name));
    return truth(run_builtin(*this, *test, value, arguments));
}

} // namespace entrodraft::model::jinja
