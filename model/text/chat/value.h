// The values that a chat template computes with, and the Python operations on all of them: truth, equality, order,
// printing, JSON. Lists and dicts never change once they are made, as in transformers' sandbox. Values that templates
// change or call (namespaces, macros, loops) are Objects, which the interpreter owns. So values contain no cycles.
// Called by the interpreter (interpreter.h), and by code that gives a conversation to a template.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace entrodraft::model::jinja {

// The reason why a template cannot be read or rendered. The parser and the interpreter add the line.
class TemplateError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The rest of a rendering's budget. Values are charged for before they take memory. Throws TemplateError when the
// budget is used up.
class Budget {
  public:
    static constexpr std::int64_t kMaxSteps = 2'000'000;
    static constexpr std::int64_t kMaxBytes = std::int64_t{128} << 20;
    void step(std::size_t n = 1);
    void produce(std::size_t n_bytes);
    void search(std::size_t n_bytes, std::size_t n_sought) { step(n_bytes * n_sought / 2048 + n_sought / 16); }

  private:
    std::int64_t steps_ = kMaxSteps;
    std::int64_t bytes_ = kMaxBytes;
};

// A text under construction.
struct Writer {
    Budget& budget;
    std::string text;
    void add(std::string_view more) {
        budget.produce(more.size());
        text += more;
    }
};

class Value;
struct Object;
struct None {};
struct Undefined {
    std::shared_ptr<const std::string> why; // "'x' is undefined", for errors
};
struct Text {
    std::string utf8;
    bool is_markup = false; // result of the filter safe: plain text that is added to it is escaped
};
enum class ListKind { list, tuple, range, view, generator };
struct List {
    std::vector<Value> items;
    ListKind kind = ListKind::list;
    int depth = 1;
    mutable bool is_consumed = false; // generators give their items once
};
struct Dict {
    std::vector<std::pair<Value, Value>> entries;
    std::unordered_map<std::string, std::size_t> places; // of entries, by key_of
    int depth = 1;

    const Value* find(const Value& key) const; // throws where the value cannot be a key
    const Value* find(std::string_view key) const;
    void set(Value key, Value value);
};

// A whole number that does not fit 64 bits, by its digits. It is printed and passed on, but not computed with.
struct LargeInteger {
    std::shared_ptr<const std::string> decimal; // "-" before a negative one; without leading zeros
};

enum class Type { undefined, none, boolean, integer, floating, string, list, dict, object, large_integer };

class Value {
  public:
    Value() = default; // undefined
    Value(None) : is_(None{}) {}
    Value(Undefined undefined) : is_(std::move(undefined)) {}
    Value(std::same_as<bool> auto truth) : is_(truth) {}
    Value(std::int64_t number) : is_(number) {}
    Value(double number) : is_(number) {}
    Value(std::string utf8, bool is_markup = false)
        : is_(std::make_shared<const Text>(Text{std::move(utf8), is_markup})) {}
    Value(const char* utf8) : Value(std::string(utf8)) {}
    Value(std::string_view utf8) : Value(std::string(utf8)) {}
    // Throws TemplateError where lists and dicts are nested too deep.
    Value(std::vector<Value> items, ListKind kind = ListKind::list);
    Value(Dict dict);
    Value(Object* object) : is_(object) {}
    // Returns the number with these digits, which may follow a "-".
    static Value of_decimal(std::string_view decimal);

    Type type() const { return static_cast<Type>(is_.index()); }
    bool is(Type type) const { return this->type() == type; }
    // Returns true for a number that templates can compute with.
    bool is_number() const { return is(Type::boolean) || is(Type::integer) || is(Type::floating); }
    bool is_whole() const { return is(Type::boolean) || is(Type::integer); }
    // Each may be called only for its type.
    bool boolean() const { return std::get<bool>(is_); }
    const std::string& text() const { return std::get<std::shared_ptr<const Text>>(is_)->utf8; }
    bool is_markup() const { return is(Type::string) && std::get<std::shared_ptr<const Text>>(is_)->is_markup; }
    const List& list() const { return *std::get<std::shared_ptr<const List>>(is_); }
    const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(is_); }
    Object& object() const { return *std::get<Object*>(is_); }
    const Undefined& undefined() const { return std::get<Undefined>(is_); }
    const std::string& decimal() const { return *std::get<LargeInteger>(is_).decimal; }
    std::int64_t whole() const { return is(Type::boolean) ? boolean() : std::get<std::int64_t>(is_); }
    double number() const { return is(Type::floating) ? std::get<double>(is_) : static_cast<double>(whole()); }

  private:
    std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
                 std::shared_ptr<const Dict>, Object*, LargeInteger>
        is_;
};

// Bytes of a string in a list in addition to its characters, and of a tuple of two in a list: for the budget.
inline constexpr std::size_t kBytesOfText = sizeof(Value) + sizeof(Text) + 32;
inline constexpr std::size_t kBytesOfPair = 3 * sizeof(Value) + sizeof(List) + 48;

Value undefined(std::string why);
std::string_view type_name(const Value& value); // Python's
[[noreturn]] void fail_undefined(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
// Returns a number below, at or above 0. Throws where Python has no order for the two.
int compare(const Value& a, const Value& b, Budget& budget);
// Returns equal texts for equal keys, else different ones. Throws where templates cannot use the value as a key.
std::string key_of(const Value& key);

void write_repr(const Value& value, Writer& out);
std::string to_text(const Value& value, Budget& budget); // Python's str()

struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    bool has_indent = false;
    std::string indent;
    std::string between = ", ";
    std::string colon = ": ";
};
// Writes it like Python's json.dumps. Throws where JSON has no such value.
void write_json(const Value& value, const JsonStyle& style, Writer& out, int level = 0);

} // namespace entrodraft::model::jinja
