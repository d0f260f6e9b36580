// What stands between a coordinator's engine and the desk: keeps in mind what is under way, has texts decoded once more
// for --check, makes the lines of results, and counts.
//
// One for each replica. Several requests may be under way, and come back in any order.
#pragma once

#include "dist/clock.h"
#include "launch/serve/desk.h"
#include "launch/serve/remote_desk.h"
#include "spec/generate.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>

namespace entrodraft::launch {

class Clerk {
  public:
    // The desk itself, or what stands for it on another replica.
    using AnyDesk = std::variant<Desk*, RemoteDesk*>;

    // All outlive this.
    Clerk(AnyDesk desk, const GenerateOptions& options, const dist::Clock& clock);

    // For the engine of this replica; this outlives them. They throw what the desk throws.
    spec::EngineCallbacks callbacks();
    // What this replica has done so far. Local.
    Tally tally() const;

  private:
    // Whether the text is the same whatever is drafted.
    bool is_checkable(const spec::Request& request) const;
    bool is_idle() const { return orders_.empty() && replays_under_way_ == 0; }
    std::optional<spec::Request> next_request();
    void on_complete(const spec::Request& request, spec::Completion completion);
    void compare(const spec::Request& request, const spec::Completion& plain);
    void begin_one();
    void end_one();

    AnyDesk desk_;
    const GenerateOptions* options_;
    const dist::Clock* clock_;
    std::map<std::string, std::int64_t> orders_;             // by id: under way, drafted
    std::deque<spec::Request> to_replay_;                    // said once, to be said again without drafting
    std::map<std::string, std::vector<spec::TokenId>> said_; // by id, until the replay has come
    std::size_t replays_under_way_ = 0;
    Tally tally_;
    double busy_since_ = 0; // where there is anything under way
};

} // namespace entrodraft::launch
