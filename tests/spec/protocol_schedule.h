// One schedule of the simulated protocol, drawn from its seed: ranks, options, requests, delays, signals and faults.
// Plain data. For the simulation of the protocol only.
#pragma once

#include "tests/spec/protocol_network.h"

#include "dist/layout/layout.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/verify.h"

#include <string>
#include <vector>

namespace entrodraft {

constexpr int kReplicaGroup = 0, kTargetGroup = 1, kDraftGroup = 2; // numbers of groups

// A signal handler runs on `rank` when it begins its `call`-th collective of a group.
struct RaisedSignal {
    int group = kReplicaGroup;
    int rank = 0; // in the group
    int call = 0;
};

// The model that drafts ahead until the scores arrive; "model ahead" does so for a fixed number of passes.
constexpr const char* kAheadInTime = "model ahead in time";

struct Schedule {
    std::uint64_t seed = 0;
    int ranks = 1;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    int slots = 1; // sequences at once
    spec::Acceptance acceptance = spec::Acceptance::gumbel;
    std::string drafter; // none: plain decoding
    spec::StopRuleOptions rule;
    std::vector<std::size_t> requests; // numbers of templates, in order
    std::vector<int> idling;           // before each request and the end: how often there is no request yet
    bool is_plain = false;             // requests ask for no drafts
    Delays delays;
    std::vector<RaisedSignal> signals;
    int last_step = -1; // the coordinator's on_step ends the run before this step; -1: it does not
    Fault fault;

