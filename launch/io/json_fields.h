// An object of a JSON file that somebody else wrote, field by field: whatever is not as it should be is a message that
// names file, field and reason. Private to this room: brings nlohmann::json along. Called by the readers of
// measurements.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace entrodraft::launch {

class JsonFields {
  public:
    // The object that a file holds. Throws model::BadFile, as all calls do. Local.
    static JsonFields read(const std::string& file);

    bool has(const std::string& name) const { return json_->contains(name); }
    // Above 0, or at least 0.
    double positive(const std::string& name) const;
    double number(const std::string& name) const;
    int count(const std::string& name) const;        // whole and at least 1
    std::string text(const std::string& name) const; // not empty
    // Whether the field is there and is this text.
    bool is(const std::string& name, const std::string& text) const;
    JsonFields object(const std::string& name) const;
    std::vector<JsonFields> objects(const std::string& name) const;
    // The first of a list of numbers above 0.
    double first_positive(const std::string& name) const;

    // "FILE: field a.b[2].c": for messages about this object.
    std::string place(const std::string& name) const { return file_ + ": field " + path_ + name; }
    const std::string& file() const { return file_; }
    [[noreturn]] void bad(const std::string& name, const std::string& reason) const;

  private:
    using Json = nlohmann::json;
    JsonFields(std::string file, std::string path, std::shared_ptr<const Json> root, const Json* json)
        : file_(std::move(file)), path_(std::move(path)), root_(std::move(root)), json_(json) {}
    const Json& field(const std::string& name) const;
    double checked(const Json& value, const std::string& name, bool may_be_zero) const;

    std::string file_;
    std::string path_; // of this object in the file, with a dot behind; "" for the whole
    std::shared_ptr<const Json> root_;
    const Json* json_ = nullptr; // in root_
};

} // namespace entrodraft::launch
