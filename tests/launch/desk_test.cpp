// The desk and its clerks without models or ranks: who is handed what and when, what is written in which order, and how
// all of it ends. Replicas are threads here, and engines say of a prompt what it says itself.
#include "dist/error.h"
#include "launch/serve/clerk.h"
#include "tests/launch/post_office.h"
#include "tests/launch/prompt_limits.h"
#include "tests/launch/scratch_file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

namespace desk_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using test::ScratchFile;

constexpr double kTimeoutSeconds = 0.02; // of manual clocks, which stand still; and nobody waits long for anything

GenerateOptions options_of(const std::string& input, const std::string& output) {
    GenerateOptions options;
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
        most_under_way = std::max(most_under_way, under_way_.size());
        if (under_way_.empty() && !callbacks_.waiting()) return false;
        for (UnderWay& text : under_way_)
            --text.steps_left;
        return true;
    }

    bool stops = false; // a signal
    bool interrupted = false;
    std::size_t most_under_way = 0;

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
    std::string output;
    std::vector<Tally> tallies;
    bool interrupted = false;
    std::int64_t bad_lines = 0;
    std::size_t most_under_way = 0;
};

// All replicas, each in a thread of its own. `signal_at`: which replica sees a signal after how many of its steps.
Ran run(const GenerateOptions& options, int replicas, int slots, unsigned seed,
        std::optional<std::pair<int, int>> signal_at = std::nullopt) {
    test::PostOffice office(replicas);
    Ran ran;
    std::atomic<std::size_t> most_under_way = 0;
    Desk desk(options);
    desk.begin(test::limits_of_bytes());
    const auto work = [&](int replica) {
        test::PostOffice::Box box = office.box(replica);
        const dist::ManualClock clock;
        const auto layout = dist::make_layout(replica, replicas, replicas, dist::DraftPlacement::colocated);
        std::optional<RemoteDesk> remote;
        if (replica > 0) remote.emplace(options, test::limits_of_bytes(), box, layout, clock, slots);
        if (replica == 0) desk.open(box, layout, clock, slots);
        Clerk clerk(replica == 0 ? Clerk::AnyDesk(&desk) : Clerk::AnyDesk(&*remote), options, clock);
        FakeEngine engine(clerk.callbacks(), slots, seed + static_cast<unsigned>(replica));
        for (int steps = 0; engine.step(); ++steps) {
            if (signal_at && signal_at->first == replica && steps == signal_at->second) engine.stops = true;
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        most_under_way = std::max(most_under_way.load(), engine.most_under_way);
        if (remote) return remote->close(clerk.tally(), engine.interrupted);
        ran.tallies = desk.close(clerk.tally(), engine.interrupted);
    };
    std::vector<std::thread> threads;
    for (int replica = 0; replica < replicas; ++replica)
        threads.emplace_back(work, replica);
    for (std::thread& thread : threads)
        thread.join();
    ran.interrupted = desk.was_interrupted();
    ran.bad_lines = desk.bad_lines();
    ran.most_under_way = most_under_way;
    return ran;
}

TEST(Desk, WritesTheSameFileHoweverManyReplicasShareTheWork) {
    const ScratchFile input(numbered_lines(90)), one("");
    const Ran alone = run(options_of(input.path(), one.path()), 1, 1, 1);
    EXPECT_EQ(alone.bad_lines, 8);
    ASSERT_EQ(count_lines(one.text()), 90);
    for (const int replicas : {1, 2, 3, 5})
        for (const int slots : {1, 4}) {
            const ScratchFile output("");
            const Ran ran = run(options_of(input.path(), output.path()), replicas, slots, 7);
            EXPECT_EQ(output.text(), one.text()) << replicas << " replicas of " << slots;
            EXPECT_FALSE(ran.interrupted);
            EXPECT_EQ(ran.bad_lines, 8);
            ASSERT_EQ(ran.tallies.size(), static_cast<std::size_t>(replicas));
            Tally total;
            for (const Tally& tally : ran.tallies)
                total += tally;
            EXPECT_EQ(total.served, 82);
            EXPECT_EQ(total.stats.new_tokens, 164);
            EXPECT_LE(ran.most_under_way, static_cast<std::size_t>(slots));
        }
}

TEST(Desk, FewerPromptsThanReplicasEndToo) {
    for (const int lines : {0, 1, 2}) {
        const ScratchFile input(numbered_lines(lines)), output("");
        run(options_of(input.path(), output.path()), 4, 2, 3);
        EXPECT_EQ(count_lines(output.text()), lines);
    }
}

TEST(Desk, ASignalToAnyReplicaStopsAllAndWhatIsWrittenIsABeginning) {
    const ScratchFile input(numbered_lines(900)), whole("");
    run(options_of(input.path(), whole.path()), 1, 1, 1);
    for (const int replica : {0, 1, 2}) {
        const ScratchFile output("");
        GenerateOptions options = options_of(input.path(), output.path());
        const Ran stopped = run(options, 3, 2, 5, std::pair{replica, 30});
        EXPECT_TRUE(stopped.interrupted) << replica;
        const std::string begun = output.text();
        EXPECT_LT(begun.size(), whole.text().size());
        EXPECT_EQ(begun, whole.text().substr(0, begun.size()));
        EXPECT_TRUE(begun.empty() || begun.back() == '\n');
        options.resume = true;
        run(options, 2, 1, 6);
        EXPECT_EQ(output.text(), whole.text());
    }
}

TEST(Desk, EveryTextIsCheckedOnceAgainstWhatItSaidFirst) {
    const ScratchFile input(numbered_lines(40));
    for (const int replicas : {1, 2}) {
        const ScratchFile output("");
        GenerateOptions options = options_of(input.path(), output.path());
        options.check = true;
        testing::internal::CaptureStderr();
        const Ran ran = run(options, replicas, 3, 9);
        const std::string notes = testing::internal::GetCapturedStderr();
        Tally total;
        for (const Tally& tally : ran.tallies)
            total += tally;
        EXPECT_EQ(total.checked, 36); // four lines are no JSON
        EXPECT_EQ(total.check_differs, 4);
        for (const std::string id : {"3", "13", "23", "33"})
            EXPECT_NE(notes.find("check: id " + id + " differs from decoding without a draft at new token 1"),
                      std::string::npos)
                << notes;
    }
}

TEST(Desk, NobodyRunsFurtherAheadOfASlowTextThanAllowed) {
    const ScratchFile input(numbered_lines(2000)), output("");
    const GenerateOptions options = options_of(input.path(), output.path());
    test::PostOffice office(1);
    test::PostOffice::Box box = office.box(0);
    const dist::ManualClock clock;
    const auto layout = dist::make_layout(0, 1, 1, dist::DraftPlacement::colocated);
    Desk desk(options);
    desk.begin(test::limits_of_bytes());
    desk.open(box, layout, clock, 2);
    const auto slow = desk.next(true);
    ASSERT_TRUE(slow);
    std::int64_t last = 0;
    while (const auto work = desk.next(false)) {
        last = work->order;
        desk.put({work->order, 1, "{}"});
        ASSERT_LT(last, 1999) << "no bound";
    }
    EXPECT_TRUE(desk.waiting());
    EXPECT_GE(last, 2 * Desk::kMostAhead - 12); // bad lines count too
    EXPECT_LT(last, 2 * Desk::kMostAhead);
    desk.put({slow->order, 1, "{}"});
    EXPECT_TRUE(desk.next(false));
}

// ---- how prompts are dealt, letter by letter ----

struct DeskAndLetters {
    ScratchFile input, output{""};
    GenerateOptions options = options_of(input.path(), output.path());
    test::PostOffice office{3};
    std::vector<test::PostOffice::Box> boxes = {office.box(0), office.box(1), office.box(2)};
    dist::ManualClock clock;
    dist::RankLayout layout = dist::make_layout(0, 3, 3, dist::DraftPlacement::colocated);
    Desk desk{options};

    explicit DeskAndLetters(const std::string& lines) : input(lines) {
        desk.begin(test::limits_of_bytes());
        desk.open(boxes[0], layout, clock, 1);
    }
    void ask(int replica, const AskLetter& letter) {
        boxes[static_cast<std::size_t>(replica)].send(0, static_cast<int>(LetterKind::ask), pack(letter));
    }
    // Orders of the prompts that have come to a replica; -1: it is over.
    std::vector<std::int64_t> come_to(int replica) {
        std::vector<std::int64_t> orders;
        while (const auto letter = boxes[static_cast<std::size_t>(replica)].poll()) {
            if (letter->kind == static_cast<int>(LetterKind::work)) orders.push_back(unpack_work(letter->bytes).order);
            if (letter->kind == static_cast<int>(LetterKind::over)) orders.push_back(-1);
        }
        return orders;
    }
};

using Orders = std::vector<std::int64_t>;

TEST(Desk, HandsOutInAdvanceOnlyWhileThereIsEnoughForAll) {
    DeskAndLetters all(
        "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n{\"prompt\":\"d\"}\n{\"prompt\":\"e\"}\n");
    all.ask(1, {1, 0, false, false}); // at work, and wants one in advance
    EXPECT_TRUE(all.desk.step());
    EXPECT_EQ(all.come_to(1), Orders{0}); // four more lie ready
    all.ask(1, {2, 1, false, false});
    EXPECT_TRUE(all.desk.step());
    EXPECT_EQ(all.come_to(1), Orders{1});
    all.ask(1, {3, 2, false, false});
    all.ask(2, {1, 0, true, true}); // this one has nothing to do
    EXPECT_TRUE(all.desk.step());
    EXPECT_EQ(all.come_to(1), Orders{}); // three prompts are left for three replicas
    EXPECT_EQ(all.come_to(2), Orders{2});
    all.ask(1, {3, 2, true, false}); // by now it needs what it wanted in advance
    EXPECT_TRUE(all.desk.step());
    EXPECT_EQ(all.come_to(1), Orders{3});
    const auto own = all.desk.next(true);
    ASSERT_TRUE(own);
    EXPECT_EQ(own->order, 4);
}

TEST(Desk, IsOverOnceEveryReplicaIsIdle) {
    DeskAndLetters all("{\"prompt\":\"a\"}\n");
    all.ask(1, {1, 0, true, true});
    all.ask(2, {1, 0, true, true});
    EXPECT_TRUE(all.desk.step());
    EXPECT_EQ(all.come_to(1), Orders{0});
    EXPECT_FALSE(all.desk.next(true));
    EXPECT_TRUE(all.desk.waiting());
    EXPECT_EQ(all.come_to(2), Orders{});
    all.boxes[1].send(0, static_cast<int>(LetterKind::result), pack(Result{0, 1, "{}"}));
    EXPECT_FALSE(all.desk.next(true));
    EXPECT_TRUE(all.desk.waiting()); // replica 1 may be checking that text; it has not said that it is idle since
    all.ask(1, {2, 1, true, true});
    EXPECT_FALSE(all.desk.next(false)); // replica 0 is still at work
    EXPECT_EQ(all.come_to(1), Orders{});
    EXPECT_FALSE(all.desk.next(true));
    EXPECT_FALSE(all.desk.waiting());
    EXPECT_EQ(all.come_to(1), Orders{-1});
    EXPECT_EQ(all.come_to(2), Orders{-1});
    EXPECT_EQ(all.output.text(), "{}\n");
}

TEST(Desk, RefusesAResultThatWasNotAskedFor) {
    DeskAndLetters all("{\"prompt\":\"a\"}\n");
    all.ask(1, {1, 0, true, true});
    EXPECT_TRUE(all.desk.step());
    all.boxes[2].send(0, static_cast<int>(LetterKind::result), pack(Result{0, 1, "{}"}));
    EXPECT_THROW(all.desk.step(), std::runtime_error);
}

TEST(Desk, AReplicaThatDiesWhileTheOthersWaitIsNamed) {
    DeskAndLetters all("{\"prompt\":\"a\"}\n");
    all.ask(1, {1, 0, true, true});
    all.ask(2, {1, 0, true, true});
    std::string message;
    try {
        for (int i = 0; i < 1000; ++i) {
            all.clock.advance(kTimeoutSeconds / 4);
            EXPECT_FALSE(all.desk.next(true));
            if (i < 20) all.boxes[1].send(0, static_cast<int>(LetterKind::beat), {});
            all.boxes[2].send(0, static_cast<int>(LetterKind::beat), {});
        }
    } catch (const dist::Timeout& error) {
        message = error.what();
    }
    EXPECT_EQ(message.rfind("replica 1 (rank 1 coordinates it)", 0), 0u) << message;
}

TEST(Desk, LooksForInputWithoutWaitingWhileThereIsWork) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const ScratchFile output("");
    GenerateOptions options = options_of("/dev/fd/" + std::to_string(ends[0]), output.path());
    options.models.collective_timeout_seconds = 4; // patience of 0.2 s
    Desk desk(options);
    desk.begin(test::limits_of_bytes());
    const auto seconds_of = [&](bool idle) {
        const auto began = std::chrono::steady_clock::now();
        EXPECT_FALSE(desk.next(idle));
        EXPECT_TRUE(desk.waiting());
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    EXPECT_LT(seconds_of(false), 0.1);
    EXPECT_GE(seconds_of(true), 0.19);
    const std::string line = "{\"prompt\":\"a\"}\n";
    ASSERT_EQ(write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    EXPECT_TRUE(desk.next(false));
    close(ends[1]);
    EXPECT_FALSE(desk.next(false));
    EXPECT_FALSE(desk.waiting());
    close(ends[0]);
}

} // namespace desk_test
