// The session that all multi-rank tests of this room share.
#pragma once

#include "dist/session.h"

entrodraft::dist::Session& session_of_tests();
