// The session that all multi-rank tests of this module share.
#pragma once

#include "dist/session/session.h"

entrodraft::dist::Session& session_of_tests();
