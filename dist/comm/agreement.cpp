// One gather and one broadcast of fixed-size records. The coordinator of the group decides for all ranks.
#include "dist/comm/agreement.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace entrodraft::dist {
namespace {

constexpr std::size_t kMessageBytes = 1000;
constexpr std::size_t kPlaceBytes = 120;
constexpr int kDeciderRank = 0;

struct StatusRecord {
    std::int32_t exit_code = 0;
    std::int32_t failing_rank = -1; // set in the agreed record only; -1 when the failure is common to all ranks
    std::uint32_t length = 0;
    char message[kMessageBytes] = {};
    char place[kPlaceBytes] = {}; // zero-terminated
};

// Returns the length of the longest prefix of at most kMessageBytes that does not cut a UTF-8 character.
std::size_t length_to_send(const std::string& text) {
    if (text.size() <= kMessageBytes) return text.size();
    std::size_t length = kMessageBytes;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U)
        --length;
    return length;
}

bool equal(const StatusRecord& a, const StatusRecord& b) {
    return a.exit_code == b.exit_code && a.length == b.length && std::memcmp(a.message, b.message, a.length) == 0;
}

StatusRecord decide(const std::vector<StatusRecord>& records) {
    const auto failed = [](const StatusRecord& record) { return record.exit_code != 0; };
    const auto first = std::find_if(records.begin(), records.end(), failed);
    if (first == records.end()) return {};
    StatusRecord agreed = *first;
    const bool common =
        std::all_of(records.begin(), records.end(), [&](const StatusRecord& record) { return equal(record, *first); });
    agreed.failing_rank = common ? -1 : static_cast<std::int32_t>(first - records.begin());
    return agreed;
}

} // namespace

Status agree(Communicator& comm, const Status& mine, Deadline deadline) {
    StatusRecord record;
    record.exit_code = mine.exit_code;
    record.length = static_cast<std::uint32_t>(length_to_send(mine.message));
    std::memcpy(record.message, mine.message.data(), record.length);
    const std::string place = mine.place.empty() ? fmt::format("rank {}", comm.rank()) : mine.place;
    std::memcpy(record.place, place.data(), std::min(place.size(), kPlaceBytes - 1));

    const bool decides = comm.rank() == kDeciderRank;
    std::vector<StatusRecord> records(decides ? static_cast<std::size_t>(comm.size()) : 0);
    comm.gather(&record, records.data(), sizeof record, kDeciderRank, deadline);
    StatusRecord agreed = decides ? decide(records) : StatusRecord{};
    comm.broadcast(&agreed, sizeof agreed, kDeciderRank, deadline);

    if (agreed.exit_code == 0) return {};
    std::string message(agreed.message, agreed.length);
    if (message.empty()) message = "failed without a message";
    if (agreed.failing_rank >= 0) message = std::string("[").append(agreed.place) + "] " + message;
    return {message, agreed.exit_code};
}

Status same_on_all_ranks(Communicator& comm, std::uint64_t checksum, const std::string& what, Deadline deadline) {
    const bool decides = comm.rank() == kDeciderRank;
    std::vector<std::uint64_t> checksums(decides ? static_cast<std::size_t>(comm.size()) : 0);
    comm.gather(&checksum, checksums.data(), sizeof checksum, kDeciderRank, deadline);
    std::int32_t odd_rank = -1;
    if (decides) {
        const auto odd =
            std::find_if(checksums.begin(), checksums.end(), [&](auto other) { return other != checksum; });
        if (odd != checksums.end()) odd_rank = static_cast<std::int32_t>(odd - checksums.begin());
    }
    comm.broadcast(&odd_rank, sizeof odd_rank, kDeciderRank, deadline);
    if (odd_rank < 0) return {};
    return {fmt::format("{} of rank {} differs from that of rank 0: give every rank the same build, files and options",
                        what, odd_rank),
            1};
}

} // namespace entrodraft::dist
