// Work before the first round, rank by rank, that ends in agreement: all ranks go on, or all leave alike.
#pragma once

#include "dist/session.h"

#include <cstdint>
#include <functional>
#include <string>

namespace entrodraft::launch {

// Does `work` on this rank and agrees with the others on how it went. Throws OrderlyFailure with the message of the
// lowest failing rank and its exit code: 2 for BadOption and sizes that do not fit, else 1. Collective over the world.
void in_agreement(dist::Session& session, double timeout_seconds, const std::function<void()>& work);

// Throws OrderlyFailure on all ranks unless they hold the same `text`. Collective over the world.
void require_same(dist::Session& session, double timeout_seconds, const std::string& what, const std::string& text);

// The writer's value on every rank. Collective over the world.
std::int64_t from_writer(dist::Session& session, double timeout_seconds, std::int64_t value);

} // namespace entrodraft::launch
