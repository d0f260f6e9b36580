// The one desk of a run: where prompts are read and handed out, and results written in the order of the input.
//
// It stands with the writer, who coordinates replica 0 and serves the other replicas by letters between its own rounds
// (see remote_desk.h for their side, clerk.h for what asks it). How text is made is spec's affair.
#pragma once

#include "dist/clock.h"
#include "launch/cli/options.h"
#include "launch/io/report.h"
#include "launch/io/requests.h"
#include "launch/io/results.h"
#include "launch/serve/correspondence.h"
#include "launch/serve/letters.h"
#include "spec/request.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

// A prompt handed out.
struct Work {
    std::int64_t order = 0; // place in the output
    spec::Request request;
};

// How long a coordinator without work waits for some before it tells its other ranks that there is none yet: far less
// than they wait, and little enough that a signal to any rank ends the wait within the half second that SIGTERM leaves.
double patience_seconds(double collective_timeout_seconds);

class Desk {
  public:
    // How many results may wait for an earlier one, for each text that can be under way: then no prompt is handed out
    // until that one is written. Bounds what a death loses, and memory.
    static constexpr std::int64_t kMostAhead = 256;

    // Opens the files; before the models, so that a mistake there does not cost the loading of them. Those that it
    // makes go with it again unless it comes to open(). Throws BadOption, std::runtime_error. Local.
    explicit Desk(const GenerateOptions& options);
    // Reads the prompt, or passes over what an earlier run served. Throws as above. Local.
    void begin(const PromptLimits& limits);
    // Opens for every replica; `mailbox` is that of the coordinators, a replica has `slots` texts under way at most.
    // All outlive this. Local.
    void open(dist::Mailbox& mailbox, const dist::RankLayout& layout, const dist::Clock& clock, int slots);

    // ---- for replica 0, whose coordinator stands here ----

    // The next prompt; none where there is none yet, after some patience if that replica is `idle`, or no more.
    std::optional<Work> next(bool idle);
    // Whether next() may still give something, or others are at work.
    bool waiting() const { return !is_over(); }
    void put(const Result& result);
    void put_trace(std::string_view line);
    // All of --timeline, at the end.
    void put_timeline(std::string_view text);
    void put_text(std::string_view text); // of --prompt, as it comes
    void note(std::string_view line);     // for people
    // Serves the others. False: another replica has seen a signal. To be called between rounds.
    bool step();
    // The end of replica 0's run: hears the others out. What they have done, by replica. Throws dist::Timeout.
    std::vector<Tally> close(const Tally& own, bool interrupted);

    // After close(): whether a replica has seen a signal, lines found served, and lines that could not be read.
    bool was_interrupted() const { return stops_; }
    std::int64_t resumed() const { return static_cast<std::int64_t>(writer_.served().size()); }
    std::int64_t bad_lines() const { return bad_lines_; }
    bool is_resumable() const { return !streams() && writer_.is_plain_file(); }
    // Of what stood in the output before: lines with errors.
    std::int64_t resumed_with_error() const { return writer_.served_with_error(); }

  private:
    struct Ahead {
        Work work;
        std::int64_t number = 0;
        std::string line;
    };
    // Another replica, as its letters say.
    struct Branch {
        AskLetter ask;
        std::int64_t sent = 0;
        std::optional<FarewellLetter> farewell;
        bool wants() const { return !farewell && ask.asked > sent; }
        bool is_idle() const { return farewell || (ask.idle && ask.received == sent); }
    };

    bool streams() const { return options_->prompt.has_value(); }
    bool is_over() const;
    bool is_full() const;
    void look_ahead(double patience_seconds);
    void serve();
    void take(const dist::Letter& letter);
    void deal();
    Branch* next_to_serve();
    void write(const Result& result, int replica);
    void say_over();

    const GenerateOptions* options_;
    ResultWriter writer_;
    std::optional<ResultWriter> trace_, timeline_;
    std::unique_ptr<LineReader> lines_; // until begin()
    std::optional<RequestReader> reader_;
    Progress progress_;
    bool input_ended_ = false;
    bool stops_ = false;
    bool said_over_ = false;
    std::int64_t next_order_ = 0;
    std::int64_t bad_lines_ = 0;
    std::int64_t new_tokens_ = 0;
    std::deque<Ahead> ahead_;         // read, not handed out
    std::map<std::int64_t, int> out_; // replica by order: handed out, without result

    std::optional<Correspondence> letters_; // with other replicas; none: there are none
    std::vector<Branch> branches_{1};       // by replica; the first one is unused
    std::size_t last_served_ = 0;
    std::size_t slots_ = 1; // of all replicas together
};

} // namespace entrodraft::launch
