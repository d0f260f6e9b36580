// The methods of strings that chat templates may call, as Python's: see builtins.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

template <std::u32string (*change)(std::u32string_view)> Value changed_case(const BuiltinCall& call) {
    return call.text(utf8(change(call.points())));
}

template <Side side> Value strip_method(const BuiltinCall& call) { // chars
    if (!call.has(0)) return call.text(std::string(stripped(call.self.text(), {}, side)));
    return call.text(std::string(stripped(call.self.text(), call.string(0), side)));
}

// Parts of the self, paid for one by one.
class Parts {
  public:
    explicit Parts(const BuiltinCall& call) : call_(call) {}
    void add(std::string_view part) {
        if (items_.size() % 8 == 0) call_.in.budget().step();
        call_.in.budget().produce(part.size() + kBytesOfText);
        items_.push_back(call_.text(std::string(part)));
    }
    EachPart adder() {
        return [this](std::string_view part) { add(part); };
    }
    Value list(bool is_reversed = false) {
        if (is_reversed) std::ranges::reverse(items_);
        return Value(std::move(items_));
    }
    Value tuple() { return Value(std::move(items_), ListKind::tuple); }

  private:
    const BuiltinCall& call_;
    std::vector<Value> items_;
};

template <bool from_right> Value split_method(const BuiltinCall& call) { // sep maxsplit
    const std::string separator = call.string(0);
    if (call.has(0) && separator.empty()) call.refuse("the separator is empty");
    Parts parts(call);
    split(call.self.text(), call.has(0) ? std::optional<std::string_view>(separator) : std::nullopt, call.whole(1, -1),
          from_right, parts.adder());
    return parts.list(from_right);
}

Value splitlines_method(const BuiltinCall& call) { // keepends
    Parts parts(call);
    split_lines(call.self.text(), call.flag(0), parts.adder());
    return parts.list();
}

template <bool from_right> Value partition_method(const BuiltinCall& call) { // sep
    const std::string separator = call.string(0);
    const std::string_view text = call.self.text();
    if (separator.empty()) call.refuse("the separator is empty");
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    Parts parts(call);
    const bool is_there = at != std::string_view::npos;
    parts.add(is_there ? text.substr(0, at) : from_right ? "" : text);
    parts.add(is_there ? separator : "");
    parts.add(is_there ? text.substr(at + separator.size()) : from_right ? text : "");
    return parts.tuple();
}

// The bytes [begin, end) that Python's start and end, arguments 1 and 2, cut out of the text.
std::pair<std::size_t, std::size_t> cut(const BuiltinCall& call) {
    const std::string& text = call.self.text();
    if (!call.has(1) && !call.has(2)) return {0, text.size()};
    const auto n = static_cast<std::int64_t>(length(text));
    const auto bytes_before = [&](std::int64_t place) {
        if (place < 0) place = std::max<std::int64_t>(place + n, 0);
        std::size_t at = 0;
        for (std::int64_t i = 0; i < place && at < text.size(); ++i)
            do
                ++at;
            while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
        return at;
    };
    return {bytes_before(call.whole(1, 0)), bytes_before(call.whole(2, n))};
}

template <bool at_end> Value affix_method(const BuiltinCall& call) { // prefix start end
    const auto [begin, end] = cut(call);
    const std::string_view text = std::string_view(call.self.text()).substr(begin, end > begin ? end - begin : 0);
    const Value& affix = *call.arguments[0];
    if (!affix.is(Type::list) || affix.list().kind != ListKind::tuple)
        return Value(at_end ? text.ends_with(call.string(0)) : text.starts_with(call.string(0)));
    return Value(std::ranges::any_of(affix.list().items, [&](const Value& one) {
        if (!one.is(Type::string)) call.refuse(fmt::format("takes strings, not a {}", type_name(one)));
        return at_end ? text.ends_with(one.text()) : text.starts_with(one.text());
    }));
}

template <bool from_right, bool must_find> Value find_method_of_text(const BuiltinCall& call) { // sub start end
    const auto [begin, end] = cut(call);
    const std::string_view text = std::string_view(call.self.text()).substr(0, std::max(begin, end));
    const std::string part = call.string(0);
    std::size_t at = from_right ? text.rfind(part) : text.find(part, begin);
    if (at != std::string_view::npos && at < begin) at = std::string_view::npos;
    if (must_find && at == std::string_view::npos) call.refuse("the text is not there");
    if (at == std::string_view::npos) return Value(std::int64_t{-1});
    return Value(static_cast<std::int64_t>(length(text.substr(0, at))));
}

Value count_method(const BuiltinCall& call) { // sub start end
    const auto [begin, end] = cut(call);
    const std::string_view text = std::string_view(call.self.text()).substr(begin, end > begin ? end - begin : 0);
    const std::string part = call.string(0);
    if (part.empty()) return Value(static_cast<std::int64_t>(length(text)) + 1);
    std::int64_t n = -1;
    split(text, part, -1, false, [&](std::string_view) { ++n; });
    return Value(n);
}

