// The filters of chat templates, as in jinja2; only tojson is that of transformers. See builtins.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

// Returns the part of an item that "a.b.0" names, or the item's member of a number; without a path, the item itself.
Value member(const BuiltinCall& call, const Value& item, const std::optional<Value>& path) {
    if (!path || path->is(Type::none)) return item;
    if (!path->is(Type::string)) return call.in.item(item, *path);
    const std::string& text = path->text();
    Value value = item;
    split(text, ".", -1, [&](std::string_view part) {
        std::int64_t index = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool is_number =
            !part.empty() && error == std::errc{} && end == part.data() + part.size() && part[0] != '-';
        value = is_number ? call.in.item(value, Value(index)) : call.in.item(value, Value(part));
    });
    return value;
}

Value without_case(const Value& value, bool case_sensitive) {
    if (case_sensitive || !value.is(Type::string)) return value;
    return Value(lower(value.text()));
}

using Keyed = std::vector<std::pair<Value, Value>>; // keys and their values

Value sorted(const BuiltinCall& call, Keyed keyed, bool reverse) {
    std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
        return compare(reverse ? b.first : a.first, reverse ? a.first : b.first, call.in.budget()) < 0;
    });
    std::vector<Value> values;
    for (const auto& [key, value] : keyed)
        values.push_back(value);
    return Value(std::move(values));
}

Value sort_filter(const BuiltinCall& call) { // reverse case_sensitive attribute
    Keyed keyed;
    const std::vector<Value> items = call.items();
    call.in.budget().produce(items.size() * kBytesOfPair);
    for (const Value& item : items)
        keyed.emplace_back(without_case(member(call, item, call.arguments[2]), call.flag(1)), item);
    return sorted(call, std::move(keyed), call.flag(0));
}

Value dictsort_filter(const BuiltinCall& call) {
    Keyed keyed;
    for (const Value& entry : call.entries())
        keyed.emplace_back(without_case(entry.list().items[0], false), entry);
    return sorted(call, std::move(keyed), false);
}

Value unique_filter(const BuiltinCall& call) { // case_sensitive attribute
    Dict seen;
    std::vector<Value> kept;
    for (const Value& item : call.items()) {
        const Value key = without_case(member(call, item, call.arguments[1]), call.flag(0));
        if (key.is(Type::string)) call.in.budget().search(0, key.text().size());
        if (seen.find(key)) continue;
        seen.set(key, Value(None{}));
        kept.push_back(item);
    }
    return Value(std::move(kept), ListKind::generator);
}

template <int sign> Value extreme_filter(const BuiltinCall& call) { // case_sensitive attribute
    std::optional<std::pair<Value, Value>> best;
    for (const Value& item : call.items()) {
        Value key = without_case(member(call, item, call.arguments[1]), call.flag(0));
        if (!best || compare(key, best->first, call.in.budget()) * sign < 0) best = {std::move(key), item};
    }
    return best ? best->second : undefined("a list without items has no least or greatest");
}

Value sum_filter(const BuiltinCall& call) { // attribute
    Value sum(std::int64_t{0});
    for (const Value& item : call.items())
        sum = call.in.binary("+", sum, member(call, item, call.arguments[0]));
    return sum;
}

// Returns the items for map and select: none if the value is false or none.
std::vector<Value> items_if_any(const BuiltinCall& call) {
    return truth(call.self) ? call.items() : std::vector<Value>();
}

// Returns the arguments from `first` on, for the filter or test that the arguments before them name.
CallArguments rest(const BuiltinCall& call, std::size_t first) {
    const auto& given = call.all.positional;
    return {{given.begin() + static_cast<std::ptrdiff_t>(std::min(first, given.size())), given.end()}, call.all.named};
}

std::string name_at(const BuiltinCall& call, std::size_t i) {
    if (i >= call.all.positional.size() || !call.all.positional[i].is(Type::string))
        call.refuse("needs a name, as a string");
    return call.all.positional[i].text();
}

