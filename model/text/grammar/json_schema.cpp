// Turns JSON schemas (draft 2020-12) into grammars of JSON texts that are valid. The grammars leave out some valid
// texts. Members come in the order of `properties`, and other members only where the schema has additionalProperties.
// Numbers have up to 15 digits. White space is a space, or a new line with up to 16 spaces. A keyword that a grammar
// cannot enforce is refused by name.
#include "model/text/grammar/expression.h"

#include "model/files/bad_file.h"
#include "model/files/utf8.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace entrodraft::model::grammar {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDigits = 15; // of whole numbers, and after the point: a double holds them
constexpr int kUnbounded = Expression::kUnbounded;

// Rules that any schema may call. Their names have a space; the names of a schema's own rules begin with #.
constexpr const char *kSpace = "white space", *kValue = "any value", *kObject = "any object", *kArray = "any array",
                     *kString = "any string", *kCharacter = "a character";

Expression any_of(std::vector<Expression> parts) {
    return choice(std::move(parts));
}

Expression digits(int least, int most) {
    return repeat(one_of({{'0', '9'}}), least, most);
}

Expression whole_number() {
    return any_of({literal("0"), sequence({one_of({{'1', '9'}}), digits(0, kDigits - 1)})});
}

Expression any_integer() {
    return sequence({optional(literal("-")), whole_number()});
}

Expression any_number() {
    return sequence({any_integer(), optional(sequence({literal("."), digits(1, kDigits)})),
                     optional(sequence({one_of({{'E', 'E'}, {'e', 'e'}}), optional(one_of({{'+', '+'}, {'-', '-'}})),
                                        digits(1, 2)}))});
}

Expression spaced(std::string mark) {
    return sequence({call(kSpace), literal(std::move(mark)), call(kSpace)});
}

// Returns part (, part)*, from `least` to `most` parts.
Expression listed(const Expression& part, int least, int most) {
    if (most == 0) return sequence({});
    const int rest_most = most == kUnbounded ? kUnbounded : most - 1;
    Expression list = sequence({part, repeat(sequence({spaced(","), part}), std::max(least - 1, 0), rest_most)});
    return least == 0 ? optional(std::move(list)) : list;
}

Expression between(const char* begin, Expression inner, const char* end) {
    return sequence({literal(begin), call(kSpace), std::move(inner), call(kSpace), literal(end)});
}

Expression quoted(Expression characters) {
    return sequence({literal("\""), std::move(characters), literal("\"")});
}

void add_common_rules(Rules& rules) {
    auto& by_name = rules.by_name;
    by_name[kSpace] = optional(any_of({literal(" "), sequence({literal("\n"), repeat(literal(" "), 0, 16)})}));
    const Expression hex = one_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
    const Expression code = any_of(
        {sequence({one_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), repeat(hex, 3, 3)}),
         sequence({one_of({{'D', 'D'}, {'d', 'd'}}), one_of({{'0', '7'}}), repeat(hex, 2, 2)})}); // without surrogates
    const Characters letters = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    by_name[kCharacter] =
        any_of({one_of(negated({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})),
                sequence({literal("\\"), any_of({one_of(letters), sequence({literal("u"), code})})})});
    by_name[kString] = quoted(repeat(call(kCharacter), 0, kUnbounded));
    by_name[kObject] = between("{", listed(sequence({call(kString), spaced(":"), call(kValue)}), 0, kUnbounded), "}");
    by_name[kArray] = between("[", listed(call(kValue), 0, kUnbounded), "]");
    by_name[kValue] = any_of(
        {call(kObject), call(kArray), call(kString), any_number(), literal("true"), literal("false"), literal("null")});
}

// ---- numbers within bounds ----

