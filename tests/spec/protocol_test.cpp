// The protocol of a replica under thousands of schedules. Whatever messages, ranks and signals do, every rank goes
// through the same rounds, and only the right text comes out. A failing seed runs alone with
//   test_spec_unit --gtest_filter=Protocol.OneScheduleByItsSeed --gtest_random_seed=SEED
#include "tests/spec/protocol_replica.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

namespace protocol_test {

using namespace entrodraft;
using How = RankEnd::How;
using spec::Request;

// ---- the requests ----

std::vector<TokenId> golden_prompt(std::size_t i) {
    return golden_expectations("llama-draft").at(i).at("prompt").get<std::vector<TokenId>>();
}

Request sampled(Request request, double temperature, int top_k, double top_p, double min_p, std::uint64_t seed) {
    request.sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = seed};
    return request;
}

// Texts of every kind and end: by budget, end of text, stop string, full context, or because no token is left.
std::vector<Request> make_templates() {
    std::vector<std::vector<TokenId>> prompts;
    for (std::size_t i = 0; i < 6; ++i)
        prompts.push_back(golden_prompt(i));
    std::vector<Request> all = {request_of(prompts[0], 16),
                                request_of(prompts[1], 1),
                                request_of(prompts[2], 2),
                                request_of(prompts[3], 9),
                                request_of(prompts[4], 12), // one token: nothing to prefill
                                request_of(prompts[5], 24),
                                request_of(varied_tokens(250, Fleet::kVocab), 20), // two chunks; the context ends it
                                request_of(prompts[0], 24)};
    all[7].ignore_eos = true;
    all[5].stop_strings = {" the"};
    all.push_back(request_of(prompts[2], 20));
    all.back().stop_strings = {"zzz", "e"};
    all.push_back(sampled(request_of(prompts[0], 10), 1, 0, 1, 0, 1));
    all.push_back(sampled(request_of(prompts[1], 10), 0.7, 20, 1, 0, 2));
    all.push_back(sampled(request_of(prompts[2], 10), 1.3, 0, 0.8, 0, 3));
    all.push_back(sampled(request_of(prompts[3], 10), 1, 0, 1, 0.05, 4));
    all.push_back(request_of(prompts[1], 14));
    all.back().processing.repetition_penalty = 1.3;
    all.back().processing.no_repeat_ngram_size = 2;
    all.push_back(sampled(request_of(prompts[0], 14), 1, 0, 1, 0, 5));
    all.back().processing.min_new_tokens = 12;
    all.back().processing.logit_bias = {{5, 2.0F}, {300, -1.0F}};
    for (const bool samples : {false, true}) { // after at most five tokens none is left
        all.push_back(request_of(prompts[4], 30));
        if (samples) all.back() = sampled(all.back(), 1, 0, 1, 0, 6);
        all.back().ignore_eos = true;
        all.back().processing.no_repeat_ngram_size = 1;
        for (TokenId token = 0; token < Fleet::kVocab - 5; ++token)
            all.back().processing.banned_tokens.push_back(token);
    }
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i].sequence_key = 1000 + i;
    return all;
}

// ---- schedules, run and verified ----

std::string shown(const RankEnd& end) {
    const char* const names[] = {"finished", "interrupted", "failed", "died", "hung"};
    return std::string(names[static_cast<int>(end.how)]) + (end.message.empty() ? "" : " at " + end.step) +
           (end.message.empty() ? "" : ": " + end.message);
}

class Simulation {
  public:
    Outcome run(const Schedule& schedule);
    std::size_t n_templates() const { return templates_.size(); }

  private:
    const spec::Completion* reference(const Schedule& schedule, std::size_t request);
    const spec::Completion& completion_of(const Schedule& schedule, const std::string& key);
    Outcome run_requests(const Schedule& schedule);
    void check_texts(const Schedule& schedule, Outcome& outcome);

    Fleet fleet_;
    std::vector<Request> templates_ = make_templates();
    std::map<std::string, spec::Completion> references_;
};

Outcome Simulation::run_requests(const Schedule& schedule) {
    std::vector<Request> requests;
    for (const std::size_t which : schedule.requests) {
        requests.push_back(templates_.at(which));
        requests.back().id = std::to_string(requests.size() - 1);
        requests.back().plain = schedule.is_plain;
    }
    return Replica(fleet_, schedule, std::move(requests)).run();
}