    int target_ranks() const { return ranks - (placement == dist::DraftPlacement::dedicated ? 1 : 0); }
};

constexpr double kTimeoutSeconds = 1000; // of every collective, simulated
constexpr int kMaxRanks = 4, kMaxSlotsOfSchedules = 4;

inline spec::StopRuleOptions rule_with(const std::string& kind, int cap) {
    spec::StopRuleOptions rule(kind);
    rule.max_tokens = cap;
    if (kind == "constant") rule.set("tokens", std::min(cap, 3));
    return rule;
}

inline Delays draw_delays(Dice& dice, int ranks) {
    Delays delays;
    if (dice.chance(0.1)) return delays; // everything at once
    delays.message = dice.chance(0.5) ? 1 : 0.01;
    delays.compute = dice.chance(0.5) ? 1 : 0.01;
    if (dice.chance(0.3)) delays.rare_message = 3;
    if (dice.chance(0.3)) delays.slow_task = dice.below(ranks);
    delays.senders_wait = dice.chance(0.3);
    return delays;
}

// Draws a moment of the run; early ones are as likely as late ones.
inline int draw_call(Dice& dice, int group) {
    const int most = group == kReplicaGroup ? 50 : 250;
    return dice.chance(0.3) ? dice.below(8) : dice.below(most);
}

inline Fault draw_fault(Dice& dice, const Schedule& schedule) {
    using enum FaultKind;
    const std::vector<FaultKind> kinds = {dies_before,   dies_within, dies_at_step, stalls, stalls, loses_sent,
                                          loses_awaited, twisted,     twisted,      stale,  throws, callback_throws};
    Fault fault;
    fault.kind = dice.one_of(kinds);
    if (schedule.ranks == 1) fault.kind = dice.chance(0.5) ? throws : callback_throws; // no other rank waits
    const bool is_received = fault.kind == twisted || fault.kind == stale;
    const bool is_own = fault.kind == dies_at_step || fault.kind == throws || fault.kind == callback_throws;
    if (!is_received && !is_own && schedule.target_ranks() > 1 && dice.chance(0.5)) fault.group = kTargetGroup;
    const int most = (fault.group == kTargetGroup ? schedule.target_ranks() : schedule.ranks) - 1;
    fault.rank = fault.kind == callback_throws ? 0 : dice.between(is_received ? 1 : 0, most);
    fault.call = draw_call(dice, fault.group);
    fault.seconds = kTimeoutSeconds * (dice.chance(0.3) ? 0.3 : 1.2 + 2 * dice.uniform());
    fault.bit = dice.next();
    return fault;
}

// The caller gives the number of templates that a schedule may ask for.
inline Schedule draw_schedule(std::uint64_t seed, std::size_t n_templates) {
    const std::vector<std::string> drafters = {"",       "model",  "model",        "model",        "ngram",
                                               "random", "bigram", "model<bigram", "bigram<ngram", "ngram,model",
                                               "suffix"};
    const std::vector<spec::StopRuleOptions> rules = {rule_with("constant", 4),       rule_with("constant", 1),
                                                      rule_with("static", 15),        rule_with("heuristic", 8),
                                                      rule_with("moving-average", 2), rule_with("expected-gain", 15)};
    Dice dice(seed);
    Schedule schedule;
    schedule.seed = seed;
    schedule.ranks = dice.between(1, kMaxRanks);
    if (schedule.ranks > 1 && dice.chance(0.4)) schedule.placement = dist::DraftPlacement::dedicated;
    schedule.slots = dice.chance(0.4) ? 1 : dice.between(2, kMaxSlotsOfSchedules);
    schedule.acceptance = dice.one_of(std::vector{spec::Acceptance::gumbel, spec::Acceptance::gumbel,
                                                  spec::Acceptance::rejection, spec::Acceptance::block});
    schedule.drafter = dice.one_of(drafters);
    if (schedule.placement == dist::DraftPlacement::dedicated && dice.chance(0.7)) {
        schedule.slots = 1;
        schedule.drafter = dice.chance(0.5) ? "model ahead" : kAheadInTime;
    }
    schedule.rule = dice.one_of(rules);
    const int n_requests = dice.chance(0.05) ? 0 : dice.between(1, schedule.slots > 1 ? 6 : 3);
    for (int i = 0; i < n_requests; ++i)
        schedule.requests.push_back(static_cast<std::size_t>(dice.below(static_cast<int>(n_templates))));
    for (int i = 0; i <= n_requests; ++i)
        schedule.idling.push_back(dice.chance(0.2) ? dice.between(1, 4) : 0);
    schedule.delays = draw_delays(dice, schedule.ranks);
    while (schedule.signals.size() < 3 && dice.chance(0.3)) {
        const int group = schedule.target_ranks() > 1 && dice.chance(0.3) ? kTargetGroup : kReplicaGroup;
        const int size = group == kTargetGroup ? schedule.target_ranks() : schedule.ranks;
        schedule.signals.push_back({group, dice.below(size), draw_call(dice, group)});
    }
    if (dice.chance(0.05)) schedule.last_step = dice.below(40);
    if (dice.chance(0.5)) schedule.fault = draw_fault(dice, schedule);
    const bool is_received = schedule.fault.kind == FaultKind::twisted || schedule.fault.kind == FaultKind::stale;
    if (schedule.ranks > 1 && schedule.drafter == "model" && !is_received &&
        schedule.placement == dist::DraftPlacement::colocated && dice.chance(0.5)) // orders carry no digest
        schedule.placement = dist::DraftPlacement::sharded;
    return schedule;
}

inline std::string describe(const Fault& fault) {
    const char* const names[] = {"none",
                                 "dies before",
                                 "dies within",
                                 "stalls",
                                 "loses what it sends",
                                 "loses what it awaits",
                                 "a twisted broadcast",
                                 "a stale broadcast",
                                 "dies at a step",
                                 "throws",
                                 "a callback throws"};
    if (fault.kind == FaultKind::none) return "none";
    return std::string(names[static_cast<int>(fault.kind)]) + ", group " + std::to_string(fault.group) + " rank " +
           std::to_string(fault.rank) + " call " + std::to_string(fault.call) + " seconds " +
           std::to_string(fault.seconds);
}

inline std::string describe(const Schedule& schedule) {
    std::string text = "seed " + std::to_string(schedule.seed) + ": " + std::to_string(schedule.ranks) + " ranks" +
                       (schedule.placement == dist::DraftPlacement::dedicated ? ", the first drafts"
                        : schedule.placement == dist::DraftPlacement::sharded ? ", all draft"
                                                                              : "") +
                       ", " + std::to_string(schedule.slots) + " slots, " + to_string(schedule.acceptance) +
                       ", drafter " + schedule.drafter + ", rule " + schedule.rule.name() + " cap " +
                       std::to_string(schedule.rule.max_tokens) + ", requests";
    for (const std::size_t request : schedule.requests)
        text += " " + std::to_string(request);
    for (const RaisedSignal& signal : schedule.signals)
        text += ", signal at group " + std::to_string(signal.group) + " rank " + std::to_string(signal.rank) +
                " call " + std::to_string(signal.call);
    if (schedule.last_step >= 0) text += ", told to stop before step " + std::to_string(schedule.last_step);
    return text + ", fault: " + describe(schedule.fault);
}

} // namespace entrodraft
