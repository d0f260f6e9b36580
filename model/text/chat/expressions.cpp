// Expressions of chat templates: see interpreter.h.
#include "model/text/chat/builtins.h"
#include "model/text/chat/interpreter.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

[[noreturn]] void refuse_operands(std::string_view op, const Value& a, const Value& b) {
    if (a.is(Type::undefined)) fail_undefined(a);
    if (b.is(Type::undefined)) fail_undefined(b);
    throw TemplateError(fmt::format("'{}' is not defined for {} and {}", op, type_name(a), type_name(b)));
}

Value arithmetic(char op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflows = false;
    switch (op) {
    case '+':
        overflows = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflows = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflows = __builtin_mul_overflow(a, b, &result);
        break;
    default: // f: //, %
        if (b == 0) throw TemplateError("division by zero");
        if (b == -1) return arithmetic('-', 0, op == 'f' ? a : 0);
        result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); // rounds down
        if (op == '%') result = a - b * result;
    }
    if (overflows) throw TemplateError("a whole number is beyond 64 bits");
    return Value(result);
}

Value arithmetic(char op, double a, double b) {
    if (op == '+') return Value(a + b);
    if (op == '-') return Value(a - b);
    if (op == '*') return Value(a * b);
    if (b == 0) throw TemplateError("division by zero");
    return Value(a / b);
}

Value repeated(const Value& value, std::int64_t n, Budget& budget) {
    const std::string& text = value.text();
    const auto times = static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, Budget::kMaxBytes));
    if (!text.empty()) budget.produce(times > Budget::kMaxBytes / text.size() ? SIZE_MAX / 2 : times * text.size());
    std::string result;
    for (std::size_t i = 0; i < times && !text.empty(); ++i)
        result += text;
    return Value(std::move(result), value.is_markup());
}

// Escapes &, <, >, ', " as in HTML.
std::string escaped(std::string_view text, Budget& budget) {
    static constexpr std::string_view kMarks = "&<>'\"";
    static constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    Writer out{budget, {}};
    while (!text.empty()) {
        const std::size_t at = std::min(text.find_first_of(kMarks), text.size());
        out.add(text.substr(0, at));
        if (at < text.size()) out.add(kNames[kMarks.find(text[at])]);
        text.remove_prefix(std::min(at + 1, text.size()));
    }
    return std::move(out.text);
}

Value added_texts(const Value& a, const Value& b, Budget& budget) {
    budget.produce(a.text().size() + b.text().size());
    if (a.is_markup() == b.is_markup()) return Value(a.text() + b.text(), a.is_markup());
    const auto part = [&](const Value& value) {
        return value.is_markup() ? value.text() : escaped(value.text(), budget);
    };
    return Value(part(a) + part(b), true);
}

} // namespace

Value Interpreter::binary(std::string_view op, const Value& a, const Value& b) {
    const char code = op == "//" ? 'f' : op[0];
    if (code == '~') return charged(Value(text_of(a) + text_of(b)));
    if (a.is_whole() && b.is_whole() && code != '/') return arithmetic(code, a.whole(), b.whole());
    if (a.is_number() && b.is_number() && code != 'f' && code != '%') return arithmetic(code, a.number(), b.number());
    if (code == '+' && a.is(Type::string) && b.is(Type::string)) return added_texts(a, b, budget_);
    const auto is_list = [](const Value& value) { return value.is(Type::list) && value.list().kind == ListKind::list; };
    if (code == '+' && is_list(a) && is_list(b)) {
        budget_.produce((a.list().items.size() + b.list().items.size()) * sizeof(Value));
        std::vector<Value> items = a.list().items;
        items.insert(items.end(), b.list().items.begin(), b.list().items.end());
        return Value(std::move(items));
    }
    if (code == '*' && a.is(Type::string) && b.is_whole()) return repeated(a, b.whole(), budget_);
    if (code == '*' && b.is(Type::string) && a.is_whole()) return repeated(b, a.whole(), budget_);
    refuse_operands(op, a, b);
}

Value Interpreter::charged(Value value) {
    if (value.is(Type::string)) budget_.produce(value.text().size());
    if (value.is(Type::list)) budget_.produce(value.list().items.size() * sizeof(Value));
    return value;
}

void Interpreter::charge_key(const Value& key) {
    if (key.is(Type::string)) budget_.search(0, key.text().size());
}

Value Interpreter::lookup(const std::string& name) {
    for (Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
        budget_.step(scope->names.size() / 16);
        if (const Value* found = scope->find(name)) return *found;
    }
    return undefined("'" + name + "' is undefined");
}

Value Interpreter::evaluate(const Expression& expression) {
    using Kind = Expression::Kind;
    const Nested nested(*this);
    line_ = expression.line;
    const auto& parts = expression.parts;
    switch (expression.kind) {
    case Kind::constant:
        return expression.value;
    case Kind::name:
        return expression.name == kBlockInput ? block_input_ : lookup(expression.name);
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
        return evaluate_list(expression);
    case Kind::attribute:
        return attribute(evaluate(*parts[0]), expression.name);
    case Kind::item: {
        const Value value = evaluate(*parts[0]);
        return parts[1]->kind == Kind::slice ? evaluate_slice(value, *parts[1]) : item(value, evaluate(*parts[1]));
    }
    case Kind::call:
        return evaluate_call(expression);
    case Kind::filter:
    case Kind::test:
        return evaluate_named(expression);
    case Kind::logical_not:
        return Value(!truth(evaluate(*parts[0])));
    case Kind::negative: {
        const Value value = evaluate(*parts[0]);
        if (!value.is_number()) refuse_operands("-", value, value);
        return binary("*", value, Value(std::int64_t{-1}));
    }
    case Kind::binary: {
        const Value left = evaluate(*parts[0]), right = evaluate(*parts[1]);
        line_ = expression.line;
        return binary(expression.name, left, right);
    }
    case Kind::compare:
        return evaluate_compare(expression);
    case Kind::logical_and:
    case Kind::logical_or: {
        Value left = evaluate(*parts[0]);
        return truth(left) == (expression.kind == Kind::logical_or) ? left : evaluate(*parts[1]);
    }
    case Kind::conditional: // condition, value, else
        if (truth(evaluate(*parts[0]))) return evaluate(*parts[1]);
        if (parts[2]) return evaluate(*parts[2]);
        return undefined("an if without else was false, and has no value");
    case Kind::slice:
    case Kind::namespace_attribute:
        break;
    }
    throw TemplateError("a slice stands alone");
}

