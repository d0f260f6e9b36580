// Fields of a JSON file: see json_fields.h.
#include "launch/io/json_fields.h"

#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/json_file.h"

#include <climits>
#include <cmath>

namespace entrodraft::launch {

namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

} // namespace

JsonFields JsonFields::read(const std::string& file) {
    auto root = std::make_shared<const Json>(model::read_json_file(file, kMostBytes));
    if (!root->is_object()) throw model::BadFile(file + ": does not hold one JSON object");
    const Json* json = root.get();
    return {file, "", std::move(root), json};
}

void JsonFields::bad(const std::string& name, const std::string& reason) const {
    throw model::BadFile(place(name) + " " + reason);
}

const JsonFields::Json& JsonFields::field(const std::string& name) const {
    const auto found = json_->find(name);
    if (found == json_->end()) bad(name, "is missing");
    return *found;
}

double JsonFields::checked(const Json& value, const std::string& name, bool may_be_zero) const {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(number) || number < 0 || (number == 0 && !may_be_zero))
        bad(name, may_be_zero ? "must be a number of at least 0" : "must be a number above 0");
    return number;
}

double JsonFields::positive(const std::string& name) const {
    return checked(field(name), name, false);
}

double JsonFields::number(const std::string& name) const {
    return checked(field(name), name, true);
}

int JsonFields::count(const std::string& name) const {
    const double number = positive(name);
    if (number != std::floor(number) || number > INT_MAX) bad(name, "must be a whole number of at least 1");
    return static_cast<int>(number);
}

std::string JsonFields::text(const std::string& name) const {
    const Json& value = field(name);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) bad(name, "must be some text");
    return value.get<std::string>();
}

bool JsonFields::is(const std::string& name, const std::string& text) const {
    const auto found = json_->find(name);
    return found != json_->end() && found->is_string() && found->get_ref<const std::string&>() == text;
}

JsonFields JsonFields::object(const std::string& name) const {
    const Json& value = field(name);
    if (!value.is_object()) bad(name, "must be an object");
    return {file_, path_ + name + ".", root_, &value};
}

std::vector<JsonFields> JsonFields::objects(const std::string& name) const {
    const Json& list = field(name);
    if (!list.is_array()) bad(name, "must be a list of objects");
    std::vector<JsonFields> all;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string one = name + "[" + std::to_string(i) + "]";
        if (!list[i].is_object()) bad(one, "must be an object");
        all.push_back({file_, path_ + one + ".", root_, &list[i]});
    }
    return all;
}

double JsonFields::first_positive(const std::string& name) const {
    const Json& list = field(name);
    if (!list.is_array() || list.empty()) bad(name, "must be a list of numbers");
    return checked(list[0], name + "[0]", false);
}

} // namespace entrodraft::launch
