// The desk as the coordinator of another replica sees it: by letters. See desk.h, whose functions these mirror.
//
// Asks for the next prompts while earlier ones are still under way, so that a replica need not wait for the desk.
#pragma once

#include "launch/serve/desk.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

namespace entrodraft::launch {

class RemoteDesk {
  public:
    // A replica has `slots` texts under way at most, and asks for as many in advance. All outlive this.
    RemoteDesk(const GenerateOptions& options, const PromptLimits& limits, dist::Mailbox& mailbox,
               const dist::RankLayout& layout, const dist::Clock& clock, int slots);

    // The next prompt; none where there is none yet, after some patience if this replica is `idle`, or no more.
    std::optional<Work> next(bool idle);
    bool waiting() const { return !over_; }
    void put(const Result& result);
    void put_trace(std::string_view line);
    void note(std::string_view line);
    // Looks for letters. False: the desk says that all stop. To be called between rounds. Throws dist::Timeout.
    bool step();
    // The end of this replica's run. Returns once the desk has heard all replicas out. Throws dist::Timeout.
    void close(const Tally& own, bool interrupted);

  private:
    void read_letters();
    void take(const dist::Letter& letter);
    void ask(bool urgent, bool idle);

    const GenerateOptions* options_;
    PromptLimits limits_;
    Correspondence letters_;
    std::int64_t slots_;
    std::deque<Work> in_hand_;
    AskLetter ask_; // as the desk knows it
    std::int64_t received_ = 0;
    bool over_ = false;
    bool stops_ = false;
    bool closed_ = false;
};

} // namespace entrodraft::launch
