// Classifies a field of an input line: a field of requests, a field of another program that this program does not
// support, an option of the run, a misspelt name, or the user's own data. Called by request_fields.cpp.
#pragma once

#include "launch/io/json_line.h"
#include "spec/protocol/request.h"

#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct LineField {
    const char* name;
    void (*set)(const Json& value, const std::string& name, spec::Request& request);
    const char* elsewhere = ""; // names of other programs for it, separated by blanks
};

// Returns the fields that a line may set. In request_fields.cpp.
std::span<const LineField> line_fields();

// Returns the beginning of a field's name, for messages.
std::string shown_field(const std::string& name);

// Removes fields that are null; null says nothing in any field.
void drop_nulls(Json& object);

// Returns the names of the fields with the user's own data, in the order written. Throws, naming the field and the
// remedy, if the line asks for something that would be served wrongly. A value that asks only for what is served (n 1,
// stream false, null) is accepted. `is_conversation`: the prompt goes through a chat template.
std::vector<std::string> own_fields(const Json& object, bool is_conversation);

} // namespace entrodraft::launch
