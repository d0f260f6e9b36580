// Dispatcher and request trackers without models or ranks: who is handed what and when, what is written in which order,
// and how all of it ends. Replicas are threads here, and engines complete a prompt with itself.
#include "dist/rank/error.h"
#include "launch/serve/input_dispatcher.h"
#include "launch/serve/request_tracker.h"
#include "tests/dist/joined_channels.h"
#include "tests/dist/manual_clock.h"
#include "tests/launch/prompt_limits.h"
#include "tests/launch/scratch_file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

namespace dispatcher_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using test::ScratchFile;

constexpr double kTimeoutSeconds = 0.02; // of manual clocks, which stand still; and nobody waits long for anything

GenerateOptions options_of(const std::string& input, const std::string& output, int replicas = 1, int slots = 1) {
    GenerateOptions options;
    options.replicas = replicas;
    options.batch_size = slots;
    options.input = input;
    options.output = output;
    options.quiet = true;
    options.models.collective_timeout_seconds = kTimeoutSeconds;
    return options;
}

std::string numbered_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += i % 11 == 5 ? "no JSON\n" : "{\"id\": " + std::to_string(i) + ", \"prompt\": \"x\"}\n";
    return text;
}

std::int64_t count_lines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
}

// What an engine would do with callbacks: `slots` texts at once, each some steps long. A replay of an id that ends in 3
// says something else.
class FakeEngine {
  public:
    FakeEngine(spec::EngineCallbacks callbacks, int slots, unsigned seed)
        : callbacks_(std::move(callbacks)), slots_(static_cast<std::size_t>(slots)), random_(seed) {}

    // One step; false once the run has ended.
    bool step() {
        const bool goes_on = !callbacks_.on_step || callbacks_.on_step();
        complete_what_has_ended();
        if (!goes_on || stops) {
            interrupted = true;
            return false;
        }
        while (under_way_.size() < slots_) {
            auto request = callbacks_.next_request();
            if (!request) break;
            under_way_.push_back({*request, 1 + static_cast<int>(random_() % 6)});
        }
        max_under_way = std::max(max_under_way, under_way_.size());
        if (under_way_.empty() && !callbacks_.waiting()) return false;
        for (UnderWay& text : under_way_)
            --text.steps_left;
        return true;
    }

    bool stops = false; // a signal
    bool interrupted = false;
    std::size_t max_under_way = 0;

  private:
    struct UnderWay {
        spec::Request request;
        int steps_left;
    };

    void complete_what_has_ended() {
        for (std::size_t i = under_way_.size(); i-- > 0;) { // in any order
            if (under_way_[i].steps_left > 0) continue;
            const spec::Request request = under_way_[i].request;
            under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
            spec::Completion completion;
            completion.text = "text of " + request.id;
            completion.tokens = request.prompt;
            if (request.plain && request.id.back() == '3') completion.tokens.push_back(1);
            completion.stats.new_tokens = 2;
            callbacks_.on_complete(request, completion);
        }
    }

    spec::EngineCallbacks callbacks_;
    std::size_t slots_;
    std::mt19937 random_;
    std::vector<UnderWay> under_way_;
};

struct Ran {
    RunSummary summary;
    std::size_t max_under_way = 0;
};

