// The manual page, made from the declared commands and options: `entrodraft help --man`.
#pragma once

#include <string>

namespace entrodraft::launch {

// In roff with the macros of man(7). `version`: "entrodraft 0.1.0". Local.
std::string manual_page(const std::string& version);

} // namespace entrodraft::launch
