// Values of chat templates: see value.h.
#include "model/text/chat/value.h"

#include "model/files/utf8.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

constexpr int kMaxDepth = 100; // nested lists and dicts

int depth_of(const Value& value) {
    return value.is(Type::list) ? value.list().depth : value.is(Type::dict) ? value.dict().depth : 0;
}

void grow_depth(int& depth, const Value& part) {
    depth = std::max(depth, depth_of(part) + 1);
    if (depth > kMaxDepth)
        throw TemplateError(fmt::format("lists and dicts lie deeper than {} in one another", kMaxDepth));
}

} // namespace

void Budget::step(std::size_t n) {
    steps_ -= static_cast<std::int64_t>(n);
    if (steps_ < 0) throw TemplateError(fmt::format("takes more than {} steps", kMaxSteps));
}

void Budget::produce(std::size_t n_bytes) {
    if (n_bytes > static_cast<std::size_t>(bytes_))
        throw TemplateError(fmt::format("makes more than {} MiB of text and lists", kMaxBytes >> 20));
    bytes_ -= static_cast<std::int64_t>(n_bytes);
    step(n_bytes / 1024);
}

Value::Value(std::vector<Value> items, ListKind kind) {
    List list{std::move(items), kind};
    for (const Value& item : list.items)
        grow_depth(list.depth, item);
    is_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
    for (const auto& [key, value] : dict.entries)
        grow_depth(dict.depth, value);
    is_ = std::make_shared<const Dict>(std::move(dict));
}

Value Value::of_decimal(std::string_view decimal) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(decimal.data(), decimal.data() + decimal.size(), number);
    if (error == std::errc{}) return Value(number);
    const bool is_negative = decimal.starts_with('-');
    decimal.remove_prefix(decimal.find_first_not_of("-0"));
    Value made;
    made.is_ = LargeInteger{std::make_shared<const std::string>((is_negative ? "-" : "") + std::string(decimal))};
    return made;
}