// Returns decimal digits from `low` to `high`, which have the same number of digits.
Expression digits_between(std::string_view low, std::string_view high) {
    if (low.empty()) return sequence({});
    const auto digit = [](char first, char last) {
        return one_of({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
    };
    const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
    const auto n_rest = static_cast<int>(low_rest.size());
    if (low[0] == high[0]) return sequence({digit(low[0], low[0]), digits_between(low_rest, high_rest)});
    const std::string lowest(low_rest.size(), '0'), highest(low_rest.size(), '9');
    char first = low[0], last = high[0];
    std::vector<Expression> parts;
    if (low_rest != lowest)
        parts.push_back(sequence({digit(first, first), digits_between(low_rest, highest)})), ++first;
    if (high_rest != highest) parts.push_back(sequence({digit(last, last), digits_between(lowest, high_rest)})), --last;
    if (first <= last) parts.push_back(sequence({digit(first, last), digits(n_rest, n_rest)}));
    return any_of(std::move(parts));
}

// Returns whole numbers without a sign; an expression that matches nothing if there are none.
Expression whole_between(std::int64_t low, std::int64_t high) {
    std::vector<Expression> parts;
    low = std::max<std::int64_t>(low, 0);
    for (std::int64_t begin = 0, end = 9; begin <= high; begin = end + 1, end = end * 10 + 9)
        if (const std::int64_t first = std::max(low, begin), last = std::min(high, end); first <= last)
            parts.push_back(digits_between(std::to_string(first), std::to_string(last)));
    return parts.empty() ? one_of({}) : any_of(std::move(parts));
}

Expression integers_between(std::int64_t low, std::int64_t high) {
    return any_of(
        {whole_between(low, high), sequence({literal("-"), whole_between(std::max<std::int64_t>(-high, 1), -low)})});
}

struct Bounds {
    std::optional<double> low, high;
    bool low_is_out = false, high_is_out = false; // exclusive
    bool is_on() const { return low || high; }
};

Expression integers_within(const Bounds& bounds, std::int64_t most) {
    std::int64_t low = -most, high = most;
    const auto limited = [&](double value) {
        return static_cast<std::int64_t>(
            std::clamp(value, -2.0 * static_cast<double>(most), 2.0 * static_cast<double>(most)));
    };
    if (bounds.low)
        low = std::max(low, limited(bounds.low_is_out ? std::floor(*bounds.low) + 1 : std::ceil(*bounds.low)));
    if (bounds.high)
        high = std::min(high, limited(bounds.high_is_out ? std::ceil(*bounds.high) - 1 : std::floor(*bounds.high)));
    return integers_between(low, high);
}

// Returns whole numbers, and numbers with a fraction between two whole ones that are within the bounds.
Expression numbers_within(const Bounds& bounds) {
    constexpr std::int64_t kMax = 999'999'999;
    std::int64_t low = -kMax, high = kMax;
    if (bounds.low) low = std::max(low, static_cast<std::int64_t>(std::clamp(std::ceil(*bounds.low), -1e12, 1e12)));
    if (bounds.high)
        high = std::min(high, static_cast<std::int64_t>(std::clamp(std::floor(*bounds.high), -1e12, 1e12)));
    const Expression fraction =
        sequence({literal("."), digits(0, 5), one_of({{'1', '9'}})}); // not an end of its interval
    return any_of({integers_within(bounds, kMax), sequence({whole_between(low, high - 1), fraction}),
                   sequence({literal("-"), whole_between(std::max<std::int64_t>(-high, 0), -low - 1), fraction})});
}

// ---- formats ----

const char* pattern_of_format(const std::string& format) {
    struct Known {
        const char *name, *pattern;
    };
    static constexpr const char* kDate =
        "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"; // days that all months have
    static constexpr const char* kTime =
        "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
    static constexpr const char* kDateTime = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5]"
                                             "[0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
    static constexpr Known kKnown[] = {
        {"date", kDate},
        {"time", kTime},
        {"date-time", kDateTime},
        {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        {"ipv4", "^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$"},
        {"email",
         "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)+$"},
    };
    const auto* const found =
        std::ranges::find(kKnown, format, [](const Known& known) { return std::string(known.name); });
    return found == std::end(kKnown) ? nullptr : found->pattern;
}

// ---- keywords ----

struct Keyword {
    const char* name;
    const char* type; // type that it is about; empty: any
};
constexpr Keyword kKeywords[] = {{"type", ""},
                                 {"enum", ""},
                                 {"const", ""},
                                 {"anyOf", ""},
                                 {"oneOf", ""},
                                 {"allOf", ""},
                                 {"$ref", ""},
                                 {"properties", "object"},
                                 {"required", "object"},
                                 {"additionalProperties", "object"},
                                 {"items", "array"},
                                 {"prefixItems", "array"},
                                 {"minItems", "array"},
                                 {"maxItems", "array"},
                                 {"uniqueItems", "array"},
                                 {"minLength", "string"},
                                 {"maxLength", "string"},
                                 {"pattern", "string"},
                                 {"format", "string"},
                                 {"minimum", "number"},
                                 {"maximum", "number"},
                                 {"exclusiveMinimum", "number"},
                                 {"exclusiveMaximum", "number"}};
constexpr const char* kAnnotations[] = {"title",     "description", "default",    "example",    "examples",
                                        "$schema",   "$id",         "$comment",   "deprecated", "readOnly",
                                        "writeOnly", "$defs",       "definitions"};

class SchemaReader {
  public:
    explicit SchemaReader(const Json& root) : root_(root) {
        add_common_rules(rules_);
        rules_.root = rule_of("");
        while (!unread_.empty()) { // of $ref, which may form circles
            const std::string pointer = unread_.front();
            unread_.pop_front();
            rules_.by_name["#" + pointer] = value_of(at(pointer), "#" + pointer);
        }
    }
    Rules take() { return std::move(rules_); }

  private:
    [[noreturn]] static void refuse(const std::string& place, const std::string& why) {
        throw BadGrammar(fmt::format("{}: {}", place.size() > 200 ? place.substr(0, 200) + "..." : place, why));
    }

    const Json& at(const std::string& pointer) const { return root_.at(Json::json_pointer(pointer)); }
    std::string rule_of(const std::string& pointer) {
        if (rules_.by_name.try_emplace("#" + pointer).second) unread_.push_back(pointer);
        return "#" + pointer;
    }

    Expression value_of(const Json& schema, const std::string& place);
    Expression value_of_type(const Json& schema, const std::string& type, const std::string& place);
    Expression string_of(const Json& schema, const std::string& place);
    Expression array_of(const Json& schema, const std::string& place);
    Expression object_of(const Json& schema, const std::string& place);
    Expression members_of(const Json& schema, const std::string& place);
    std::optional<Expression> other_member(const Json& schema, const std::string& place);
    Expression alternatives_of(const Json& list, const std::string& place, bool are_apart);
    std::vector<std::string> types_of(const Json& schema, const std::string& place) const;
    void check_keywords(const Json& schema, const std::vector<std::string>& types, const std::string& place) const;
    std::optional<std::string> pointer_of(const Json& schema, const std::string& place) const;
    const Json& resolved(const Json& schema, const std::string& place) const;
    bool are_apart(const Json& a, const Json& b, const std::string& place) const;
    static std::optional<std::vector<Json>> values_of(const Json& schema);
    static int count_of(const Json& schema, const char* keyword, int default_value, const std::string& place);
    static Bounds bounds_of(const Json& schema, const std::string& place);

    const Json& root_;
    Rules rules_;
    std::deque<std::string> unread_; // pointers
    int n_tails_ = 0;                // number of rules for members and items
};

bool is_annotation(const std::string& name) {
    return name.starts_with("x-") || std::ranges::find(kAnnotations, name) != std::end(kAnnotations);
}

// Keywords that define a value completely cannot be combined with others.
void SchemaReader::check_keywords(const Json& schema, const std::vector<std::string>& types,
                                  const std::string& place) const {
    std::string alone, other;
    for (const auto& [name, value] : schema.items()) {
        if (is_annotation(name)) continue;
        const auto* const keyword =
            std::ranges::find(kKeywords, name, [](const Keyword& each) { return std::string(each.name); });
        if (keyword == std::end(kKeywords)) refuse(place, "keyword " + in_quotes(name) + " is not supported");
        const bool is_any = *keyword->type == '\0';
        const bool concerns =
            is_any || std::ranges::find(types, keyword->type) != types.end() ||
            (std::string(keyword->type) == "number" && std::ranges::find(types, "integer") != types.end());
        if (!concerns) continue; // as in JSON Schema
        const bool says_all = is_any && name != "type";
        if (says_all && !alone.empty()) refuse(place, fmt::format("{} beside {} is not supported", name, alone));
        if (says_all) alone = name;
        const bool goes_along = name == "type" && (schema.contains("enum") || schema.contains("const"));
        if (!says_all && !goes_along) other = name;
    }
    if (!alone.empty() && !other.empty()) refuse(place, fmt::format("{} beside {} is not supported", other, alone));
}

std::vector<std::string> SchemaReader::types_of(const Json& schema, const std::string& place) const {
    const std::vector<std::string> all = {"object", "array", "string", "number", "integer", "boolean", "null"};
    if (schema.contains("type")) {
        std::vector<std::string> types;
        const Json& given = schema["type"];
        for (const Json& type : given.is_array() ? given : Json::array({given})) {
            if (!type.is_string() || std::ranges::find(all, type.get<std::string>()) == all.end())
                refuse(place,
                       "type must be object, array, string, number, integer, boolean or null, or a list of these");
            types.push_back(type);
        }
        if (types.empty()) refuse(place, "type must not be an empty list");
        return types;
    }
    std::vector<std::string> types;
    for (const Keyword& keyword : kKeywords)
        if (*keyword.type != '\0' && schema.contains(keyword.name) &&
            std::ranges::find(types, keyword.type) == types.end())
            types.emplace_back(keyword.type);
    return types;
}

Expression SchemaReader::value_of(const Json& schema, const std::string& place) {
    if (schema.is_boolean()) return schema.get<bool>() ? call(kValue) : one_of({});
    if (!schema.is_object()) refuse(place, "a schema must be an object, true or false");
    const std::vector<std::string> types = types_of(schema, place);
    check_keywords(schema, types, place);
    if (const auto pointer = pointer_of(schema, place)) return call(rule_of(*pointer));
    if (schema.contains("enum") && !schema["enum"].is_array()) refuse(place, "enum must be a list of values");
    if (const auto values = values_of(schema)) {
        std::vector<Expression> parts;
        for (const Json& value : *values) {
            const bool is_of_type =
                types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
                    return type == value.type_name() || (type == "integer" && value.is_number_integer());
                });
            if (is_of_type) parts.push_back(literal(value.dump()));
        }
        if (parts.empty()) refuse(place, "enum has no value of its type");
        return any_of(std::move(parts));
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
        if (!schema.contains(keyword)) continue;
        const Json& list = schema[keyword];
        const std::string within = place + "/" + keyword;
        if (!list.is_array() || list.empty()) refuse(within, "it must be a list of schemas");
        if (std::string_view(keyword) == "allOf" && list.size() > 1)
            refuse(within, "more than one schema is not supported");
        if (std::string_view(keyword) == "oneOf" && list.size() > 200)
            refuse(within, "more than 200 choices are not supported");
        return alternatives_of(list, within, std::string_view(keyword) == "oneOf");
    }
    if (types.empty()) return call(kValue);
    std::vector<Expression> parts;
    for (const std::string& type : types)
        parts.push_back(value_of_type(schema, type, place));
    return any_of(std::move(parts));
}

