// Whose a field of an input line is: a request's, another program's that this one does not serve, an option of the run,
// a slip of the pen, or data of the user's own. Called by request_fields.cpp.
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
    const char* elsewhere = ""; // what other programs call it, separated by blanks
};

// What a line may set. In request_fields.cpp.
std::span<const LineField> line_fields();

// The beginning of a field's name, for messages.
std::string shown_field(const std::string& name);

// Leaves out what is null, which says nothing in whatever field.
void drop_nulls(Json& object);

// The names of the fields that are the user's own data, in the order written. Throws, naming the field and the remedy,
// where the line asks for what would be served wrongly; a value that asks for nothing else than what is served (n 1,
// stream false, null) does not. `is_conversation`: the prompt goes through a chat template.
std::vector<std::string> own_fields(const Json& object, bool is_conversation);

} // namespace entrodraft::launch
