// The methods of strings that chat templates may call, as in Python: see builtins.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

template <Side side> Value strip_method(const BuiltinCall& call) { // chars
    if (!call.has(0)) return call.text(std::string(stripped(call.self.text(), {}, side)));
    return call.text(std::string(stripped(call.self.text(), call.string(0), side)));
}

// Parts of the self, charged for one by one.
class Parts {
  public:
    explicit Parts(const BuiltinCall& call) : call_(call) {}
    EachPart adder() {
        return [this](std::string_view part) {
            if (items_.size() % 8 == 0) call_.in.budget().step();
            call_.in.budget().produce(part.size() + kBytesOfText);
            items_.push_back(call_.text(std::string(part)));
        };
    }
    Value list() { return Value(std::move(items_)); }

  private:
    const BuiltinCall& call_;
    std::vector<Value> items_;
};

Value split_method(const BuiltinCall& call) { // sep maxsplit
    const std::string separator = call.string(0);
    if (call.has(0) && separator.empty()) call.refuse("the separator is empty");
    Parts parts(call);
    split(call.self.text(), call.has(0) ? std::optional<std::string_view>(separator) : std::nullopt, call.whole(1, -1),
          parts.adder());
    return parts.list();
}

Value splitlines_method(const BuiltinCall& call) {
    Parts parts(call);
    split_lines(call.self.text(), parts.adder());
    return parts.list();
}

Value find_in_text(const BuiltinCall& call) { // sub
    const std::string_view text = call.self.text();
    const std::size_t at = text.find(call.string(0));
    return Value(at == std::string_view::npos ? -1 : static_cast<std::int64_t>(length(text.substr(0, at))));
}

Value count_method(const BuiltinCall& call) { // sub
    const std::string part = call.string(0);
    if (part.empty()) call.refuse("the part is empty");
    std::int64_t n = -1;
    split(call.self.text(), part, -1, [&](std::string_view) { ++n; });
    return Value(n);
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

// Returns the argument for a field: "", "0" or "name".
const Value& argument_of_field(const BuiltinCall& call, std::string_view field, std::size_t& next) {
    if (field.find_first_of(":!.[") != std::string_view::npos)
        call.refuse(fmt::format("only {{}}, {{0}} and {{name}} are known here, not {{{}}}", field));
    const auto& [positional, named] = call.all;
    if (field.find_first_not_of("0123456789") == std::string_view::npos) {
        std::size_t i = SIZE_MAX;
        std::from_chars(field.data(), field.data() + field.size(), i);
        if (field.empty()) i = next++;
        if (i < positional.size()) return positional[i];
    }
    const auto found = std::ranges::find(named, field, &Variables::value_type::first);
    if (found == named.end()) call.refuse(fmt::format("there is no argument for {{{}}}", field));
    return found->second;
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
            rest.remove_prefix(2);
        } else if (!rest.empty()) {
            const std::size_t end = rest.find('}');
            if (rest[0] == '}' || end == std::string_view::npos) call.refuse("a single { or }");
            out.add(call.in.text_of(argument_of_field(call, rest.substr(1, end - 1), next)));
            rest.remove_prefix(end + 1);
        }
    }
    return call.text(std::move(out.text));
}

template <std::string (*change)(std::string_view)> Value changed_case(const BuiltinCall& call) {
    return call.text(change(call.costly_text()));
}

template <bool at_end> Value has_affix(const BuiltinCall& call) { // affix
    return Value(at_end ? call.self.text().ends_with(call.string(0)) : call.self.text().starts_with(call.string(0)));
}

template <bool at_end> Value remove_method(const BuiltinCall& call) { // affix
    std::string text = call.self.text();
    const std::string affix = call.string(0);
    if (at_end ? text.ends_with(affix) : text.starts_with(affix))
        text.erase(at_end ? text.size() - affix.size() : 0, affix.size());
    return call.text(std::move(text));
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", "", 0, changed_case<capitalized>},
    {"count", "sub", 1, count_method},
    {"endswith", "suffix", 1, has_affix<true>},
    {"find", "sub", 1, find_in_text},
    {"format", "*", 0, format_method},
    {"isdigit", "", 0,
     [](const BuiltinCall& call) {
         const std::u32string points = code_points(call.costly_text());
         return Value(!points.empty() && std::ranges::all_of(points, is_digit));
     }},
    {"join", "iterable", 1, join_method},
    {"lower", "", 0, changed_case<lower>},
    {"lstrip", "chars", 0, strip_method<Side::left>},
    {"removeprefix", "prefix", 1, remove_method<false>},
    {"removesuffix", "suffix", 1, remove_method<true>},
    {"replace", "old new count", 2, replace_method},
    {"rstrip", "chars", 0, strip_method<Side::right>},
    {"split", "sep maxsplit", 0, split_method},
    {"splitlines", "", 0, splitlines_method},
    {"startswith", "prefix", 1, has_affix<false>},
    {"strip", "chars", 0, strip_method<Side::both>},
    {"title", "", 0,
     [](const BuiltinCall& call) { return call.text(titled(call.costly_text(), WordStarts::behind_others)); }},
    {"upper", "", 0, changed_case<upper>},
};

} // namespace

std::span<const Builtin> string_methods() {
    return kStringMethods;
}

} // namespace entrodraft::model::jinja