Expression SchemaReader::alternatives_of(const Json& list, const std::string& place, bool are_one) {
    std::vector<Expression> parts;
    for (std::size_t i = 0; i < list.size(); ++i) {
        for (std::size_t k = 0; are_one && k < i; ++k)
            if (!are_apart(list[k], list[i], place))
                refuse(place,
                       fmt::format("choices {} and {} may both be right; give them other types, or a required property "
                                   "of other constants, or anyOf",
                                   k, i));
        parts.push_back(value_of(list[i], fmt::format("{}/{}", place, i)));
    }
    return any_of(std::move(parts));
}

Expression SchemaReader::value_of_type(const Json& schema, const std::string& type, const std::string& place) {
    if (type == "object") return object_of(schema, place);
    if (type == "array") return array_of(schema, place);
    if (type == "string") return string_of(schema, place);
    if (type == "boolean") return any_of({literal("true"), literal("false")});
    if (type == "null") return literal("null");
    constexpr std::int64_t kMax = 999'999'999'999'999;
    const Bounds bounds = bounds_of(schema, place);
    if (type == "integer") return bounds.is_on() ? integers_within(bounds, kMax) : any_integer();
    return bounds.is_on() ? numbers_within(bounds) : any_number();
}

int SchemaReader::count_of(const Json& schema, const char* keyword, int default_value, const std::string& place) {
    if (!schema.contains(keyword)) return default_value;
    const Json& value = schema[keyword];
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < 0 || number != std::floor(number))
        refuse(place, std::string(keyword) + " must be a whole number from 0 on");
    if (number > kMaxRepeats) refuse(place, fmt::format("{} must be at most {}", keyword, kMaxRepeats));
    return static_cast<int>(number);
}