const Value* Dict::find(const Value& key) const {
    const auto found = places.find(key_of(key));
    return found == places.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
    const auto found = places.find("s" + std::string(key));
    return found == places.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(Value key, Value value) {
    const auto [at, is_new] = places.emplace(key_of(key), entries.size());
    if (is_new)
        entries.emplace_back(std::move(key), std::move(value));
    else
        entries[at->second].second = std::move(value);
}

Value undefined(std::string why) {
    return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

std::string_view type_name(const Value& value) {
    static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int",    "float",
                                                  "str",       "list",     "dict", "object", "int beyond 64 bits"};
    static constexpr std::string_view kLists[] = {"list", "tuple", "range", "dict view", "generator"};
    if (value.is(Type::list)) return kLists[static_cast<std::size_t>(value.list().kind)];
    return kNames[static_cast<std::size_t>(value.type())];
}

void fail_undefined(const Value& value) {
    const auto& why = value.undefined().why;
    throw TemplateError(why ? *why : "a value is undefined");
}

bool truth(const Value& value) {
    switch (value.type()) {
    case Type::undefined:
    case Type::none:
        return false;
    case Type::boolean:
    case Type::integer:
    case Type::floating:
        return value.number() != 0;
    case Type::string:
        return !value.text().empty();
    case Type::list:
        return value.list().kind == ListKind::generator || !value.list().items.empty();
    case Type::dict:
        return !value.dict().entries.empty();
    case Type::object:
    case Type::large_integer:
        break;
    }
    return true;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
    budget.step();
    if (a.is_number() && b.is_number())
        return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
    if (a.type() != b.type()) return false;
    switch (a.type()) {
    case Type::string:
        budget.step(std::min(a.text().size(), b.text().size()) / 1024);
        return a.text() == b.text();
    case Type::list:
        return a.list().kind == b.list().kind && a.list().kind != ListKind::generator &&
               std::ranges::equal(a.list().items, b.list().items,
                                  [&](const Value& x, const Value& y) { return equal(x, y, budget); });
    case Type::dict:
        return a.dict().entries.size() == b.dict().entries.size() &&
               std::ranges::all_of(a.dict().entries, [&](const auto& entry) {
                   const Value* other = b.dict().find(entry.first);
                   return other && equal(entry.second, *other, budget);
               });
    case Type::object:
        return &a.object() == &b.object();
    case Type::large_integer:
        return a.decimal() == b.decimal();
    default:
        return true; // undefined, none
    }
}

int compare(const Value& a, const Value& b, Budget& budget) {
    budget.step();
    if (a.is_whole() && b.is_whole()) return (a.whole() > b.whole()) - (a.whole() < b.whole());
    if (a.is_number() && b.is_number()) return (a.number() > b.number()) - (a.number() < b.number());
    if (a.is(Type::undefined)) fail_undefined(a);
    if (b.is(Type::undefined)) fail_undefined(b);
    if (!a.is(Type::string) || !b.is(Type::string))
        throw TemplateError(fmt::format("cannot compare {} with {}", type_name(a), type_name(b)));
    budget.step(std::min(a.text().size(), b.text().size()) / 1024);
    return a.text().compare(b.text());
}

std::string key_of(const Value& key) {
    switch (key.type()) {
    case Type::string:
        return "s" + key.text();
    case Type::boolean:
    case Type::integer:
        return fmt::format("i{}", key.whole());
    case Type::large_integer:
        return "i" + key.decimal();
    case Type::none:
        return "n";
    case Type::undefined:
        return "u";
    default:
        throw TemplateError(fmt::format("a {} cannot be a key of a dict", type_name(key)));
    }
}

namespace {

std::string float_text(double number) {
    std::string text = fmt::format("{}", number);
    return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

constexpr std::size_t kPieceBytes = 4096; // of a text that is written: bytes charged at once

void write_text_repr(std::string_view text, Writer& out) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string repr(1, quote);
    for (std::size_t at = 0; at < text.size();) {
        static constexpr std::string_view kShort = "\n\r\t", kLetters = "nrt";
        const auto [c, n_bytes] = code_point_at(text, at);
        const std::size_t escape = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
        if (escape != std::string_view::npos)
            repr.append("\\").append(1, kLetters[escape]);
        else if (c == U'\\' || c == static_cast<char32_t>(quote))
            repr.append("\\").append(1, static_cast<char>(c));
        else if (is_printable(c))
            repr.append(text.substr(at, n_bytes));
        else
            repr += fmt::format("\\{}{:0{}x}",
                                c < 0x100     ? 'x'
                                : c < 0x10000 ? 'u'
                                              : 'U',
                                static_cast<std::uint32_t>(c),
                                c < 0x100     ? 2
                                : c < 0x10000 ? 4
                                              : 8);
        at += n_bytes;
        if (repr.size() > kPieceBytes) out.add(std::exchange(repr, {}));
    }
    out.add(repr + quote);
}

void write_list_repr(const List& list, Writer& out) {
    if (list.kind > ListKind::tuple)
        throw TemplateError("a range, a view of a dict or a generator has no text; make a list of it");
    const bool is_list = list.kind == ListKind::list;
    out.add(is_list ? "[" : "(");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) out.add(", ");
        write_repr(list.items[i], out);
    }
    if (!is_list && list.items.size() == 1) out.add(",");
    out.add(is_list ? "]" : ")");
}

void write_json_text(std::string_view text, bool ensure_ascii, Writer& out) {
    std::string json = "\"";
    for (std::size_t at = 0; at < text.size();) {
        static constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
        const auto [c, n_bytes] = code_point_at(text, at);
        const std::size_t escape = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
        if (escape != std::string_view::npos)
            json.append("\\").append(1, kLetters[escape]);
        else if (c < 0x20 || (ensure_ascii && c > 0x7f && c < 0x10000))
            json += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
        else if (ensure_ascii && c >= 0x10000)
            json += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((static_cast<std::uint32_t>(c) - 0x10000) >> 10),
                                0xdc00 + ((static_cast<std::uint32_t>(c) - 0x10000) & 0x3ff));
        else
            json.append(text.substr(at, n_bytes));
        at += n_bytes;
        if (json.size() > kPieceBytes) out.add(std::exchange(json, {}));
    }
    out.add(json + "\"");
}