Value map_filter(const BuiltinCall& call) {
    std::optional<Value> path, default_value;
    const bool is_named = call.all.positional.empty();
    for (const auto& [name, value] : call.all.named)
        if (is_named && (name == "attribute" || name == "default")) (name == "default" ? default_value : path) = value;
    if (is_named && !path) call.refuse("needs a filter's name or an attribute");
    std::vector<Value> mapped;
    for (const Value& item : items_if_any(call)) {
        call.in.budget().step();
        Value value = is_named ? member(call, item, path) : call.in.filter(name_at(call, 0), item, rest(call, 1));
        if (value.is(Type::undefined) && default_value) value = *default_value;
        mapped.push_back(std::move(value));
    }
    return Value(std::move(mapped), ListKind::generator);
}

template <bool keeps, bool by_attribute> Value select_filter(const BuiltinCall& call) {
    constexpr std::size_t kTest = by_attribute ? 1 : 0;
    std::optional<Value> path;
    if (by_attribute) {
        if (call.all.positional.empty()) call.refuse("needs an attribute");
        path = call.all.positional[0];
    }
    const bool has_test = call.all.positional.size() > kTest;
    std::vector<Value> kept;
    for (const Value& item : items_if_any(call)) {
        call.in.budget().step();
        const Value value = member(call, item, path);
        const bool holds = has_test ? call.in.test(name_at(call, kTest), value, rest(call, kTest + 1)) : truth(value);
        if (holds == keeps) kept.push_back(item);
    }
    return Value(std::move(kept), ListKind::generator);
}

Value join_filter(const BuiltinCall& call) { // separator attribute
    const std::string separator = call.arguments[0] ? call.in.text_of(*call.arguments[0]) : "";
    Writer out{call.in.budget(), {}};
    bool is_first = true;
    for (const Value& item : call.items()) {
        call.in.budget().step();
        if (!is_first) out.add(separator);
        is_first = false;
        out.add(call.in.text_of(member(call, item, call.arguments[1])));
    }
    return Value(std::move(out.text));
}

Value indent_filter(const BuiltinCall& call) { // width first
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (!call.self.is(Type::string)) call.refuse("takes a string");
    const auto width = static_cast<std::size_t>(std::clamp<std::int64_t>(call.whole(0, 4), 0, Budget::kMaxBytes));
    call.in.budget().produce(width);
    const std::string indent(width, ' ');
    const std::string text = call.self.text() + "\n";
    Writer out{call.in.budget(), {}};
    bool is_first = true;
    split_lines(text, [&](std::string_view line) {
        if (!is_first) out.add("\n");
        if (is_first ? call.flag(1) : !line.empty()) out.add(indent);
        out.add(line);
        is_first = false;
    });
    return call.text(std::move(out.text));
}

Value tojson_filter(const BuiltinCall& call) { // ensure_ascii indent separators sort_keys
    JsonStyle style;
    style.ensure_ascii = call.flag(0);
    style.sort_keys = call.flag(3);
    if (call.has(1)) {
        style.has_indent = true;
        style.between = ",";
        style.indent.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(call.whole(1, 0), 0, 1000)), ' ');
    }
    if (call.has(2)) {
        const Value separators = call.in.as_list(*call.arguments[2]);
        if (separators.list().items.size() != 2) call.refuse("separators must be two");
        style.between = call.in.text_of(separators.list().items[0]);
        style.colon = call.in.text_of(separators.list().items[1]);
    }
    Writer out{call.in.budget(), {}};
    write_json(call.self, style, out);
    return Value(std::move(out.text));
}

Value int_filter(const BuiltinCall& call) { // default
    const Value& self = call.self;
    if (self.is(Type::undefined)) fail_undefined(self);
    if (self.is_whole()) return Value(self.whole());
    if (self.is(Type::large_integer)) return self;
    double number = self.is(Type::floating) ? self.number() : NAN;
    if (self.is(Type::string)) {
        std::string text(stripped(self.text()));
        if (text.starts_with('+')) text.erase(0, 1);
        const char *begin = text.data(), *end = begin + text.size();
        std::int64_t whole = 0;
        if (const auto [stop, error] = std::from_chars(begin, end, whole);
            stop == end && error != std::errc::invalid_argument)
            return Value::of_decimal(text);
        if (const auto [stop, error] = std::from_chars(begin, end, number); stop != end || error != std::errc{})
            number = NAN;
    }
    if (!std::isfinite(number)) return call.arguments[0].value_or(Value(std::int64_t{0}));
    if (std::abs(number) > 9e18) call.refuse("the number is beyond 64 bits");
    return Value(static_cast<std::int64_t>(number));
}