Bounds SchemaReader::bounds_of(const Json& schema, const std::string& place) {
    Bounds bounds;
    const auto read = [&](const char* keyword) {
        if (!schema[keyword].is_number()) refuse(place, std::string(keyword) + " must be a number");
        return schema[keyword].get<double>();
    };
    if (schema.contains("minimum")) bounds.low = read("minimum");
    if (schema.contains("maximum")) bounds.high = read("maximum");
    if (schema.contains("exclusiveMinimum"))
        if (const double low = read("exclusiveMinimum"); !bounds.low || low >= *bounds.low)
            bounds.low = low, bounds.low_is_out = true;
    if (schema.contains("exclusiveMaximum"))
        if (const double high = read("exclusiveMaximum"); !bounds.high || high <= *bounds.high)
            bounds.high = high, bounds.high_is_out = true;
    return bounds;
}

Expression SchemaReader::string_of(const Json& schema, const std::string& place) {
    const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
    const bool has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
    if (has_length + has_pattern + has_format > 1)
        refuse(place, "a length, pattern and format beside each other are not supported");
    if (has_length) {
        const int least = count_of(schema, "minLength", 0, place),
                  most = count_of(schema, "maxLength", kUnbounded, place);
        if (most != kUnbounded && most < least) refuse(place, "maxLength is less than minLength");
        return quoted(repeat(call(kCharacter), least, most));
    }
    if (!has_pattern && !has_format) return call(kString);
    const Json& given = schema[has_pattern ? "pattern" : "format"];
    if (!given.is_string()) refuse(place, "pattern and format must be strings");
    const char* const known = has_format ? pattern_of_format(given) : nullptr;
    if (has_format && !known) refuse(place, "format " + in_quotes(given.get<std::string>()) + " is not supported");
    try {
        return quoted(json_string_with(known ? std::string(known) : given.get<std::string>()));
    } catch (const BadGrammar& error) {
        refuse(place + "/pattern", error.what());
    }
}

