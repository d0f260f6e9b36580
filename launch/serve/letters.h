// What the desk and the coordinators of other replicas write to each other (see desk.h, remote_desk.h), as bytes.
//
// Within one job all ranks are the same build, so that numbers travel as they lie in memory.
#pragma once

#include "launch/io/summary.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

constexpr int kDeskReplica = 0; // whose coordinator is the writer: its rank in the mailbox

enum class LetterKind : int {
    ask,      // to the desk: AskLetter
    result,   // to the desk: Result
    trace,    // to the desk: a line of --trace
    note,     // to the desk: a line for people
    farewell, // to the desk, the last one: FarewellLetter
    work,     // from the desk: WorkLetter
    over,     // from the desk: nothing more will come
    stop,     // from the desk: end as a signal does
    closed,   // from the desk, the last one: every farewell has come
    beat,     // both ways: its sender lives
};

// How a replica stands. Counts are of the whole run, so that letters that cross each other do no harm.
struct AskLetter {
    std::int64_t asked = 0;    // prompts it asked for
    std::int64_t received = 0; // of them
    bool urgent = false;       // it has room for one now
    bool idle = false;         // it has nothing to do
};

struct WorkLetter {
    std::int64_t order = 0;  // place in the output
    std::int64_t number = 0; // of the line, as parse_request() takes it
    std::string line;
};

// What came of a prompt.
struct Result {
    std::int64_t order = 0;
    std::int64_t new_tokens = 0;
    std::string line; // of the output, without newline
};

struct FarewellLetter {
    Tally tally;
    bool interrupted = false;
};

// Local, all of them. What is unpacked must have been packed as the same: else std::runtime_error.
std::vector<std::byte> pack(const AskLetter& letter);
std::vector<std::byte> pack(const WorkLetter& letter);
std::vector<std::byte> pack(const Result& letter);
std::vector<std::byte> pack(const FarewellLetter& letter);
AskLetter unpack_ask(std::span<const std::byte> bytes);
WorkLetter unpack_work(std::span<const std::byte> bytes);
Result unpack_result(std::span<const std::byte> bytes);
FarewellLetter unpack_farewell(std::span<const std::byte> bytes);
std::string unpack_text(std::span<const std::byte> bytes);

} // namespace entrodraft::launch
