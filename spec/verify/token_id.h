// The model room's token id, under this module's name too.
#pragma once

#include "model/text/token_id.h"

namespace entrodraft::spec {

using model::TokenId;

} // namespace entrodraft::spec
