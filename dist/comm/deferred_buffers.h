// Keeps memory until the process ends. MPI may still read or write the memory after its owner has given up waiting.
//
// The destructors of mpi_comm.cpp and channel.cpp call it.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace entrodraft::dist {

// Local; may be called on any thread.
template <typename T> void leave_with_mpi(std::unique_ptr<T> memory) {
    static std::mutex mutex;
    // Never freed: MPI may outlive static objects.
    static auto* const left = new std::vector<std::unique_ptr<T>>(); // NOLINT(*-avoid-non-const-global-variables)
    const std::scoped_lock lock(mutex);
    left->push_back(std::move(memory));
}

} // namespace entrodraft::dist