void write_json_line(const JsonStyle& style, int level, Writer& out) {
    if (!style.has_indent) return;
    out.add("\n");
    for (int i = 0; i < level; ++i)
        out.add(style.indent);
}

void write_json_dict(const Dict& dict, const JsonStyle& style, Writer& out, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries)
        entries.push_back(&entry);
    if (style.sort_keys)
        std::ranges::stable_sort(
            entries, [&](const auto* a, const auto* b) { return compare(a->first, b->first, out.budget) < 0; });
    out.add("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) out.add(style.between);
        write_json_line(style, level + 1, out);
        const Value& key = entries[i]->first;
        if (!key.is(Type::string)) out.add("\"");
        write_json(key, style, out);
        out.add(key.is(Type::string) ? style.colon : "\"" + style.colon);
        write_json(entries[i]->second, style, out, level + 1);
    }
    if (!entries.empty()) write_json_line(style, level, out);
    out.add("}");
}

} // namespace

void write_repr(const Value& value, Writer& out) {
    out.budget.step();
    switch (value.type()) {
    case Type::undefined:
        return out.add("Undefined");
    case Type::none:
        return out.add("None");
    case Type::boolean:
        return out.add(value.boolean() ? "True" : "False");
    case Type::integer:
        return out.add(fmt::format("{}", value.whole()));
    case Type::large_integer:
        return out.add(value.decimal());
    case Type::floating:
        return out.add(float_text(value.number()));
    case Type::string:
        if (value.is_markup()) out.add("Markup(");
        write_text_repr(value.text(), out);
        return out.add(value.is_markup() ? ")" : "");
    case Type::list:
        return write_list_repr(value.list(), out);
    case Type::dict:
        break;
    case Type::object:
        return out.add("<object>");
    }
    out.add("{");
    bool is_first = true;
    for (const auto& [key, one] : value.dict().entries) {
        if (!is_first) out.add(", ");
        is_first = false;
        write_repr(key, out);
        out.add(": ");
        write_repr(one, out);
    }
    out.add("}");
}

std::string to_text(const Value& value, Budget& budget) {
    if (value.is(Type::string)) return value.text();
    if (value.is(Type::undefined)) return "";
    Writer out{budget, {}};
    write_repr(value, out);
    return std::move(out.text);
}

void write_json(const Value& value, const JsonStyle& style, Writer& out, int level) {
    out.budget.step();
    switch (value.type()) {
    case Type::none:
        return out.add("null");
    case Type::boolean:
        return out.add(value.boolean() ? "true" : "false");
    case Type::integer:
    case Type::large_integer:
        return write_repr(value, out);
    case Type::floating:
        if (!std::isfinite(value.number())) break;
        return write_repr(value, out);
    case Type::string:
        return write_json_text(value.text(), style.ensure_ascii, out);
    case Type::dict:
        return write_json_dict(value.dict(), style, out, level);
    case Type::list:
        if (value.list().kind > ListKind::tuple) break;
        out.add("[");
        for (std::size_t i = 0; i < value.list().items.size(); ++i) {
            if (i > 0) out.add(style.between);
            write_json_line(style, level + 1, out);
            write_json(value.list().items[i], style, out, level + 1);
        }
        if (!value.list().items.empty()) write_json_line(style, level, out);
        return out.add("]");
    case Type::undefined:
    case Type::object:
        break;
    }
    if (value.is(Type::undefined) && value.undefined().why)
        throw TemplateError(*value.undefined().why + ", and JSON has no such value");
    throw TemplateError(fmt::format("a {} cannot be written as JSON", type_name(value)));
}

} // namespace entrodraft::model::jinja
