// The filters of chat templates, as jinja2 has them, but tojson, which is transformers': see builtins.h.
#include "model/files/utf8.h"
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

// The part of an item that "a.b.0" names, or the item's member of a number; the item itself where nothing is named.
Value member(const BuiltinCall& call, const Value& item, const std::optional<Value>& path) {
    if (!path || path->is(Type::none)) return item;
    if (!path->is(Type::string)) return call.in.item(item, *path);
    const std::string& text = path->text();
    Value value = item;
    split(text, ".", -1, false, [&](std::string_view part) {
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
    return Value(utf8(lower(code_points(value.text()))));
}

// The named members of an item, to sort by: "a,b" names two.
std::vector<Value> sort_key(const BuiltinCall& call, const Value& item, const std::optional<Value>& paths,
                            bool case_sensitive) {
    if (!paths || !paths->is(Type::string)) return {without_case(member(call, item, paths), case_sensitive)};
    std::vector<Value> key;
    split(paths->text(), ",", -1, false, [&](std::string_view path) {
        call.in.budget().produce(sizeof(Value));
        key.push_back(without_case(member(call, item, Value(path)), case_sensitive));
    });
    return key;
}

using Keyed = std::vector<std::pair<Value, Value>>; // keys, and what they are keys of

void sort_by_key(const BuiltinCall& call, Keyed& keyed, bool reverse) {
    const auto before = [&](const auto& a, const auto& b) { return compare(a.first, b.first, call.in.budget()) < 0; };
    if (reverse) std::ranges::reverse(keyed); // equal ones keep their order, as in Python
    std::ranges::stable_sort(keyed, before);
    if (reverse) std::ranges::reverse(keyed);
}

Value values_of(const Keyed& keyed) {
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
        keyed.emplace_back(Value(sort_key(call, item, call.arguments[2], call.flag(1))), item);
    sort_by_key(call, keyed, call.flag(0));
    return values_of(keyed);
}

Value dictsort_filter(const BuiltinCall& call) { // case_sensitive by reverse
    if (!call.self.is(Type::dict)) call.refuse("takes a dict");
    const std::string by = call.string(1, "key");
    if (by != "key" && by != "value") call.refuse("sorts by key or by value");
    Keyed keyed;
    call.in.budget().produce(call.self.dict().entries.size() * kBytesOfPair);
    for (const auto& [key, value] : call.self.dict().entries)
        keyed.emplace_back(without_case(by == "key" ? key : value, call.flag(0)),
                           Value(std::vector<Value>{key, value}, ListKind::tuple));
    sort_by_key(call, keyed, call.flag(2));
    return values_of(keyed);
}

Value groupby_filter(const BuiltinCall& call) { // attribute default case_sensitive
    const auto named = [&](const Value& item) {
        const Value value = member(call, item, call.arguments[0]);
        return value.is(Type::undefined) && call.has(1) ? *call.arguments[1] : value;
    };
    Keyed keyed;
    for (const Value& item : call.items())
        keyed.emplace_back(without_case(named(item), call.flag(2)), item);
    sort_by_key(call, keyed, false);
    std::vector<Value> groups;
    for (std::size_t i = 0; i < keyed.size();) {
        std::vector<Value> group;
        const std::size_t begin = i;
        for (; i < keyed.size() && equal(keyed[i].first, keyed[begin].first, call.in.budget()); ++i)
            group.push_back(keyed[i].second);
        groups.emplace_back(std::vector<Value>{named(keyed[begin].second), Value(std::move(group))}, ListKind::tuple);
    }
    return Value(std::move(groups));
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
    return best
               ? best->second
               : Value(Undefined{std::make_shared<const std::string>("a list without items has no least or greatest")});
}

Value sum_filter(const BuiltinCall& call) { // attribute start
    const Value start = call.arguments[1].value_or(Value(std::int64_t{0}));
    std::int64_t whole = start.is_whole() ? start.whole() : 0;
    double sum = start.is_number() ? start.number() : 0;
    bool is_whole = start.is_whole();
    for (const Value& item : call.items()) {
        const Value value = member(call, item, call.arguments[0]);
        if (!value.is_number()) call.refuse(fmt::format("cannot add a {}", type_name(value)));
        is_whole = is_whole && value.is_whole();
        sum += value.number();
        if (is_whole && __builtin_add_overflow(whole, value.whole(), &whole)) call.refuse("the sum is beyond 64 bits");
    }
    return is_whole ? Value(whole) : Value(sum);
}

// What map and select go through: nothing where the value is false, none too.
std::vector<Value> items_if_any(const BuiltinCall& call) {
    return truth(call.self) ? call.items() : std::vector<Value>();
}

// The arguments from `first` on, for the filter or test that those before name.
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

Value indent_filter(const BuiltinCall& call) { // width first blank
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (!call.self.is(Type::string)) call.refuse("takes a string");
    const bool has_text = call.arguments[0] && call.arguments[0]->is(Type::string);
    const std::int64_t width = has_text ? 0 : std::clamp<std::int64_t>(call.whole(0, 4), 0, Budget::kMaxBytes);
    call.in.budget().produce(static_cast<std::size_t>(width));
    const std::string indent = has_text ? call.arguments[0]->text() : std::string(static_cast<std::size_t>(width), ' ');
    const std::string text = call.self.text() + "\n";
    Writer out{call.in.budget(), {}};
    bool is_first = true;
    split_lines(text, false, [&](std::string_view line) {
        if (!is_first) out.add("\n");
        if (is_first ? call.flag(1) : call.flag(2) || !line.empty()) out.add(indent);
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
        const bool is_text = call.arguments[1]->is(Type::string);
        style.has_indent = true;
        style.between = ",";
        style.indent =
            is_text ? call.arguments[1]->text()
                    : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(call.whole(1, 0), 0, 1000)), ' ');
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

[[noreturn]] void refuse_number(const BuiltinCall& call) {
    call.refuse(fmt::format("takes a number of up to 64 bits, not a {}", type_name(call.self)));
}

Value round_filter(const BuiltinCall& call) { // precision method
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (!call.self.is_number()) refuse_number(call);
    const auto precision = static_cast<int>(std::clamp<std::int64_t>(call.whole(0, 0), -300, 300));
    const std::string method = call.string(1, "common");
    const double scale = std::pow(10.0, precision), number = call.self.number();
    if (method == "ceil" || method == "floor")
        return Value((method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
    if (method != "common") call.refuse("the method must be common, ceil or floor");
    if (precision < 0) {
        const double rounded = std::nearbyint(number * scale) / scale;
        return call.self.is_whole() ? Value(static_cast<std::int64_t>(rounded)) : Value(rounded);
    }
    return call.self.is_whole() ? Value(call.self.whole())
                                : Value(std::stod(fmt::format("{:.{}f}", number, precision)));
}

std::optional<double> float_of(const BuiltinCall& call) {
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (call.self.is_number()) return call.self.number();
    const bool is_large = call.self.is(Type::large_integer);
    if (!is_large && !call.self.is(Type::string)) return std::nullopt;
    std::string text(is_large ? call.self.decimal() : stripped(call.self.text()));
    if (text.starts_with('+')) text.erase(0, 1);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

Value int_filter(const BuiltinCall& call) { // default base
    if (call.self.is_whole()) return Value(call.self.whole());
    if (call.self.is(Type::large_integer)) return call.self;
    if (call.self.is(Type::string)) {
        std::string text(stripped(call.self.text()));
        const auto base = static_cast<int>(std::clamp<std::int64_t>(call.whole(1, 10), 2, 36));
        if (text.starts_with('+')) text.erase(0, 1);
        if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.erase(0, 2);
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
        const bool is_all = end == text.data() + text.size();
        if (error == std::errc{} && is_all) return Value(number);
        if (error == std::errc::result_out_of_range && is_all) {
            if (base != 10) call.refuse("the number is beyond 64 bits, and its base is not ten");
            return Value::of_decimal(text);
        }
    }
    const std::optional<double> number = float_of(call);
    if (number && std::isfinite(*number)) return Value::of_decimal(fmt::format("{:.0f}", std::trunc(*number)));
    return call.arguments[0].value_or(Value(std::int64_t{0}));
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

Value last_filter(const BuiltinCall& call) {
    if (call.self.is(Type::list) && call.self.list().kind == ListKind::generator)
        call.refuse("takes no generator; make a list of it");
    if (call.self.is(Type::string) && !call.self.text().empty())
        return Value(call.self.text().substr(previous_code_point(call.self.text(), call.self.text().size())));
    const std::vector<Value> items = call.items();
    return items.empty() ? Value(Undefined{std::make_shared<const std::string>("there is no last item")})
                         : items.back();
}

Value reverse_filter(const BuiltinCall& call) {
    if (call.self.is(Type::string)) {
        std::u32string points = call.points();
        std::ranges::reverse(points);
        return Value(utf8(points));
    }
    std::vector<Value> items = call.items();
    std::ranges::reverse(items);
    return Value(std::move(items), ListKind::generator);
}

Value batch_filter(const BuiltinCall& call) { // linecount fill_with
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(call.whole(0, 0), 1));
    std::vector<Value> batches, batch;
    for (const Value& item : call.items()) {
        if (batch.size() == size) batches.emplace_back(std::exchange(batch, {}));
        batch.push_back(item);
    }
    if (call.has(1) && !batch.empty() && batch.size() < size) {
        call.in.budget().produce(std::min<std::size_t>(size, Budget::kMaxBytes) * sizeof(Value));
        batch.resize(size, *call.arguments[1]);
    }
    if (!batch.empty()) batches.emplace_back(std::move(batch));
    return Value(std::move(batches), ListKind::generator);
}

Value slice_filter(const BuiltinCall& call) { // slices fill_with
    const std::vector<Value> items = call.items();
    const auto n_slices = static_cast<std::size_t>(std::max<std::int64_t>(call.whole(0, 1), 1));
    call.in.budget().produce(std::min<std::size_t>(n_slices, Budget::kMaxBytes) * sizeof(Value));
    std::vector<Value> slices;
    for (std::size_t i = 0, at = 0; i < n_slices; ++i) {
        const bool has_extra = i < items.size() % n_slices;
        const std::size_t end = at + items.size() / n_slices + (has_extra ? 1 : 0);
        std::vector<Value> slice(items.begin() + static_cast<std::ptrdiff_t>(at),
                                 items.begin() + static_cast<std::ptrdiff_t>(end));
        if (call.has(1) && !has_extra) slice.push_back(*call.arguments[1]);
        slices.emplace_back(std::move(slice));
        at = end;
    }
    return Value(std::move(slices), ListKind::generator);
}

// Words begin behind white space and opening brackets.
Value title_filter(const BuiltinCall& call) {
    const std::u32string points = call.points();
    const auto is_between = [](char32_t c) {
        return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
    };
    std::u32string out;
    for (auto begin = points.begin(); begin != points.end();) {
        const auto end = is_between(*begin) ? begin + 1 : std::find_if(begin, points.end(), is_between);
        out += upper({begin, begin + 1}) + lower({begin + 1, end});
        begin = end;
    }
    return call.text(utf8(out));
}

Value truncate_filter(const BuiltinCall& call) { // length killwords end leeway
    if (call.self.is(Type::undefined)) return call.self;
    if (!call.self.is(Type::string)) call.refuse("takes a string");
    const std::string text = call.self_text(), end = call.string(2, "...");
    const std::u32string points = call.points();
    const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(call.whole(0, 255), 0));
    const auto leeway = static_cast<std::size_t>(std::max<std::int64_t>(call.whole(3, 5), 0));
    if (limit < length(end)) call.refuse("the length is below that of the end");
    if (points.size() <= limit + leeway) return call.text(text);
    std::string cut = utf8(std::u32string_view(points).substr(0, limit - length(end)));
    if (!call.flag(1)) cut.resize(std::min(cut.rfind(' '), cut.size()));
    return call.text(cut + end);
}

template <std::u32string (*change)(std::u32string_view)> Value case_filter(const BuiltinCall& call) {
    return call.text(utf8(change(call.points())));
}

// The string method of the same name, of whatever there is as text.
Value as_method(const BuiltinCall& call) {
    const std::string_view name = call.name == "trim" ? "strip" : call.name;
    return run_builtin(call.in, *find_builtin(string_methods(), name),
                       call.self.is(Type::string) ? call.self : Value(call.self_text()), call.all);
}

Value escape_filter(const BuiltinCall& call) {
    return call.self.is_markup() ? call.self : Value(escaped(call.self_text(), call.in.budget()), true);
}

Value default_filter(const BuiltinCall& call) { // default_value boolean
    const bool is_missing = call.self.is(Type::undefined) || (call.flag(1) && !truth(call.self));
    return is_missing ? call.arguments[0].value_or(Value("")) : call.self;
}

Value items_filter(const BuiltinCall& call) {
    if (call.self.is(Type::undefined)) return Value(std::vector<Value>(), ListKind::generator);
    if (!call.self.is(Type::dict)) call.refuse("takes a dict");
    std::vector<Value> items;
    call.in.budget().produce(call.self.dict().entries.size() * kBytesOfPair);
    for (const auto& [key, value] : call.self.dict().entries)
        items.emplace_back(std::vector<Value>{key, value}, ListKind::tuple);
    return Value(std::move(items), ListKind::generator);
}

Value first_filter(const BuiltinCall& call) {
    if (call.self.is(Type::string) && !call.self.text().empty())
        return Value(call.self.text().substr(0, code_point_at(call.self.text(), 0).n_bytes));
    const std::vector<Value> items = call.items();
    return items.empty() ? Value(Undefined{std::make_shared<const std::string>("there is no first item")})
                         : items.front();
}

Value abs_filter(const BuiltinCall& call) {
    if (call.self.is(Type::undefined)) fail_undefined(call.self);
    if (call.self.is(Type::large_integer)) {
        const std::string& decimal = call.self.decimal();
        return Value::of_decimal(std::string_view(decimal).substr(decimal.starts_with('-') ? 1 : 0));
    }
    if (!call.self.is_number()) refuse_number(call);
    if (!call.self.is_whole()) return Value(std::abs(call.self.number()));
    if (call.self.whole() == INT64_MIN) return Value::of_decimal("9223372036854775808");
    return Value(std::abs(call.self.whole()));
}

Value wordcount_filter(const BuiltinCall& call) {
    std::int64_t n = 0;
    bool in_word = false;
    for (const char32_t c : call.points()) {
        const bool is_part = is_letter(c) || is_digit(c) || c == U'_';
        n += is_part && !in_word ? 1 : 0;
        in_word = is_part;
    }
    return Value(n);
}

constexpr Builtin kFilters[] = {
    {"abs", "", 0, abs_filter},
    {"attr", "name", 1,
     [](const BuiltinCall& call) {
         return call.self.is(Type::dict) ? Value(Undefined{}) : call.in.attribute(call.self, call.string(0));
     }},
    {"batch", "linecount fill_with", 1, batch_filter},
    {"capitalize", "", 0, as_method},
    {"center", "width", 0, as_method},
    {"count", "", 0, length_filter},
    {"d", "default_value boolean", 0, default_filter},
    {"default", "default_value boolean", 0, default_filter},
    {"dictsort", "case_sensitive by reverse", 0, dictsort_filter},
    {"e", "", 0, escape_filter},
    {"escape", "", 0, escape_filter},
    {"first", "", 0, first_filter},
    {"float", "default", 0,
     [](const BuiltinCall& call) {
         const std::optional<double> number = float_of(call);
         return number ? Value(*number) : call.arguments[0].value_or(Value(0.0));
     }},
    {"forceescape", "", 0,
     [](const BuiltinCall& call) { return Value(escaped(call.self_text(), call.in.budget()), true); }},
    {"format", "*", 0,
     [](const BuiltinCall& call) {
         Dict named;
         for (const auto& [name, value] : call.all.named)
             named.set(Value(name), value);
         const Value values =
             call.all.named.empty() ? Value(call.all.positional, ListKind::tuple) : Value(std::move(named));
         return Value(percent_formatted(call.in, call.self_text(), values));
     }},
    {"groupby", "attribute default case_sensitive", 1, groupby_filter},
    {"indent", "width first blank", 0, indent_filter},
    {"int", "default base", 0, int_filter},
    {"items", "", 0, items_filter},
    {"join", "d attribute", 0, join_filter},
    {"last", "", 0, last_filter},
    {"length", "", 0, length_filter},
    {"list", "", 0, [](const BuiltinCall& call) { return Value(call.items()); }},
    {"lower", "", 0, case_filter<lower>},
    {"map", "*", 0, map_filter},
    {"max", "case_sensitive attribute", 0, extreme_filter<-1>},
    {"min", "case_sensitive attribute", 0, extreme_filter<1>},
    {"reject", "*", 0, select_filter<false, false>},
    {"rejectattr", "*", 0, select_filter<false, true>},
    {"replace", "old new count", 2, as_method},
    {"reverse", "", 0, reverse_filter},
    {"round", "precision method", 0, round_filter},
    {"safe", "", 0, [](const BuiltinCall& call) { return Value(call.self_text(), true); }},
    {"select", "*", 0, select_filter<true, false>},
    {"selectattr", "*", 0, select_filter<true, true>},
    {"slice", "slices fill_with", 1, slice_filter},
    {"sort", "reverse case_sensitive attribute", 0, sort_filter},
    {"string", "", 0,
     [](const BuiltinCall& call) { return call.self.is(Type::string) ? call.self : Value(call.self_text()); }},
    {"sum", "attribute start", 0, sum_filter},
    {"title", "", 0, title_filter},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson_filter},
    {"trim", "chars", 0, as_method},
    {"truncate", "length killwords end leeway", 0, truncate_filter},
    {"unique", "case_sensitive attribute", 0, unique_filter},
    {"upper", "", 0, case_filter<upper>},
    {"wordcount", "", 0, wordcount_filter},
};

} // namespace

std::span<const Builtin> builtin_filters() {
    return kFilters;
}

} // namespace entrodraft::model::jinja
