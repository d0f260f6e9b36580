// The methods of strings that chat templates may call, as in Python: see builtins.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

template <Side side> Value strip_method(const BuiltinCall& call) { // chars
    if (!call.has(0)) return call.text(std::string(stripped(call.self.text(), {}, side)));
    return call.text(std::string(stripped(call.self.text(), call.string(0), side)));
}

Value split_method(const BuiltinCall& call) { // sep maxsplit
    const std::string separator = call.string(0);
    if (call.has(0) && separator.empty()) call.refuse("the separator is empty");
    std::vector<Value> parts;
    split(call.self.text(), call.has(0) ? std::optional<std::string_view>(separator) : std::nullopt, call.whole(1, -1),
          [&](std::string_view part) {
              if (parts.size() % 8 == 0) call.in.budget().step();
              call.in.budget().produce(part.size() + kBytesOfText);
              parts.push_back(call.text(std::string(part)));
          });
    return Value(std::move(parts));
}

Value replace_method(const BuiltinCall& call) { // old new count
    for (const std::size_t i : {0, 1})
        if (call.arguments[i]->is(Type::undefined)) fail_undefined(*call.arguments[i]);
    const std::string before = call.in.text_of(*call.arguments[0]), after = call.in.text_of(*call.arguments[1]);
    if (before.empty()) call.refuse("what is replaced is empty");
    Writer out{call.in.budget(), {}};
    bool is_first = true;
    split(call.self.text(), before, call.whole(2, -1), [&](std::string_view part) {
        if (!is_first) out.add(after);
        is_first = false;
        out.add(part);
    });
    return call.text(std::move(out.text));
}

Value join_method(const BuiltinCall& call) {
    Writer out{call.in.budget(), {}};
    const Value items = call.in.as_list(*call.arguments[0]);
    bool is_first = true;
    for (const Value& item : items.list().items) {
        if (item.is(Type::undefined)) fail_undefined(item);
        if (!item.is(Type::string)) call.refuse(fmt::format("takes strings, not a {}", type_name(item)));
        if (!is_first) out.add(call.self.text());
        is_first = false;
        out.add(item.text());
    }
    return call.text(std::move(out.text));
}

Value format_method(const BuiltinCall& call) {
    Writer out{call.in.budget(), {}};
    std::size_t next = 0;
    for (std::string_view rest = call.self.text(); !rest.empty();) {
        const std::size_t at = std::min(rest.find_first_of("{}"), rest.size());
        out.add(rest.substr(0, at));
        rest.remove_prefix(at);
        if (rest.starts_with("{{") || rest.starts_with("}}")) {
            out.add(rest.substr(0, 1));
        } else if (rest.starts_with("{}")) {
            if (next == call.all.positional.size()) call.refuse("there is no argument for {}");
            out.add(call.in.text_of(call.all.positional[next++]));
        } else if (!rest.empty()) {
            const std::size_t last = std::min(rest.find('}'), rest.size() - 1);
            call.refuse(fmt::format("only {{}} is known here, not {}", rest.substr(0, last + 1)));
        }
        rest.remove_prefix(std::min<std::size_t>(2, rest.size()));
    }
    return call.text(std::move(out.text));
}

template <std::string (*change)(std::string_view)> Value changed_case(const BuiltinCall& call) {
    return call.text(change(call.costly_text()));
}

template <bool at_end> Value has_affix(const BuiltinCall& call) { // affix
    return Value(at_end ? call.self.text().ends_with(call.string(0)) : call.self.text().starts_with(call.string(0)));
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", "", 0, changed_case<capitalized>},
    {"endswith", "suffix", 1, has_affix<true>},
    {"format", "*", 0, format_method},
    {"join", "iterable", 1, join_method},
    {"lower", "", 0, changed_case<lower>},
    {"lstrip", "chars", 0, strip_method<Side::left>},
    {"replace", "old new count", 2, replace_method},
    {"rstrip", "chars", 0, strip_method<Side::right>},
    {"split", "sep maxsplit", 0, split_method},
    {"startswith", "prefix", 1, has_affix<false>},
    {"strip", "chars", 0, strip_method<Side::both>},
    {"upper", "", 0, changed_case<upper>},
};

} // namespace

std::span<const Builtin> string_methods() {
    return kStringMethods;
}

} // namespace entrodraft::model::jinja