Expression SchemaReader::array_of(const Json& schema, const std::string& place) {
    const Json none = Json::array();
    const Json& first = schema.contains("prefixItems") ? schema["prefixItems"] : none;
    if (!first.is_array()) refuse(place, "prefixItems must be a list of schemas");
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false) refuse(place, "uniqueItems is not supported");
    if (schema.contains("items") && schema["items"].is_array())
        refuse(place, "items must be a schema; a list of them is prefixItems");
    const int least = count_of(schema, "minItems", 0, place);
    const auto n_first = static_cast<int>(first.size());
    int most = count_of(schema, "maxItems", kUnbounded, place);
    if (schema.contains("items") && schema["items"] == false)
        most = most == kUnbounded ? n_first : std::min(most, n_first);
    if (most != kUnbounded && most < least) refuse(place, "fewer items are allowed than asked for");
    const Expression item = schema.contains("items") ? value_of(schema["items"], place + "/items") : call(kValue);
    if (n_first == 0) return between("[", listed(item, least, most), "]");
    // Rules for the items after i items, one for each i. The last one has all further items.
    std::vector<std::string> tails;
    for (int i = 0; i <= n_first; ++i)
        tails.push_back(fmt::format("items {}", n_tails_++));
    for (int i = 0; i <= n_first; ++i) {
        const bool may_go_on = most == kUnbounded || i < most;
        Expression tail;
        if (i == n_first) {
            const Expression more = sequence({spaced(","), item});
            tail = may_go_on ? repeat(more, std::max(least - i, 0), most == kUnbounded ? kUnbounded : most - i)
                             : sequence({});
        } else {
            const Expression own = value_of(first[i], fmt::format("{}/prefixItems/{}", place, i));
            std::vector<Expression> parts;
            if (i >= least) parts.push_back(sequence({}));
            if (may_go_on)
                parts.push_back(
                    sequence({i > 0 ? spaced(",") : sequence({}), own, call(tails[static_cast<std::size_t>(i) + 1])}));
            tail = any_of(std::move(parts));
        }
        rules_.by_name[tails[i]] = std::move(tail);
    }
    return between("[", call(tails[0]), "]");
}