// The text of this request in the schedule without delays, faults and signals. For greedy and gumbel it is the text of
// plain decoding. None if the text depends on times.
const spec::Completion* Simulation::reference(const Schedule& schedule, std::size_t request) {
    Schedule calm;
    calm.ranks = schedule.target_ranks();
    calm.acceptance = schedule.acceptance;
    calm.requests = {request};
    calm.idling = {0, 0};
    calm.is_plain = true;
    std::string key = std::to_string(calm.ranks) + " " + std::to_string(request);
    const bool is_sampled = !templates_[request].sampling.greedy();
    if (is_sampled && schedule.acceptance != spec::Acceptance::gumbel) {
        if (schedule.rule.is("expected-gain")) return nullptr;
        calm.rule = schedule.rule;
        const bool is_ahead = schedule.drafter.starts_with("model ahead"); // its text is that without drafting ahead
        calm.drafter = is_ahead ? "model" : schedule.drafter;
        calm.is_plain = schedule.is_plain;
        const bool is_cut = schedule.placement == dist::DraftPlacement::sharded; // a different draft
        if (is_cut) calm.placement = schedule.placement;
        key += (is_cut ? " cut" : "") + std::string(" ") + to_string(schedule.acceptance) + " " + calm.drafter + " " +
               describe(schedule.rule);
    }
    return &completion_of(calm, key);
}

const spec::Completion& Simulation::completion_of(const Schedule& schedule, const std::string& key) {
    if (const auto known = references_.find(key); known != references_.end()) return known->second;
    Outcome outcome = run_requests(schedule);
    EXPECT_TRUE(outcome.violations.empty()) << describe(schedule) << ": " << outcome.violations.front();
    if (outcome.served != 1)
        throw std::logic_error("no reference by " + describe(schedule) + ": " + shown(outcome.ends[0]));
    return references_[key] = std::move(outcome.taken[0].completion);
}

std::string shown(const std::vector<TokenId>& tokens) {
    std::string text;
    for (const TokenId token : tokens)
        text += " " + std::to_string(token);
    return text;
}

// A text that cannot go on may lack its last tokens: those of the draft after which no token was left.
bool is_same(const spec::Completion& got, const spec::Completion& want) {
    if (got.failure != want.failure || got.finish_reason != want.finish_reason) return false;
    if (got.failure.empty()) return got.tokens == want.tokens && got.text == want.text;
    return got.tokens.size() <= want.tokens.size() &&
           std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()) && want.text.starts_with(got.text);
}

// In any case: served texts are right, and none is served twice. If the run was told to end, texts that had ended
// before are not lost.
void Simulation::check_texts(const Schedule& schedule, Outcome& outcome) {
    const bool is_interrupted = outcome.ends[0].how == How::interrupted;
    for (std::size_t i = 0; i < outcome.taken.size(); ++i) {
        const Taken& taken = outcome.taken[i];
        const spec::Completion& got = taken.completion;
        const auto complain = [&](const std::string& what) {
            outcome.violations.push_back("request " + std::to_string(i) + " " + what);
        };
        const spec::Completion* want = reference(schedule, schedule.requests.at(i));
        if (taken.times_served > 1) complain("is served twice");
        if (taken.times_served == 0) {
            if (want && is_interrupted && want->failure.empty() && taken.said >= want->tokens.size())
                complain("had ended and is lost");
            continue;
        }
        if (taken.streamed != got.text) complain("has another text than was shown");
        if (want && !is_same(got, *want))
            complain("has the text" + shown(got.tokens) + ", not" + shown(want->tokens) + " " + got.failure);
    }
}

// Returns whether some rank did not end in order.
bool is_broken(const Outcome& outcome) {
    return std::ranges::any_of(
        outcome.ends, [](const RankEnd& end) { return end.how != How::finished && end.how != How::interrupted; });
}

// Without a fault that mattered: all ranks end alike, and everything is served that a signal did not cut short.
void check_calm_end(const Schedule& schedule, Outcome& outcome) {
    for (const RankEnd& end : outcome.ends)
        if (end.how != outcome.ends[0].how || (end.how != How::finished && end.how != How::interrupted))
            outcome.violations.push_back("a rank ends otherwise than another: " + shown(end) + " and " +
                                         shown(outcome.ends[0]));
    if (outcome.ends[0].how == How::interrupted) {
        if (outcome.signals == 0 && schedule.last_step < 0)
            outcome.violations.push_back("an interrupt without a signal");
    } else if (outcome.served != schedule.requests.size()) {
        outcome.violations.push_back("not every request is served");
    }
}

// With a fault: all ranks end within the timeout and say why. The coordinator ends well only if everything is served.
void check_broken_end(const Schedule& schedule, Outcome& outcome) {
    const double slack = kTimeoutSeconds / 2; // for work under way
    const Fault& fault = schedule.fault;
    for (std::size_t rank = 0; rank < outcome.ends.size(); ++rank) {
        const RankEnd& end = outcome.ends[rank];
        const std::string who = "rank " + std::to_string(rank) + " " + shown(end);
        const bool failed = end.how == How::failed;
        const double stalled = fault.kind == FaultKind::stalls ? fault.seconds : 0;
        if (end.how == How::hung) outcome.violations.push_back(who);
        if (end.at > outcome.fault_at + stalled + kTimeoutSeconds + slack)
            outcome.violations.push_back(who + ", long after the timeout");
        if (failed && (end.step.empty() || end.message.empty())) outcome.violations.push_back(who + " without a word");
    }
    if (outcome.ends[0].how == How::finished && outcome.served != schedule.requests.size())
        outcome.violations.push_back("not every request is served");
}

