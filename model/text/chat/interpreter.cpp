// Statements, scopes and macros of chat templates: see interpreter.h.
#include "model/text/chat/interpreter.h"

#include "model/text/chat/builtins.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

constexpr int kMaxCallDepth = 500;

} // namespace

Interpreter::Nested::Nested(Interpreter& its) : in(its) {
    in.budget_.step();
    if (in.depth_ >= kMaxCallDepth)
        throw TemplateError(fmt::format("calls and expressions lie deeper than {} in one another", kMaxCallDepth));
    ++in.depth_;
}

Template::Template(std::string_view source) : block_(std::make_shared<const Block>(parse_template(source))) {}

std::string Template::render(const Variables& variables, const std::tm& now) const {
    Interpreter interpreter(variables, now);
    try {
        return interpreter.run(*block_);
    } catch (const RaisedByTemplate&) {
        throw;
    } catch (const TemplateError& error) {
        throw TemplateError(fmt::format("line {}: {}", interpreter.line(), error.what()));
    }
}

Value* Scope::find(std::string_view name) {
    const auto found = std::ranges::find(names, name, &Variables::value_type::first);
    return found == names.end() ? nullptr : &found->second;
}

void Scope::set(std::string_view name, Value value) {
    if (Value* known = find(name))
        *known = std::move(value);
    else
        names.emplace_back(name, std::move(value));
}

bool Loop::has(std::size_t index, Budget& budget) {
    const std::vector<Value>& items = source.list().items;
    for (; ready.size() <= index && next < items.size(); ++next) {
        budget.produce(sizeof(Value));
        if (!accepts || accepts(items[next])) ready.push_back(items[next]);
    }
    return ready.size() > index;
}

Interpreter::Interpreter(const Variables& variables, const std::tm& now) : now_(now) {
    scope_ = std::make_shared<Scope>();
    for (const Builtin& function : builtin_functions())
        scope_->set(function.name, make_object(Method{{}, &function}));
    scope_ = std::make_shared<Scope>(Scope{scope_, {}});
    for (const auto& [name, value] : variables)
        scope_->set(name, value);
}

// Objects and scopes may form circles and long chains, so each is emptied by itself.
Interpreter::~Interpreter() {
    std::vector<std::shared_ptr<Scope>> scopes = {scope_};
    for (Object& object : objects_)
        if (const auto* macro = std::get_if<Macro>(&object.is)) scopes.push_back(macro->scope);
    for (const auto& scope : scopes)
        scope->names.clear();
}

std::string Interpreter::run(const Block& block) {
    execute(block);
    return std::move(out_);
}

Value Interpreter::make_object(decltype(Object::is) is) {
    budget_.produce(sizeof(Object));
    objects_.push_back({std::move(is)});
    return Value(&objects_.back());
}

void Interpreter::write(const Value& value) {
    const std::string text = text_of(value);
    budget_.produce(text.size());
    out_ += text;
}

Interpreter::Flow Interpreter::execute(const Block& block) {
    for (const auto& statement : block)
        if (const Flow flow = execute(*statement); flow != Flow::next) return flow;
    return Flow::next;
}

Interpreter::Flow Interpreter::execute_in_scope(const Block& block) {
    const std::shared_ptr<Scope> outer = scope_;
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    const Flow flow = execute(block);
    scope_ = outer;
    return flow;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
    using S = Statement::Kind;
    const Nested nested(*this);
    line_ = statement.line;
    switch (statement.kind) {
    case S::text:
        budget_.produce(statement.text.size());
        out_ += statement.text;
        break;
    case S::output:
        write(evaluate(*statement.value));
        break;
    case S::condition:
        for (const auto& [condition, block] : statement.branches)
            if (!condition || truth(evaluate(*condition))) return execute(block);
        break;
    case S::loop:
        return execute_loop(statement);
    case S::set:
        assign(*statement.target, evaluate(*statement.value), *scope_);
        break;
    case S::set_block:
    case S::filter:
        set_block(statement);
        break;
    case S::macro:
        scope_->set(statement.text, make_object(Macro{&statement, scope_}));
        break;
    case S::scope:
        return execute_in_scope(statement.body);
    case S::break_loop:
        return Flow::break_loop;
    case S::continue_loop:
        return Flow::continue_loop;
    }
    return Flow::next;
}