Value length_filter(const BuiltinCall& call) {
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const Value& self = call.self;
    if (self.is(Type::undefined)) return number(0);
    if (self.is(Type::string)) return number(length(self.text()));
    if (self.is(Type::dict)) return number(self.dict().entries.size());
    if (self.is(Type::list) && self.list().kind != ListKind::generator) return number(self.list().items.size());
    call.refuse(fmt::format("a {} has no length", type_name(self)));
}

template <std::int64_t place> Value item_at(const BuiltinCall& call) {
    if (place < 0 && call.self.is(Type::list) && call.self.list().kind == ListKind::generator)
        call.refuse("takes no generator; make a list of it");
    return call.in.item(call.self.is(Type::string) ? call.self : Value(call.items()), Value(place));
}

Value reverse_filter(const BuiltinCall& call) {
    if (call.self.is(Type::string)) {
        std::u32string points = code_points(call.costly_text());
        std::ranges::reverse(points);
        return Value(utf8(points));
    }
    std::vector<Value> items = call.items();
    std::ranges::reverse(items);
    return Value(std::move(items), ListKind::generator);
}

// Runs the string method of the same name, on the value as text.
Value as_method(const BuiltinCall& call) {
    const std::string_view name = call.name == "trim" ? "strip" : call.name;
    return run_builtin(call.in, *find_builtin(string_methods(), name),
                       call.self.is(Type::string) ? call.self : Value(call.self_text()), call.all);
}

Value default_filter(const BuiltinCall& call) { // default_value boolean
    const bool is_missing = call.self.is(Type::undefined) || (call.flag(1) && !truth(call.self));
    return is_missing ? call.arguments[0].value_or(Value("")) : call.self;
}

Value items_filter(const BuiltinCall& call) {
    return Value(call.self.is(Type::undefined) ? std::vector<Value>() : call.entries(), ListKind::generator);
}

Value abs_filter(const BuiltinCall& call) {
    const Value zero(std::int64_t{0});
    return compare(call.self, zero, call.in.budget()) < 0 ? call.in.binary("-", zero, call.self) : call.self;
}

Value text_filter(const BuiltinCall& call) {
    return call.self.is(Type::string) ? call.self : Value(call.self_text());
}

constexpr Builtin kFilters[] = {
    {"abs", "", 0, abs_filter},
    {"capitalize", "", 0, as_method},
    {"count", "", 0, length_filter},
    {"d", "default_value boolean", 0, default_filter},
    {"default", "default_value boolean", 0, default_filter},
    {"dictsort", "", 0, dictsort_filter},
    {"first", "", 0, item_at<0>},
    {"indent", "width first", 0, indent_filter},
    {"int", "default", 0, int_filter},
    {"items", "", 0, items_filter},
    {"join", "d attribute", 0, join_filter},
    {"last", "", 0, item_at<-1>},
    {"length", "", 0, length_filter},
    {"list", "", 0, [](const BuiltinCall& call) { return Value(call.items()); }},
    {"lower", "", 0, as_method},
    {"map", "*", 0, map_filter},
    {"max", "case_sensitive attribute", 0, extreme_filter<-1>},
    {"min", "case_sensitive attribute", 0, extreme_filter<1>},
    {"reject", "*", 0, select_filter<false, false>},
    {"rejectattr", "*", 0, select_filter<false, true>},
    {"replace", "old new count", 2, as_method},
    {"reverse", "", 0, reverse_filter},
    {"safe", "", 0, [](const BuiltinCall& call) { return Value(call.self_text(), true); }},
    {"select", "*", 0, select_filter<true, false>},
    {"selectattr", "*", 0, select_filter<true, true>},
    {"sort", "reverse case_sensitive attribute", 0, sort_filter},
    {"string", "", 0, text_filter},
    {"sum", "attribute", 0, sum_filter},
    {"title", "", 0, [](const BuiltinCall& call) { return call.text(titled(call.costly_text())); }},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson_filter},
    {"trim", "chars", 0, as_method},
    {"unique", "case_sensitive attribute", 0, unique_filter},
    {"upper", "", 0, as_method},
};

} // namespace

std::span<const Builtin> builtin_filters() {
    return kFilters;
}

} // namespace entrodraft::model::jinja
