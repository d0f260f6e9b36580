// Python's two ways to put values into a text, as far as templates use them: "%s %05.2f" % values, and
// "{} {name:>8}".format(..). See builtins.h.
#include "model/files/utf8.h"
#include "model/text/chat/builtins.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
    std::string fill = " ";
    char align = 0; // <, >, ^, or = behind the sign
    char sign = '-';
    bool has_prefix = false; // 0x
    bool has_commas = false;
    int width = 0;
    int precision = -1;
    char type = 0;
};

int read_number(std::string_view& text) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc::result_out_of_range || number > 1000) throw TemplateError("a format is wider than 1000");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

void insert_commas(std::string& digits) {
    const std::size_t n_whole = std::min(digits.find('.'), digits.size());
    for (std::size_t at = n_whole; at > 3; at -= 3)
        digits.insert(at - 3, ",");
}

// The digits without sign.
std::string number_text(const Value& value, const FormatSpec& spec) {
    const char type = spec.type == 0 && value.is(Type::floating) && spec.precision >= 0 ? 'g' : spec.type;
    if (type == 0 && value.is(Type::floating)) return float_text(std::abs(value.number()));
    const double number = std::abs(value.number());
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    switch (type) {
    case 'f':
    case 'F':
        return fmt::format("{:.{}f}", number, precision);
    case '%':
        return fmt::format("{:.{}f}%", number * 100, precision);
    case 'e':
        return fmt::format("{:.{}e}", number, precision);
    case 'E':
        return fmt::format("{:.{}E}", number, precision);
    case 'g':
    case 'G':
        return fmt::format("{:.{}g}", number, std::max(precision, 1));
    default:
        break;
    }
    if (value.is(Type::floating)) throw TemplateError(fmt::format("the format '{}' is not for a float", type));
    const auto whole =
        value.whole() < 0 ? 0 - static_cast<std::uint64_t>(value.whole()) : static_cast<std::uint64_t>(value.whole());
    switch (type) {
    case 'x':
        return (spec.has_prefix ? "0x" : "") + fmt::format("{:x}", whole);
    case 'X':
        return (spec.has_prefix ? "0X" : "") + fmt::format("{:X}", whole);
    case 'o':
        return (spec.has_prefix ? "0o" : "") + fmt::format("{:o}", whole);
    case 'b':
        return (spec.has_prefix ? "0b" : "") + fmt::format("{:b}", whole);
    case 'c':
        return utf8(std::u32string(1, static_cast<char32_t>(std::min<std::uint64_t>(whole, 0xfffd))));
    case 0:
    case 'd':
    case 'n':
        return fmt::format("{}", whole);
    default:
        throw TemplateError(fmt::format("the format '{}' is not for a whole number", type));
    }
}

std::string formatted(Interpreter& in, const Value& value, FormatSpec spec) {
    const bool is_large = value.is(Type::large_integer) && (spec.type == 'd' || (spec.type == 0 && spec.precision < 0));
    const bool is_number = value.is_number() && spec.type != 's' && !(value.is(Type::boolean) && spec.type == 0);
    std::string text, sign;
    if (is_number) {
        text = number_text(value, spec);
        if (spec.has_commas) insert_commas(text);
        sign = value.number() < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    } else if (is_large) {
        text = value.decimal();
        sign = spec.sign == '-' ? "" : std::string(1, spec.sign);
        if (text.starts_with('-')) text.erase(0, 1), sign = "-";
        if (spec.has_commas) insert_commas(text);
    } else {
        if (spec.type != 0 && spec.type != 's')
            throw TemplateError(fmt::format("the format '{}' is not for a {}", spec.type, type_name(value)));
        text = in.text_of(value);
        std::size_t end = 0;
        for (int i = 0; i < spec.precision && end < text.size(); ++i)
            end += code_point_at(text, end).n_bytes;
        if (spec.precision >= 0) text.resize(end);
    }
    const std::size_t n = length(text) + sign.size(), width = static_cast<std::size_t>(spec.width);
    const std::size_t missing = width > n ? width - n : 0;
    const auto filling = [&](std::size_t times) {
        std::string filled;
        for (std::size_t i = 0; i < times; ++i)
            filled += spec.fill;
        return filled;
    };
    const char align = spec.align ? spec.align : is_number || is_large ? '>' : '<';
    if (align == '=') return sign + filling(missing) + text;
    const std::size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    return filling(before) + sign + text + filling(missing - before);
}

FormatSpec brace_spec(std::string_view text) {
    FormatSpec spec;
    const auto take = [&](std::string_view chars) {
        if (text.empty() || chars.find(text[0]) == std::string_view::npos) return '\0';
        const char taken = text[0];
        text.remove_prefix(1);
        return taken;
    };
    const std::u32string points = code_points(text.substr(0, 8));
    if (points.size() > 1 && std::u32string_view(U"<>=^").find(points[1]) != std::u32string_view::npos) {
        spec.fill = utf8(points.substr(0, 1));
        text.remove_prefix(spec.fill.size());
    }
    spec.align = take("<>=^");
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.has_prefix = take("#") != 0;
    if (take("0") != 0 && spec.align == 0) {
        spec.fill = "0";
        spec.align = '=';
    }
    spec.width = read_number(text);
    spec.has_commas = take(",") != 0;
    if (take(".") != 0) spec.precision = read_number(text);
    if (!text.empty()) spec.type = text[0];
    if (text.size() > 1) throw TemplateError(fmt::format("the format '{}' is not known", text));
    return spec;
}

