// Makes model::TokenId known in this namespace.
#pragma once

#include "model/text/token_id.h"

namespace entrodraft::spec {

using model::TokenId;

} // namespace entrodraft::spec
