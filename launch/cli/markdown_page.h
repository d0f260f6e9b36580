// docs/cli.md, made from the declared commands and options: `entrodraft help --markdown`.
#pragma once

#include <string>

namespace entrodraft::launch {

std::string markdown_page();

} // namespace entrodraft::launch