Value Interpreter::evaluate_list(const Expression& expression) {
    if (expression.kind == Expression::Kind::dict) {
        Dict dict;
        for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
            Value key = evaluate(*expression.parts[i]);
            charge_key(key);
            dict.set(std::move(key), evaluate(*expression.parts[i + 1]));
        }
        return Value(std::move(dict));
    }
    std::vector<Value> items;
    for (const ExpressionPtr& part : expression.parts)
        items.push_back(evaluate(*part));
    return charged(
        Value(std::move(items), expression.kind == Expression::Kind::list ? ListKind::list : ListKind::tuple));
}

CallArguments Interpreter::evaluate_arguments(const Arguments& arguments) {
    CallArguments values;
    for (const ExpressionPtr& argument : arguments.positional)
        values.positional.push_back(evaluate(*argument));
    for (const auto& [name, argument] : arguments.named)
        values.named.emplace_back(name, evaluate(*argument));
    return values;
}

Value Interpreter::evaluate_call(const Expression& expression) {
    const Expression& callee = *expression.parts[0];
    const bool is_attribute = callee.kind == Expression::Kind::attribute;
    const Value self = is_attribute ? evaluate(*callee.parts[0]) : Value();
    const Builtin* method = is_attribute ? find_method(self, callee.name) : nullptr; // most calls: they need no object
    const Value function = method ? Value() : is_attribute ? attribute(self, callee.name) : evaluate(callee);
    const CallArguments arguments = evaluate_arguments(expression.arguments);
    line_ = expression.line;
    return charged(method ? run_builtin(*this, *method, self, arguments) : call(function, arguments));
}

Value Interpreter::evaluate_named(const Expression& expression) {
    const Value value = evaluate(*expression.parts[0]);
    const CallArguments arguments = evaluate_arguments(expression.arguments);
    line_ = expression.line;
    if (expression.kind == Expression::Kind::test) return Value(test(expression.name, value, arguments));
    return charged(filter(expression.name, value, arguments));
}

Value Interpreter::evaluate_compare(const Expression& expression) {
    const std::string& op = expression.name;
    const Value left = evaluate(*expression.parts[0]), right = evaluate(*expression.parts[1]);
    line_ = expression.line;
    if (op == "==" || op == "!=") return Value(equal(left, right, budget_) == (op == "=="));
    if (op == "in" || op == "not in") return Value(contains(right, left) == (op == "in"));
    const int order = compare(left, right, budget_);
    return Value(op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0);
}

// Python's value[begin:end:step].
Value Interpreter::evaluate_slice(const Value& value, const Expression& slice) {
    std::int64_t numbers[3] = {0, 0, 1};
    bool is_given[3] = {},
         fits = value.is(Type::string) || (value.is(Type::list) && value.list().kind <= ListKind::range);
    for (std::size_t i = 0; i < 3; ++i) {
        const Value bound = slice.parts[i] ? evaluate(*slice.parts[i]) : Value(None{});
        is_given[i] = bound.is_whole();
        if (is_given[i]) numbers[i] = bound.whole();
        fits = fits && (is_given[i] || bound.is(Type::none));
    }
    if (value.is(Type::undefined)) fail_undefined(value);
    if (!fits) throw TemplateError(fmt::format("a {} has no such slice", type_name(value)));
    const std::int64_t step = numbers[2];
    if (step == 0) throw TemplateError("the step of a slice is zero");
    if (value.is(Type::string)) budget_.step(value.text().size() / 8);
    const std::u32string points = value.is(Type::string) ? code_points(value.text()) : U"";
    const auto n = static_cast<std::int64_t>(value.is(Type::string) ? points.size() : value.list().items.size());
    const auto bound = [&](std::size_t i, std::int64_t default_value) {
        if (!is_given[i]) return default_value;
        const std::int64_t at = numbers[i] < 0 ? numbers[i] + n : numbers[i];
        return step > 0 ? std::clamp<std::int64_t>(at, 0, n) : std::clamp<std::int64_t>(at, -1, n - 1);
    };
    std::int64_t at = bound(0, step > 0 ? 0 : n - 1);
    const std::int64_t end = bound(1, step > 0 ? n : -1);
    std::u32string text;
    std::vector<Value> items;
    while (step > 0 ? at < end : at > end) {
        if (value.is(Type::string))
            text += points[at];
        else
            items.push_back(value.list().items[at]);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    if (value.is(Type::string)) return charged(Value(utf8(text), value.is_markup()));
    return charged(Value(std::move(items), value.list().kind == ListKind::tuple ? ListKind::tuple : ListKind::list));
}

} // namespace entrodraft::model::jinja