// ---- objects ----

// Returns strings of JSON, without quotes, that are none of these names: the places where a text leaves their trie.
Expression other_names(const std::vector<std::u32string>& names, std::size_t depth) {
    std::vector<Expression> parts;
    std::map<char32_t, std::vector<std::u32string>> by_next;
    bool is_name = false;
    for (const std::u32string& name : names) {
        if (name.size() == depth)
            is_name = true;
        else
            by_next[name[depth]].push_back(name);
    }
    Characters known = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}; // an escaped character begins no other name
    for (const auto& [next, rest] : by_next)
        known.push_back({next, next});
    const Characters plain = negated({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    if (!is_name) parts.push_back(sequence({}));
    parts.push_back(sequence({one_of(negated(known)), repeat(one_of(plain), 0, kUnbounded)}));
    for (const auto& [next, rest] : by_next)
        parts.push_back(sequence({one_of(intersection({{next, next}}, plain)), other_names(rest, depth + 1)}));
    return any_of(std::move(parts));
}

std::u32string code_points(const std::string& text) {
    std::u32string points;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint found = code_point_at(text, at);
        points += found.value;
        at += found.n_bytes;
    }
    return points;
}

// Returns a member that `properties` does not name; nothing where there must not be one.
std::optional<Expression> SchemaReader::other_member(const Json& schema, const std::string& place) {
    if (!schema.contains("additionalProperties") || schema["additionalProperties"] == false) return std::nullopt;
    std::vector<std::u32string> names;
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, value] : properties.items()) {
        names.push_back(code_points(name));
        if (names.back().size() > kMaxNesting / 2)
            refuse(place, fmt::format("additionalProperties beside names longer than {} characters is not supported",
                                      kMaxNesting / 2));
    }
    const Expression value = value_of(schema["additionalProperties"], place + "/additionalProperties");
    return sequence(
        {quoted(names.empty() ? repeat(call(kCharacter), 0, kUnbounded) : other_names(names, 0)), spaced(":"), value});
}

Expression SchemaReader::object_of(const Json& schema, const std::string& place) {
    if (!schema.contains("properties") && !schema.contains("required") && !schema.contains("additionalProperties"))
        return call(kObject);
    return between("{", members_of(schema, place), "}");
}

// Returns a rule for the members from the i-th on: one if no member was written before it, and one if any was.
Expression SchemaReader::members_of(const Json& schema, const std::string& place) {
    const Json properties = schema.value("properties", Json::object());
    if (!properties.is_object()) refuse(place, "properties must be an object of schemas");
    const Json given = schema.value("required", Json::array());
    if (!given.is_array()) refuse(place, "required must be a list of names");
    std::set<std::string> required;
    for (const Json& name : given) {
        if (!name.is_string()) refuse(place, "required must be a list of names");
        required.insert(name.get<std::string>());
    }
    struct Member {
        Expression text;
        bool is_required;
    };
    std::vector<Member> members;
    for (const auto& [name, value] : properties.items())
        members.push_back(
            {sequence({literal(Json(name).dump()), spaced(":"), value_of(value, place + "/properties/" + name)}),
             required.erase(name) > 0});
    if (!required.empty()) refuse(place, "required " + in_quotes(*required.begin()) + " is not among properties");
    const std::optional<Expression> other = other_member(schema, place);
    const std::string tail = fmt::format("members {} ", n_tails_++);
    const auto rule_at = [&](std::size_t i, bool is_first) {
        return fmt::format("{}{}{}", tail, i, is_first ? " first" : "");
    };
    const std::size_t n = members.size();
    for (std::size_t i = 0; i <= n; ++i)
        for (const bool is_first : {true, false}) {
            if (is_first && i > 0 && members[i - 1].is_required) continue; // never reached
            Expression& made = rules_.by_name[rule_at(i, is_first)];
            if (i == n) {
                made = !other     ? sequence({})
                       : is_first ? listed(*other, 0, kUnbounded)
                                  : repeat(sequence({spaced(","), *other}), 0, kUnbounded);
                continue;
            }
            std::vector<Expression> parts = {
                sequence({is_first ? sequence({}) : spaced(","), members[i].text, call(rule_at(i + 1, false))})};
            if (!members[i].is_required) parts.push_back(call(rule_at(i + 1, is_first)));
            made = any_of(std::move(parts));
        }
    return call(rule_at(0, true));
}