Interpreter::Flow Interpreter::execute_loop(const Statement& statement) {
    const std::shared_ptr<Scope> outer = scope_;
    const Value object = make_object(Loop{as_list(evaluate(*statement.value)), {}, 0, {}, 0});
    Loop& loop = std::get<Loop>(object.object().is);
    if (statement.test)
        loop.accepts = [&](const Value& item) {
            const auto inner = std::make_shared<Scope>(Scope{outer, {}});
            assign(*statement.target, item, *inner);
            const std::shared_ptr<Scope> before = std::exchange(scope_, inner);
            const bool is_accepted = truth(evaluate(*statement.test));
            scope_ = before;
            return is_accepted;
        };
    for (; loop.has(loop.index0, budget_); ++loop.index0) {
        budget_.step();
        scope_ = std::make_shared<Scope>(Scope{outer, {}});
        scope_->set("loop", object);
        assign(*statement.target, loop.ready[loop.index0], *scope_);
        const Flow flow = execute(statement.body);
        scope_ = outer;
        if (flow == Flow::break_loop) break;
    }
    loop.accepts = nullptr;
    return loop.ready.empty() ? execute_in_scope(statement.otherwise) : Flow::next;
}

std::string Interpreter::captured(const Block& block, std::shared_ptr<Scope> scope) {
    const std::shared_ptr<Scope> outer = std::exchange(scope_, std::move(scope));
    std::string before = std::exchange(out_, {});
    execute(block);
    scope_ = outer;
    return std::exchange(out_, std::move(before));
}

// Runs a {% set %} block or a {% filter %}: its content is assigned, or goes through filters and is then written.
void Interpreter::set_block(const Statement& statement) {
    Value value(captured(statement.body, std::make_shared<Scope>(Scope{scope_, {}})));
    if (statement.target) return assign(*statement.target, std::move(value), *scope_);
    Value before = std::exchange(block_input_, std::move(value));
    write(evaluate(*statement.value));
    block_input_ = std::move(before);
}

void Interpreter::assign(const Expression& target, Value value, Scope& scope) {
    budget_.step(scope.names.size() / 16);
    if (target.kind == Expression::Kind::name) return scope.set(target.name, std::move(value));
    if (target.kind == Expression::Kind::namespace_attribute) {
        const Value object = lookup(target.name);
        auto* space = object.is(Type::object) ? std::get_if<Namespace>(&object.object().is) : nullptr;
        if (!space) throw TemplateError(fmt::format("'{}' is no namespace, so no attribute can be set", target.name));
        if (target.text.starts_with('_'))
            throw TemplateError(fmt::format("attributes such as '{}' cannot be set; rename it", target.text));
        budget_.step(space->attributes.names.size() / 16);
        return space->attributes.set(target.text, std::move(value));
    }
    const Value parts = as_list(value);
    const std::vector<Value>& items = parts.list().items;
    if (items.size() != target.parts.size())
        throw TemplateError(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    for (std::size_t i = 0; i < items.size(); ++i)
        assign(*target.parts[i], items[i], scope);
}

Value Interpreter::call_macro(const Macro& macro, const CallArguments& arguments) {
    const Statement& definition = *macro.definition;
    const std::vector<Parameter>& parameters = definition.parameters;
    const std::size_t n_positional = arguments.positional.size();
    if (n_positional > parameters.size())
        throw TemplateError(
            fmt::format("macro '{}' takes not more than {} arguments", definition.text, parameters.size()));
    const auto scope = std::make_shared<Scope>(Scope{macro.scope, {}});
    for (std::size_t i = 0; i < n_positional; ++i)
        scope->set(parameters[i].name, arguments.positional[i]);
    for (const auto& [name, value] : arguments.named) {
        const auto of_rest = std::span(parameters).subspan(n_positional);
        if (std::ranges::find(of_rest, name, &Parameter::name) == of_rest.end())
            throw TemplateError(fmt::format("macro '{}' takes no argument named '{}'", definition.text, name));
        scope->set(name, value);
    }
    const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
    for (const Parameter& parameter : parameters) {
        if (scope->find(parameter.name)) continue;
        scope->set(parameter.name, parameter.default_value
                                       ? evaluate(*parameter.default_value)
                                       : undefined("parameter '" + parameter.name + "' was not provided"));
    }
    scope_ = outer;
    return Value(captured(definition.body, scope));
}

} // namespace entrodraft::model::jinja