Outcome Simulation::run(const Schedule& schedule) {
    Outcome outcome = run_requests(schedule);
    check_texts(schedule, outcome);
    for (std::size_t rank = 0; rank < outcome.ends.size(); ++rank)
        if (outcome.was_misled[rank] && outcome.ends[rank].how != How::failed)
            outcome.violations.push_back("rank " + std::to_string(rank) + " has received what was not sent, and " +
                                         shown(outcome.ends[rank]));
    const bool may_break = outcome.fault_at != kNever &&
                           (schedule.fault.kind != FaultKind::stalls || schedule.fault.seconds > kTimeoutSeconds);
    if (may_break && is_broken(outcome))
        check_broken_end(schedule, outcome);
    else
        check_calm_end(schedule, outcome);
    return outcome;
}

// ---- many schedules ----

struct Tally {
    int schedules = 0, struck = 0, misled = 0, failed = 0, interrupted = 0, served = 0;
    std::uint64_t rounds = 0, accepted = 0;
    std::int64_t ahead = 0; // rounds with a prepared draft
    std::map<FaultKind, int> by_fault;
};

void count(const Schedule& schedule, const Outcome& outcome, Tally& tally) {
    ++tally.schedules;
    if (outcome.fault_at != kNever) ++tally.by_fault[schedule.fault.kind];
    for (const bool was_misled : outcome.was_misled)
        tally.misled += was_misled ? 1 : 0;
    tally.failed += outcome.ends[0].how == How::failed ? 1 : 0;
    tally.interrupted += outcome.ends[0].how == How::interrupted ? 1 : 0;
    tally.served += static_cast<int>(outcome.served);
    tally.rounds += outcome.rounds;
    tally.accepted += outcome.accepted;
    for (const Taken& taken : outcome.taken)
        tally.ahead += taken.completion.stats.ahead.hits;
}

// Runs the seeds. Returns how many failed; shows the first few of these.
Tally sweep(std::uint64_t first, std::uint64_t count_of_seeds) {
    Simulation simulation;
    Tally tally;
    int bad = 0;
    for (std::uint64_t seed = first; seed < first + count_of_seeds; ++seed) {
        const Schedule schedule = draw_schedule(seed, simulation.n_templates());
        const Outcome outcome = simulation.run(schedule);
        count(schedule, outcome, tally);
        if (outcome.violations.empty() || ++bad > 10) continue;
        ADD_FAILURE() << describe(schedule) << "\n  " << outcome.violations[0];
    }
    EXPECT_EQ(bad, 0) << "schedules with a violated invariant";
    return tally;
}

constexpr std::uint64_t kSchedules = 10'000;

TEST(Protocol, HoldsOverTenThousandSchedules) {
    const Tally tally = sweep(1, kSchedules);
    std::cout << tally.schedules << " schedules: " << tally.rounds << " rounds, " << tally.accepted
              << " drafted tokens were accepted, " << tally.ahead << " rounds foreseen, " << tally.served << " texts, "
              << tally.interrupted << " interrupted, " << tally.failed << " failed, " << tally.misled
              << " ranks misled; faults";
    for (const auto& [kind, times] : tally.by_fault)
        std::cout << " " << describe({.kind = kind}).substr(0, describe({.kind = kind}).find(',')) << " " << times;
    std::cout << "\n";
    EXPECT_EQ(tally.by_fault.size(), 10U) << "every kind of fault has struck";
    EXPECT_GT(tally.ahead, 0);
}

TEST(Protocol, ASeedIsASchedule) {
    Simulation first, second;
    second.run(draw_schedule(77, second.n_templates())); // earlier runs do not matter
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Schedule schedule = draw_schedule(seed, first.n_templates());
        EXPECT_EQ(first.run(schedule).trace, second.run(schedule).trace) << describe(schedule);
    }
}

TEST(Protocol, OneScheduleByItsSeed) {
    if (GTEST_FLAG_GET(random_seed) == 0) GTEST_SKIP() << "asks for a seed: --gtest_random_seed=SEED";
    Simulation simulation;
    const auto seed = static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed));
    const Schedule schedule = draw_schedule(seed, simulation.n_templates());
    const Outcome outcome = simulation.run(schedule);
    SCOPED_TRACE(describe(schedule));
    for (const std::string& violation : outcome.violations)
        ADD_FAILURE() << violation;
    std::cout << describe(schedule) << "\nthe fault struck at " << outcome.fault_at << "\n";
    for (const RankEnd& end : outcome.ends)
        std::cout << shown(end) << ", at " << end.at << "\n";
}

} // namespace protocol_test