// ---- references, and schemas that exclude each other ----

// Returns the target of $ref, within the schema.
std::optional<std::string> SchemaReader::pointer_of(const Json& schema, const std::string& place) const {
    if (!schema.is_object() || !schema.contains("$ref")) return std::nullopt;
    if (!schema["$ref"].is_string()) refuse(place, "$ref must be a string");
    const std::string given = schema["$ref"];
    if (!given.starts_with("#") || (given.size() > 1 && given[1] != '/'))
        refuse(place, "$ref " + in_quotes(given) + " does not point into the schema, as #/$defs/NAME does");
    const std::string pointer = given.substr(1);
    try {
        if (root_.contains(Json::json_pointer(pointer))) return pointer;
    } catch (const Json::exception&) { // not a pointer
    }
    refuse(place, "$ref " + in_quotes(given) + " points to nothing");
}

const Json& SchemaReader::resolved(const Json& schema, const std::string& place) const {
    const Json* found = &schema;
    for (int i = 0; i < kMaxNesting; ++i) {
        const auto pointer = pointer_of(*found, place);
        if (!pointer) break;
        found = &at(*pointer);
    }
    return *found;
}

std::optional<std::vector<Json>> SchemaReader::values_of(const Json& schema) {
    if (!schema.is_object()) return std::nullopt;
    if (schema.contains("const")) return std::vector<Json>{schema["const"]};
    if (!schema.contains("enum") || !schema["enum"].is_array()) return std::nullopt;
    return std::vector<Json>(schema["enum"].begin(), schema["enum"].end());
}

bool SchemaReader::are_apart(const Json& a, const Json& b, const std::string& place) const {
    const Json &one = resolved(a, place), &other = resolved(b, place);
    if (!one.is_object() || !other.is_object()) return false;
    const auto values = values_of(one), other_values = values_of(other);
    if (values && other_values)
        return std::ranges::none_of(
            *values, [&](const Json& value) { return std::ranges::find(*other_values, value) != other_values->end(); });
    if (!one.contains("type") || !other.contains("type")) return false;
    const std::vector<std::string> types = types_of(one, place), other_types = types_of(other, place);
    const auto kind = [](const std::string& type) { return type == "integer" ? std::string("number") : type; };
    const bool share_type = std::ranges::any_of(types, [&](const std::string& type) {
        return std::ranges::any_of(other_types, [&](const std::string& each) { return kind(each) == kind(type); });
    });
    if (!share_type) return true;
    if (types != std::vector<std::string>{"object"} || other_types != types) return false;
    const Json none = Json::object(), no_list = Json::array();
    const auto is_required = [&](const Json& schema, const std::string& name) {
        const Json list = schema.value("required", no_list);
        return list.is_array() && std::ranges::find(list, Json(name)) != list.end();
    };
    const Json properties = one.value("properties", none), others = other.value("properties", none);
    if (!properties.is_object() || !others.is_object()) return false;
    for (const auto& [name, schema] : properties.items()) {
        if (!others.contains(name) || !is_required(one, name) || !is_required(other, name)) continue;
        const auto own = values_of(resolved(schema, place)), theirs = values_of(resolved(others[name], place));
        if (own && theirs && std::ranges::none_of(*own, [&](const Json& value) {
                return std::ranges::find(*theirs, value) != theirs->end();
            }))
            return true;
    }
    return false;
}

} // namespace

Rules parse_json_schema(std::string_view text) {
    Json root;
    const auto bounded = [](int depth, Json::parse_event_t, Json&) {
        if (depth > kMaxNesting) throw BadGrammar(fmt::format("it is nested deeper than {}", kMaxNesting));
        return true;
    };
    try {
        root = Json::parse(text, bounded);
    } catch (const Json::exception& error) {
        throw BadGrammar(std::string("it is no JSON: ") + error.what());
    }
    try {
        return SchemaReader(root).take();
    } catch (const Json::exception& error) {
        throw BadGrammar(error.what());
    }
}

} // namespace entrodraft::model::grammar