// What "name", "0.a" or "[key]" of a field stands for; empty: the next argument.
Value field_value(Interpreter& in, std::string_view path, const CallArguments& arguments, std::size_t& next) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value;
    if (first.find_first_not_of("0123456789") == std::string_view::npos) {
        std::string_view digits = first;
        const std::size_t i = first.empty() ? next++ : static_cast<std::size_t>(read_number(digits));
        if (i >= arguments.positional.size()) throw TemplateError(fmt::format("format: there is no argument {}", i));
        value = arguments.positional[i];
    } else {
        const auto found = std::ranges::find(arguments.named, first, &Variables::value_type::first);
        if (found == arguments.named.end())
            throw TemplateError(fmt::format("format: there is no argument '{}'", first));
        value = found->second;
    }
    for (path.remove_prefix(end); !path.empty();) {
        const bool is_attribute = path[0] == '.';
        const std::size_t close = is_attribute ? std::min(path.find_first_of(".[", 1), path.size()) : path.find(']');
        if (close == std::string_view::npos) throw TemplateError("format: a [ is not closed");
        const std::string_view name = path.substr(1, close - 1);
        std::string_view digits = name;
        const bool is_index =
            !is_attribute && !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
        value = is_attribute ? in.attribute(value, name)
                : is_index   ? in.item(value, Value(std::int64_t{read_number(digits)}))
                             : in.item(value, Value(name));
        path.remove_prefix(close + (is_attribute ? 0 : 1));
    }
    return value;
}

std::string repr(Interpreter& in, const Value& value) {
    Writer out{in.budget(), {}};
    write_repr(value, out);
    return out.text;
}

} // namespace

std::string brace_formatted(Interpreter& in, std::string_view format, const CallArguments& arguments) {
    Writer out{in.budget(), {}};
    std::size_t next = 0;
    while (!format.empty()) {
        const std::size_t at = std::min(format.find_first_of("{}"), format.size());
        out.add(format.substr(0, at));
        format.remove_prefix(at);
        if (format.empty()) break;
        if (format.starts_with("{{") || format.starts_with("}}")) {
            out.add(format.substr(0, 1));
            format.remove_prefix(2);
            continue;
        }
        const std::size_t end = format.find('}');
        if (format[0] == '}' || end == std::string_view::npos) throw TemplateError("format: a single { or }");
        std::string_view field = format.substr(1, end - 1);
        format.remove_prefix(end + 1);
        const std::size_t colon = std::min(field.find(':'), field.size());
        const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
        field = field.substr(0, colon);
        const bool has_repr = field.ends_with("!r");
        if (has_repr || field.ends_with("!s")) field.remove_suffix(2);
        const Value value = field_value(in, field, arguments, next);
        out.add(formatted(in, has_repr ? Value(repr(in, value)) : value, brace_spec(spec)));
    }
    return std::move(out.text);
}

namespace {

// Flags, width and precision behind a "%", up to its letter. Takes them away.
FormatSpec take_percent_spec(std::string_view& format) {
    FormatSpec spec;
    spec.align = '>';
    for (; !format.empty() && std::string_view("-+ 0#").find(format[0]) != std::string_view::npos;
         format.remove_prefix(1)) {
        if (format[0] == '-')
            spec.align = '<';
        else if (format[0] == '#')
            spec.has_prefix = true;
        else if (format[0] != '0')
            spec.sign = format[0];
        else if (spec.align != '<')
            spec.align = '=', spec.fill = "0";
    }
    spec.width = read_number(format);
    if (format.starts_with('.')) {
        format.remove_prefix(1);
        spec.precision = read_number(format);
    }
    if (format.empty()) throw TemplateError("a % is followed by no letter");
    return spec;
}

} // namespace

std::string percent_formatted(Interpreter& in, std::string_view format, const Value& values) {
    Writer out{in.budget(), {}};
    const bool is_tuple = values.is(Type::list) && values.list().kind == ListKind::tuple;
    const std::vector<Value> list = is_tuple ? values.list().items : std::vector<Value>{values};
    std::size_t next = 0;
    const bool is_named = values.is(Type::dict);
    while (!format.empty()) {
        const std::size_t at = std::min(format.find('%'), format.size());
        out.add(format.substr(0, at));
        if (at == format.size()) break;
        format.remove_prefix(at + 1);
        if (format.starts_with('%')) {
            out.add("%");
            format.remove_prefix(1);
            continue;
        }
        const Value* value = nullptr;
        if (format.starts_with('(')) {
            const std::size_t close = format.find(')');
            if (!is_named || close == std::string_view::npos) throw TemplateError("% of a name needs a dict");
            value = values.dict().find(format.substr(1, close - 1));
            format.remove_prefix(close + 1);
        }
        FormatSpec spec = take_percent_spec(format);
        const char letter = format[0];
        format.remove_prefix(1);
        if (!value && next < list.size()) value = &list[next++];
        if (!value) throw TemplateError("% has fewer values than the format asks for");
        spec.type = letter == 'r' ? 's' : letter == 'i' || letter == 'u' ? 'd' : letter;
        if (spec.type == 's') spec.fill = " ";
        const bool truncates = spec.type == 'd' && value->is(Type::floating) && std::abs(value->number()) < 9e18;
        const Value shown = letter == 'r' ? Value(repr(in, *value))
                            : truncates   ? Value(static_cast<std::int64_t>(value->number()))
                                          : *value;
        out.add(formatted(in, shown, spec));
    }
    const bool may_be_left =
        is_named || values.is(Type::undefined) || (values.is(Type::list) && !is_tuple); // as Python
    if (!may_be_left && next < list.size()) throw TemplateError("% has more values than the format asks for");
    return std::move(out.text);
}

} // namespace entrodraft::model::jinja