Value replace_method(const BuiltinCall& call) { // old new count
    const auto as_text = [&](std::size_t i) {
        if (call.arguments[i]->is(Type::undefined)) fail_undefined(*call.arguments[i]);
        return call.in.text_of(*call.arguments[i]);
    };
    const std::string before = as_text(0), after = as_text(1);
    const std::int64_t most = call.whole(2, -1);
    const std::string_view text = call.self.text();
    Writer out{call.in.budget(), {}};
    if (!before.empty()) {
        bool is_first = true;
        split(text, before, most, false, [&](std::string_view part) {
            if (!is_first) out.add(after);
            is_first = false;
            out.add(part);
        });
        return call.text(std::move(out.text));
    }
    std::int64_t n = 0;
    for (const char32_t c : call.points()) {
        if (most < 0 || n++ < most) out.add(after);
        out.add(utf8(std::u32string_view(&c, 1)));
    }
    if (most < 0 || n < most) out.add(after);
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

enum class Fill { left, right, both, zeros };
template <Fill fill> Value pad_method(const BuiltinCall& call) { // width fillchar
    const std::string& text = call.self.text();
    const std::string character = fill == Fill::zeros ? "0" : call.string(1, " ");
    if (length(character) != 1) call.refuse("fills with one character");
    const std::int64_t missing = std::min(call.whole(0, fill == Fill::both ? 80 : 0), Budget::kMaxBytes) -
                                 static_cast<std::int64_t>(length(text));
    if (missing <= 0) return call.self;
    const auto n = static_cast<std::size_t>(missing);
    call.in.budget().produce(n * character.size());
    const auto filling = [&](std::size_t times) {
        std::string filled;
        for (std::size_t i = 0; i < times; ++i)
            filled += character;
        return filled;
    };
    // As Python does, where the margins differ by one.
    const std::size_t on_left = fill == Fill::both   ? n / 2 + (n & static_cast<std::size_t>(call.whole(0, 80)) & 1)
                                : fill == Fill::left ? 0
                                                     : n;
    const std::size_t sign = fill == Fill::zeros && (text.starts_with('-') || text.starts_with('+')) ? 1 : 0;
    return call.text(text.substr(0, sign) + filling(on_left) + text.substr(sign) + filling(n - on_left));
}

template <bool (*holds)(char32_t)> Value all_are(const BuiltinCall& call) {
    const std::u32string points = call.points();
    return Value(!points.empty() && std::ranges::all_of(points, holds));
}

bool is_letter_or_digit(char32_t c) {
    return is_letter(c) || is_digit(c);
}

template <bool (*of_case)(char32_t), bool (*of_other)(char32_t)> Value is_cased(const BuiltinCall& call) {
    const std::u32string points = call.points();
    return Value(std::ranges::any_of(points, of_case) && std::ranges::none_of(points, of_other));
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
    {"casefold", "", 0, changed_case<case_folded>},
    {"center", "width fillchar", 0, pad_method<Fill::both>},
    {"count", "sub start end", 1, count_method},
    {"endswith", "suffix start end", 1, affix_method<true>},
    {"find", "sub start end", 1, find_method_of_text<false, false>},
    {"format", "*", 0,
     [](const BuiltinCall& call) { return call.text(brace_formatted(call.in, call.self.text(), call.all)); }},
    {"index", "sub start end", 1, find_method_of_text<false, true>},
    {"isalnum", "", 0, all_are<is_letter_or_digit>},
    {"isalpha", "", 0, all_are<is_letter>},
    {"isascii", "", 0,
     [](const BuiltinCall& call) { return Value(length(call.self.text()) == call.self.text().size()); }},
    {"isdecimal", "", 0, all_are<is_digit>},
    {"isdigit", "", 0, all_are<is_digit>},
    {"islower", "", 0, is_cased<is_lower, is_upper>},
    {"isnumeric", "", 0, all_are<is_digit>},
    {"isspace", "", 0, all_are<is_space>},
    {"isupper", "", 0, is_cased<is_upper, is_lower>},
    {"join", "iterable", 1, join_method},
    {"ljust", "width fillchar", 1, pad_method<Fill::left>},
    {"lower", "", 0, changed_case<lower>},
    {"lstrip", "chars", 0, strip_method<Side::left>},
    {"partition", "sep", 1, partition_method<false>},
    {"removeprefix", "prefix", 1, remove_method<false>},
    {"removesuffix", "suffix", 1, remove_method<true>},
    {"replace", "old new count", 2, replace_method},
    {"rfind", "sub start end", 1, find_method_of_text<true, false>},
    {"rindex", "sub start end", 1, find_method_of_text<true, true>},
    {"rjust", "width fillchar", 1, pad_method<Fill::right>},
    {"rpartition", "sep", 1, partition_method<true>},
    {"rsplit", "sep maxsplit", 0, split_method<true>},
    {"rstrip", "chars", 0, strip_method<Side::right>},
    {"split", "sep maxsplit", 0, split_method<false>},
    {"splitlines", "keepends", 0, splitlines_method},
    {"startswith", "prefix start end", 1, affix_method<false>},
    {"strip", "chars", 0, strip_method<Side::both>},
    {"swapcase", "", 0, changed_case<case_swapped>},
    {"title", "", 0, changed_case<titled>},
    {"upper", "", 0, changed_case<upper>},
    {"zfill", "width", 1, pad_method<Fill::zeros>},
};

} // namespace

std::span<const Builtin> string_methods() {
    return kStringMethods;
}

} // namespace entrodraft::model::jinja
