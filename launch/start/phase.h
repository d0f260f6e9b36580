// Does work before the first round. It ends in agreement: all ranks go on, or all leave in the same way.
#pragma once

#include "dist/session/session.h"

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace entrodraft::launch {

// Does `work` on this rank and agrees with the others on the result. Throws OrderlyFailure with the message of the
// lowest failing rank and its exit code: 2 for BadOption and sizes that do not fit, else 1. Collective over the world.
void in_agreement(dist::Session& session, const std::function<void()>& work);
void in_agreement(dist::Session& session, double timeout_seconds, const std::function<void()>& work); // for long work

// Throws OrderlyFailure on all ranks unless they hold the same `text`. Collective over the world.
void require_same(dist::Session& session, const std::string& what, const std::string& text);

// Returns the values of all ranks, by rank, on all of them. T is sent as it is. Collective over the world.
template <typename T> std::vector<T> from_all(dist::Session& session, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(session.world_size()));
    const dist::Deadline deadline = session.deadline();
    session.world().gather(&mine, all.data(), sizeof mine, 0, deadline);
    session.world().broadcast(all.data(), all.size() * sizeof mine, 0, deadline);
    return all;
}

// Returns the writer's value on every rank. Collective over the world.
std::int64_t from_writer(dist::Session& session, std::int64_t value);

} // namespace entrodraft::launch