// All replicas, each in a thread of its own. `signal_at`: which replica sees a signal after how many of its steps.
Ran run(GenerateOptions options, int replicas, int slots, unsigned seed,
        std::optional<std::pair<int, int>> signal_at = std::nullopt) {
    options.replicas = replicas;
    options.batch_size = slots;
    test::JoinedChannels joined(replicas);
    Ran ran;
    std::atomic<std::size_t> max_under_way = 0;
    InputDispatcher dispatcher(options);
    dispatcher.read_first(test::limits_of_bytes());
    const auto work = [&](int replica) {
        const dist::ManualClock clock;
        const auto layout = dist::make_layout(replica, replicas, replicas, dist::DraftPlacement::colocated);
        test::JoinedChannels::End end(joined, layout, clock, kTimeoutSeconds);
        dist::Channel* const channel = replicas > 1 ? &end : nullptr;
        if (replica == 0) dispatcher.start(channel);
        RequestTracker tracker(replica == 0 ? &dispatcher : nullptr, channel, options, clock);
        FakeEngine engine(tracker.callbacks(), slots, seed + static_cast<unsigned>(replica));
        for (int steps = 0; engine.step(); ++steps) {
            if (signal_at && signal_at->first == replica && steps == signal_at->second) engine.stops = true;
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        max_under_way = std::max(max_under_way.load(), engine.max_under_way);
        tracker.close(engine.interrupted);
    };
    std::vector<std::thread> threads;
    for (int replica = 0; replica < replicas; ++replica)
        threads.emplace_back(work, replica);
    for (std::thread& thread : threads)
        thread.join();
    ran.summary = dispatcher.finish();
    ran.max_under_way = max_under_way;
    return ran;
}

TEST(Dispatcher, WritesTheSameFileHoweverManyReplicasShareTheWork) {
    const ScratchFile input(numbered_lines(90)), one("");
    const Ran alone = run(options_of(input.path(), one.path()), 1, 1, 1);
    EXPECT_EQ(alone.summary.with_error, 8);
    ASSERT_EQ(count_lines(one.text()), 90);
    for (const int replicas : {1, 2, 3, 5})
        for (const int slots : {1, 4}) {
            const ScratchFile output("");
            const Ran ran = run(options_of(input.path(), output.path()), replicas, slots, 7);
            EXPECT_EQ(output.text(), one.text()) << replicas << " replicas of " << slots;
            EXPECT_FALSE(ran.summary.interrupted);
            EXPECT_EQ(ran.summary.with_error, 8);
            EXPECT_EQ(ran.summary.replicas_busy_seconds.size(), static_cast<std::size_t>(replicas));
            EXPECT_EQ(ran.summary.served, 82);
            EXPECT_EQ(ran.summary.stats.new_tokens, 164);
            EXPECT_LE(ran.max_under_way, static_cast<std::size_t>(slots));
        }
}

TEST(Dispatcher, FewerPromptsThanReplicasEndToo) {
    for (const int lines : {0, 1, 2}) {
        const ScratchFile input(numbered_lines(lines)), output("");
        run(options_of(input.path(), output.path()), 4, 2, 3);
        EXPECT_EQ(count_lines(output.text()), lines);
    }
}

TEST(Dispatcher, ASignalToAnyReplicaStopsAllAndWhatIsWrittenIsABeginning) {
    const ScratchFile input(numbered_lines(900)), whole("");
    run(options_of(input.path(), whole.path()), 1, 1, 1);
    for (const int replica : {0, 1, 2}) {
        const ScratchFile output("");
        GenerateOptions options = options_of(input.path(), output.path());
        const Ran stopped = run(options, 3, 2, 5, std::pair{replica, 30});
        EXPECT_TRUE(stopped.summary.interrupted) << replica;
        const std::string begun = output.text();
        EXPECT_LT(begun.size(), whole.text().size());
        EXPECT_EQ(begun, whole.text().substr(0, begun.size()));
        EXPECT_TRUE(begun.empty() || begun.back() == '\n');
        options.resume = true;
        run(options, 2, 1, 6);
        EXPECT_EQ(output.text(), whole.text());
    }
}

TEST(Dispatcher, EveryTextIsCheckedOnceAgainstWhatItSaidFirst) {
    const ScratchFile input(numbered_lines(40));
    for (const int replicas : {1, 2}) {
        const ScratchFile output("");
        GenerateOptions options = options_of(input.path(), output.path());
        options.check = true;
        testing::internal::CaptureStderr();
        const Ran ran = run(options, replicas, 3, 9);
        const std::string notes = testing::internal::GetCapturedStderr();
        EXPECT_EQ(ran.summary.checked, 36); // four lines are no JSON
        EXPECT_EQ(ran.summary.check_differs, 4);
        for (const std::string id : {"3", "13", "23", "33"})
            EXPECT_NE(notes.find("check: id " + id + " differs from decoding without a draft at new token 1"),
                      std::string::npos)
                << notes;
    }
}

// The next request of replica 0, if there is one.
std::optional<Assignment> next_request(InputDispatcher& dispatcher) {
    auto assignment = dispatcher.receive(0);
    return assignment && assignment->request ? assignment : std::nullopt;
}

Report result_of(std::int64_t order) {
    return {.result = "{}", .order = order, .stats = spec::Stats{}, .ends_request = true};
}

TEST(Dispatcher, NobodyRunsFurtherAheadOfASlowTextThanAllowed) {
    const ScratchFile input(numbered_lines(2000)), output("");
    const GenerateOptions options = options_of(input.path(), output.path(), 1, 2);
    InputDispatcher dispatcher(options);
    dispatcher.read_first(test::limits_of_bytes());
    dispatcher.start(nullptr);
    const auto slow = next_request(dispatcher);
    ASSERT_TRUE(slow);
    std::int64_t last = 0;
    while (const auto next = next_request(dispatcher)) {
        last = next->order;
        dispatcher.handle(0, result_of(last));
        ASSERT_LT(last, 1999) << "no bound";
    }
    EXPECT_GE(last, 2 * InputDispatcher::kMaxResultsAhead - 12); // bad lines count too
    EXPECT_LT(last, 2 * InputDispatcher::kMaxResultsAhead);
    dispatcher.handle(0, result_of(slow->order));
    EXPECT_TRUE(next_request(dispatcher));
}

// ---- how requests are handed out, message by message ----

struct ThreeReplicas {
    ScratchFile input, output{""};
    GenerateOptions options = options_of(input.path(), output.path(), 3);
    test::JoinedChannels joined{3};
    dist::ManualClock clock;
    std::deque<test::JoinedChannels::End> ends;
    InputDispatcher dispatcher{options};

    explicit ThreeReplicas(int lines) : input(numbered_lines(lines)) {
        for (int replica = 0; replica < 3; ++replica)
            ends.emplace_back(joined, dist::make_layout(replica, 3, 3, dist::DraftPlacement::colocated), clock,
                              kTimeoutSeconds);
        dispatcher.read_first(test::limits_of_bytes());
        dispatcher.start(&ends[0]);
    }
    void report(std::size_t replica, const Report& report) { ends[replica].send(0, pack(report)); }
    // What a replica has been assigned; -1: that the run has finished.
    std::vector<std::int64_t> assigned_to(std::size_t replica) {
        std::vector<std::int64_t> orders;
        const auto note = [&](const Assignment& next) {
            if (next.request) orders.push_back(next.order);
            if (next.state == RunState::finished) orders.push_back(-1);
        };
        if (replica == 0) {
            while (const auto next = dispatcher.receive(0))
                note(*next);
        } else {
            while (const auto message = ends[replica].receive(0))
                note(unpack<Assignment>(message->bytes));
        }
        return orders;
    }
};

using Orders = std::vector<std::int64_t>;

TEST(Dispatcher, HandsOutInAdvanceOnlyWhileThereIsEnoughForAll) {
    ThreeReplicas all(5);
    // One each while more than three are ready behind it: never in advance here.
    EXPECT_EQ(all.assigned_to(0), Orders{0});
    EXPECT_EQ(all.assigned_to(1), Orders{1});
    EXPECT_EQ(all.assigned_to(2), Orders{2});
    all.report(2, result_of(2));
    EXPECT_EQ(all.assigned_to(0), Orders{});
    EXPECT_EQ(all.assigned_to(2), Orders{3}); // to the one that is free
    all.report(2, result_of(3));
    all.report(1, result_of(1));
    EXPECT_EQ(all.assigned_to(0), Orders{});
    EXPECT_EQ(all.assigned_to(1), Orders{4});
    EXPECT_EQ(all.assigned_to(2), Orders{});
    ThreeReplicas many(20);
    EXPECT_EQ(many.assigned_to(0), (Orders{0, 3}));
    EXPECT_EQ(many.assigned_to(1), (Orders{1, 4}));
    EXPECT_EQ(many.assigned_to(2), (Orders{2, 6})); // line 5 is no JSON
    many.report(1, result_of(1));
    EXPECT_EQ(many.assigned_to(0), Orders{});
    EXPECT_EQ(many.assigned_to(1), Orders{7});
}

TEST(Dispatcher, IsFinishedOnceEveryReplicaIsIdle) {
    ThreeReplicas all(2);
    EXPECT_EQ(all.assigned_to(0), Orders{0});
    EXPECT_EQ(all.assigned_to(1), Orders{1});
    Report checking = result_of(1);
    checking.ends_request = false; // replica 1 checks that text
    all.report(1, checking);
    EXPECT_EQ(all.assigned_to(0), Orders{});
    all.report(1, {.checked = true, .ends_request = true});
    EXPECT_EQ(all.assigned_to(0), Orders{}); // replica 0 is still at work
    EXPECT_EQ(all.assigned_to(1), Orders{});
    all.dispatcher.handle(0, result_of(0));
    EXPECT_EQ(all.assigned_to(0), Orders{-1});
    EXPECT_EQ(all.assigned_to(1), Orders{-1});
    EXPECT_EQ(all.assigned_to(2), Orders{-1});
    EXPECT_EQ(all.output.text(), "{}\n{}\n");
}

TEST(Dispatcher, AReplicaThatDiesWhileTheOthersWaitIsNamed) {
    ThreeReplicas all(2);
    EXPECT_EQ(all.assigned_to(0), Orders{0});
    EXPECT_EQ(all.assigned_to(1), Orders{1});
    std::string message;
    try {
        for (int i = 0; i < 1000; ++i) {
            all.clock.advance(kTimeoutSeconds / 4);
            EXPECT_FALSE(all.dispatcher.receive(0.001));
            if (i < 20) all.ends[1].send(0, {}); // a heartbeat
            all.ends[2].send(0, {});
        }
    } catch (const dist::Timeout& error) {
        message = error.what();
    }
    EXPECT_EQ(message.rfind("replica 1 (rank 1 coordinates it)", 0), 0u) << message;
}

TEST(Dispatcher, LooksForInputWithoutWaitingWhileThereIsWork) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const ScratchFile output("");
    GenerateOptions options = options_of("/dev/fd/" + std::to_string(ends[0]), output.path());
    options.models.collective_timeout_seconds = 4; // an idle replica waits for 0.2 s
    InputDispatcher dispatcher(options);
    dispatcher.read_first(test::limits_of_bytes());
    const dist::ManualClock clock;
    RequestTracker tracker(&dispatcher, nullptr, options, clock);
    const spec::EngineCallbacks callbacks = tracker.callbacks();
    const auto seconds_of = [&](const auto& call) {
        const auto began = std::chrono::steady_clock::now();
        call();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    const auto expect_nothing_yet = [&] {
        EXPECT_FALSE(callbacks.next_request());
        EXPECT_TRUE(callbacks.waiting());
    };
    EXPECT_GE(seconds_of(expect_nothing_yet), 0.19);
    const std::string line = "{\"prompt\":\"a\"}\n";
    ASSERT_EQ(write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    const auto request = callbacks.next_request();
    ASSERT_TRUE(request);
    EXPECT_LT(seconds_of(expect_nothing_yet), 0.1);
    callbacks.on_complete(*request, {});
    close(ends[1]);
    EXPECT_FALSE(callbacks.next_request());
    EXPECT_FALSE(callbacks.waiting());
    close(ends[0]);
}

} // namespace dispatcher_test
