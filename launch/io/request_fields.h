// What the fields of an input line are: ours, requests that other programs serve and this one does not, options of the
// run, slips of the pen, or data of the user's own.
//
// Called by requests.cpp alone.
#pragma once

#include "launch/io/json_line.h"
#include "spec/request.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// The names of the fields that are the user's own data, in the order written. Throws std::runtime_error, naming the
// field and the remedy, where the line asks for what would be served wrongly; a value that asks for nothing else than
// what is served (n 1, stream false, null) is no such request. `is_conversation`: the prompt goes through a chat
// template. Local.
std::vector<std::string> own_fields(const Json& object, bool is_conversation);

// What the line's fields say of its request: sampling, penalties, where it ends. Throws std::runtime_error, naming the
// field, where a value is of another type. Local.
void set_fields(const Json& object, spec::Request& request);

// The beginning of a field's name, for messages.
std::string shown_field(const std::string& name);

} // namespace entrodraft::launch
