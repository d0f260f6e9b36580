// A replica of simulated ranks, each an engine with its own decoder, and the outcome of one schedule. Checks everything
// that can be checked without a reference text. For the simulation of the protocol only.
#pragma once

#include "tests/spec/every_drafter.h"
#include "tests/spec/protocol_schedule.h"
#include "tests/spec/protocol_watch.h"

#include "spec/draft/sharded_draft_model.h"

#include <exception>

namespace entrodraft {

// A communicator whose transport changes from schedule to schedule: decoders are loaded once.
class Socket final : public dist::Communicator {
  public:
    Socket(int rank, int size) : rank_(rank), size_(size) {}
    void plug(dist::Communicator* transport) { transport_ = transport; }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return "socket"; }
    void start_all_reduce_sum(void* data, std::size_t count, dist::ElementType type) override {
        transport_->start_all_reduce_sum(data, count, type);
    }
    void start_broadcast(void* data, std::size_t bytes, int root) override {
        transport_->start_broadcast(data, bytes, root);
    }
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override {
        transport_->start_gather(mine, all, bytes, root);
    }
    void wait(dist::Deadline deadline) override { transport_->wait(deadline); }
    bool is_ready() override { return transport_->is_ready(); }

  private:
    int rank_, size_;
    dist::Communicator* transport_ = nullptr;
};

// The ranks' models, and everything else that schedules share.
class Fleet {
  public:
    Fleet() {
        for (std::size_t i = 0; i < 6; ++i)
            texts_.push_back(golden_expectations("llama-draft").at(i).at("greedy").get<std::vector<TokenId>>());
        table_.emplace(table_of(kVocab, texts_));
        for (int size = 1; size <= kMaxRanks; ++size)
            for (int rank = 0; rank < size; ++rank) {
                targets_.push_back(std::make_unique<Shard>(rank, size, eos_tokens(), model::WeightType::float32));
                drafts_.push_back(std::make_unique<Shard>(rank, size, eos_tokens(), model::WeightType::int8));
            }
    }

    // A rank's part of a model. With weights of 8-bit integers it is the draft of that target.
    struct Shard {
        Shard(int rank, int size, const std::vector<std::int64_t>& eos, model::WeightType type)
            : socket(rank, size), model(golden_directory("llama-draft"), options(socket, eos, type)) {}
        static TestModelOptions options(Socket& socket, const std::vector<std::int64_t>& eos, model::WeightType type) {
            TestModelOptions options;
            options.eos_token_ids = eos;
            options.tp = &socket;
            options.decoder.timeout_seconds = kTimeoutSeconds;
            options.decoder.n_slots = kMaxSlotsOfSchedules;
            options.decoder.weight_type = type;
            return options;
        }
        Socket socket;
        TestModel model;
    };
    Shard& draft_shard(int rank, int size) { return *drafts_[static_cast<std::size_t>(size * (size - 1) / 2 + rank)]; }
    Shard& target(int rank, int size) { return *targets_[static_cast<std::size_t>(size * (size - 1) / 2 + rank)]; }

    DrafterSources drafting(const dist::Clock& clock) {
        spec::DraftLimits limits{kVocab, {}};
        for (const std::int64_t token : eos_tokens())
            limits.eos_tokens.push_back(static_cast<TokenId>(token));
        for (int slot = spec::AheadOptions::kMaxOutcomes; slot >= 0; --slot) // clears what a dead rank has left
            draft.decoder.cache().truncate(slot, 0);
        return {limits, clock, &draft.decoder, nullptr, *table_, nullptr};
    }
    // The checkpoint's own ends of text, and one that the golden texts reach.
    std::vector<std::int64_t> eos_tokens() const { return {0, texts_[0][10]}; }
    const std::vector<std::vector<TokenId>>& texts() const { return texts_; }

    static constexpr int kVocab = 512;
    TestModel draft{golden_directory("llama-target"), draft_options()};
    model::Tokenizer tokenizer = model::Tokenizer::open(golden_directory("llama-draft"));
    TaskStacks stacks;

  private:
    static TestModelOptions draft_options() {
        TestModelOptions options;
        options.decoder.n_slots = 1 + spec::AheadOptions::kMaxOutcomes;
        return options;
    }

    std::vector<std::vector<TokenId>> texts_;
    std::optional<spec::TokenTable> table_;
    std::vector<std::unique_ptr<Shard>> targets_, drafts_; // by size of the group, then by rank
};

// The drafter of a schedule and its parts. `sharded`: the model, if it is sharded across the ranks.
struct Drafting {
    Drafting(Fleet& fleet, const Schedule& schedule, const dist::Clock& clock, spec::ShardedDraftModel* sharded)
        : every(fleet.drafting(clock)) {
        const spec::DraftLimits limits = fleet.drafting(clock).limits;
        if (sharded)
            drafter = spec::make_chain_drafter(
                std::make_unique<spec::ModelTexts>(*sharded, schedule.slots, limits.vocab_size),
                {limits, clock, schedule.slots});
        else if (schedule.drafter == kAheadInTime)
            drafter = spec::make_ahead_drafter(fleet.draft.decoder, {}, {limits, clock});
        else
            drafter = every.make(schedule.drafter, rule_with("constant", 3), schedule.slots);
    }
    EveryDrafter every;
    std::unique_ptr<spec::Drafter> drafter;
};

struct RankEnd {
    enum class How { finished, interrupted, failed, died, hung };
    How how = How::hung;
    std::string message, step; // for failed
    double at = 0;             // simulated seconds
};

// A request of the schedule that the coordinator has taken.
struct Taken {
    std::size_t said = 0; // tokens up to its last round
    std::string streamed;
    int times_served = 0;
    spec::Completion completion;
};

struct Outcome {
    std::vector<RankEnd> ends; // by rank
    std::vector<Taken> taken;  // in the order of the schedule
    std::size_t served = 0;
    int signals = 0;              // raised signals
    double fault_at = kNever;     // time when it struck
    std::vector<bool> was_misled; // by rank: has received a message that was not sent
    std::uint64_t rounds = 0, accepted = 0, trace = 0;
    std::vector<std::string> violations;
};

// Simulated time for measurements: a microsecond further at each look.
class SimClock final : public dist::Clock {
  public:
    explicit SimClock(const Tasks& tasks) : tasks_(tasks) {}
    double now_seconds() const override { return tasks_.now() + 1e-6 * static_cast<double>(++looks_); }

  private:
    const Tasks& tasks_;
    mutable std::uint64_t looks_ = 0;
};

// Runs one schedule.
class Replica {
  public:
    Replica(Fleet& fleet, const Schedule& schedule, std::vector<spec::Request> requests)
        : fleet_(fleet), schedule_(schedule), requests_(std::move(requests)), tasks_(fleet.stacks, schedule.seed + 1),
          clock_(tasks_), network_{tasks_, Dice(schedule.seed + 2), schedule.delays, schedule.fault, kNever, {}},
          replica_group_(network_, kReplicaGroup, tasks_from(0)),
          target_group_(network_, kTargetGroup, tasks_from(schedule.ranks - schedule.target_ranks())),
          draft_group_(network_, kDraftGroup, tasks_from(0)),
          watch_(
              {schedule.ranks, schedule.slots, schedule.rule.max_tokens,
               schedule.placement == dist::DraftPlacement::sharded},
              [this](int rank, int slot) { return cached(rank, slot); }, network_.violations),
          signals_(static_cast<std::size_t>(schedule.ranks)) {
        outcome_.ends.resize(static_cast<std::size_t>(schedule.ranks));
    }

    Outcome run();

  private:
    class SlowDrafter; // wraps a drafter; takes its time, and throws if the schedule says so
    class Steps;       // steps of a rank, at which it may die

    std::vector<int> tasks_from(int first) const {
        std::vector<int> tasks;
        for (int rank = first; rank < schedule_.ranks; ++rank)
            tasks.push_back(rank);
        return tasks;
    }
    dist::RankLayout layout_of(int rank) const { return make_layout(rank, schedule_.ranks, 1, schedule_.placement); }
    model::Decoder& decoder_of(const dist::RankLayout& layout) {
        return fleet_.target(layout.tp_rank, layout.tp_size).model.decoder;
    }
    int cached(int rank, int slot) {
        const dist::RankLayout layout = layout_of(rank);
        return layout.holds_target() ? decoder_of(layout).cache().length(slot) : -1;
    }

    void listen();
    void raise_signals(int group, int rank, int call);
    void live(int rank);
    spec::RunEnd serve(int rank);
    spec::EngineCallbacks callbacks();
    std::optional<spec::Request> next_request();
    void step_of_coordinator();

    Fleet& fleet_;
    const Schedule& schedule_;
    std::vector<spec::Request> requests_;
    Tasks tasks_;
    SimClock clock_;
    Network network_;
    SimGroup replica_group_, target_group_, draft_group_;
    ProtocolWatch watch_;
    std::vector<int> signals_;                 // what the handler of each rank has set
    std::map<std::pair<int, int>, int> calls_; // by group and rank
    int idled_ = 0;                            // times before the next request
    bool is_waiting_ = false;                  // for the next request
    int steps_of_coordinator_ = 0;             // of the coordinator's own
    int steps_taken_ = 0;                      // of the protocol
    Outcome outcome_;
};

class Replica::SlowDrafter final : public spec::Drafter {
  public:
    SlowDrafter(Replica& replica, spec::Drafter& inner) : Drafter(inner.facts()), replica_(replica), inner_(inner) {}
    void begin_sequence(int slot, const spec::Request& request) override { inner_.begin_sequence(slot, request); }
    void prefill(int slot, std::span<const TokenId> prompt) override { inner_.prefill(slot, prompt); }
    void observe(int slot, const spec::TargetOutcome& outcome) override { inner_.observe(slot, outcome); }
    void propose(std::span<const spec::DraftTask> tasks) override {
        replica_.step_of_coordinator();
        inner_.propose(tasks);
    }
    void draft_ahead(const std::function<bool()>& enough) override { inner_.draft_ahead(enough); }

  private:
    Replica& replica_;
    spec::Drafter& inner_;
};

class Replica::Steps final : public dist::StepWatch {
  public:
    Steps(Replica& replica, int rank) : replica_(replica), rank_(rank) {}
    void enter(std::uint64_t round, const char*) override {
        replica_.watch_.entered(rank_, round);
        const Fault& fault = replica_.schedule_.fault;
        const bool strikes = fault.kind == FaultKind::dies_at_step || fault.kind == FaultKind::throws;
        if (!strikes || fault.rank != rank_ || fault.call != steps_++) return;
        replica_.network_.fault_at = replica_.tasks_.now();
        if (fault.kind == FaultKind::dies_at_step) throw RankDied();
        throw std::runtime_error("made to fail");
    }

  private:
    Replica& replica_;
    int rank_;
    int steps_ = 0;
};

inline Outcome Replica::run() {
    listen();
    for (int rank = 0; rank < schedule_.ranks; ++rank)
        tasks_.add([this, rank] { live(rank); });
    tasks_.run();
    outcome_.violations = network_.violations;
    outcome_.fault_at = network_.fault_at;
    outcome_.rounds = watch_.rounds();
    outcome_.accepted = watch_.accepted();
    outcome_.trace = watch_.trace();
    for (int rank = 0; rank < schedule_.ranks; ++rank)
        outcome_.was_misled.push_back(watch_.was_misled(rank));
    return std::move(outcome_);
}

inline void Replica::listen() {
    replica_group_.on_start = [this](int rank, dist::Collective kind, std::span<const std::byte> data) {
        watch_.started(rank, kind, data);
        raise_signals(kReplicaGroup, rank, calls_[{kReplicaGroup, rank}]++);
    };
    replica_group_.on_end = [this](int rank, dist::Collective kind, std::span<const std::byte> data) {
        watch_.ended(rank, kind, data);
    };
    target_group_.on_start = [this](int rank, dist::Collective, std::span<const std::byte>) {
        watch_.pass_goes_on(rank + schedule_.ranks - schedule_.target_ranks());
        raise_signals(kTargetGroup, rank, calls_[{kTargetGroup, rank}]++);
    };
}

inline void Replica::raise_signals(int group, int rank, int call) {
    for (const RaisedSignal& signal : schedule_.signals) {
        if (signal.group != group || signal.rank != rank || signal.call != call) continue;
        const int first = group == kTargetGroup ? schedule_.ranks - schedule_.target_ranks() : 0;
        signals_[static_cast<std::size_t>(first + rank)] = 15;
        ++outcome_.signals;
    }
}

// Runs a rank from its start to its end, of any kind.
inline void Replica::live(int rank) {
    RankEnd& end = outcome_.ends[static_cast<std::size_t>(rank)];
    using How = RankEnd::How;
    try {
        end.how = serve(rank) == spec::RunEnd::finished ? How::finished : How::interrupted;
    } catch (const RankDied&) {
        end.how = How::died;
    } catch (const Hang&) {
        end.how = How::hung;
    } catch (const spec::RoundError& error) {
        end = {How::failed, error.what(), error.step(), 0};
    } catch (const std::exception& error) {
        end = {How::failed, error.what(), "callback", 0};
    }
    end.at = tasks_.now();
}

inline spec::RunEnd Replica::serve(int rank) {
    const dist::RankLayout layout = layout_of(rank);
    const bool coordinates = layout.is_coordinator();
    SimComm replica(replica_group_, rank);
    std::optional<SimComm> target_ranks;
    spec::EngineParts parts;
    if (layout.holds_target()) {
        target_ranks.emplace(target_group_, layout.tp_rank);
        fleet_.target(layout.tp_rank, layout.tp_size).socket.plug(&*target_ranks);
        parts.target = &decoder_of(layout);
        for (int slot = 0; slot < kMaxSlotsOfSchedules; ++slot)
            parts.target->cache().truncate(slot, 0);
    }
    std::optional<SimComm> draft_ranks;
    std::optional<spec::ShardedDraftModel> sharded;
    if (schedule_.placement == dist::DraftPlacement::sharded) {
        Fleet::Shard& shard = fleet_.draft_shard(rank, schedule_.ranks);
        draft_ranks.emplace(draft_group_, rank);
        shard.socket.plug(&*draft_ranks);
        for (int slot = 0; slot < kMaxSlotsOfSchedules; ++slot)
            shard.model.decoder.cache().truncate(slot, 0);
        sharded.emplace(shard.model.decoder, replica, kTimeoutSeconds);
        parts.sharded_draft = &*sharded;
    }
    std::optional<Drafting> drafting;
    if (coordinates && !schedule_.drafter.empty())
        drafting.emplace(fleet_, schedule_, clock_, sharded ? &*sharded : nullptr);
    std::optional<SlowDrafter> slow_drafter;
    if (drafting) slow_drafter.emplace(*this, *drafting->drafter);
    Steps steps(*this, rank);
    parts.layout = &layout;
    parts.replica = &replica;
    parts.drafter = slow_drafter ? &*slow_drafter : nullptr;
    parts.tokenizer = coordinates ? &fleet_.tokenizer : nullptr;
    parts.clock = &clock_;
    parts.target_config = &fleet_.target(0, 1).model.config;
    parts.target_pass_bytes = 1e6;
    parts.watch = &steps;

    spec::EngineOptions options;
    options.acceptance.kind = schedule_.acceptance;
    options.stop_rule = schedule_.rule;
    options.n_slots = schedule_.slots;
    options.vocab_size = Fleet::kVocab;
    options.timeout_seconds = kTimeoutSeconds;
    spec::Engine engine(options, parts);
    return engine.run(coordinates ? callbacks() : spec::EngineCallbacks{}, signals_[static_cast<std::size_t>(rank)]);
}

// Called before any work of the coordinator alone: takes its time, or fails.
inline void Replica::step_of_coordinator() {
    const Delays& delays = schedule_.delays;
    if (delays.compute > 0) tasks_.pause_until(tasks_.now() + delays.compute * network_.dice.uniform());
    if (schedule_.fault.kind != FaultKind::callback_throws || steps_of_coordinator_++ != schedule_.fault.call) return;
    network_.fault_at = tasks_.now();
    throw std::runtime_error("made to fail");
}

inline std::optional<spec::Request> Replica::next_request() {
    step_of_coordinator();
    const std::size_t next = outcome_.taken.size();
    is_waiting_ = idled_ < schedule_.idling[next];
    if (is_waiting_) {
        if (outcome_.served == next) tasks_.pause_until(tasks_.now() + 0.2); // nothing is under way
        ++idled_;
        return std::nullopt;
    }
    if (next == requests_.size()) return std::nullopt;
    idled_ = 0;
    outcome_.taken.emplace_back();
    return requests_[next];
}

inline spec::EngineCallbacks Replica::callbacks() {
    const auto of = [this](const spec::Request& request) -> Taken& {
        return outcome_.taken.at(std::stoul(request.id));
    };
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [this] { return next_request(); };
    callbacks.waiting = [this] { return is_waiting_; };
    callbacks.on_step = [this] {
        const bool goes_on = schedule_.last_step < 0 || steps_taken_++ < schedule_.last_step;
        if (!goes_on) watch_.told_to_stop();
        return goes_on;
    };
    callbacks.on_text = [this, of](const spec::Request& request, const spec::TextPiece& piece) {
        step_of_coordinator();
        of(request).streamed += piece.text;
    };
    callbacks.on_round = [this, of](const spec::Request& request, const spec::RoundTrace& round) {
        const auto before = static_cast<std::size_t>(round.position) - request.prompt.size();
        of(request).said = before + static_cast<std::size_t>(round.verification.accepted) + 1;
        step_of_coordinator();
    };
    callbacks.on_complete = [this, of](const spec::Request& request, spec::Completion completion) {
        step_of_coordinator();
        std::vector<TokenId> tokens = request.prompt;
        tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
        const auto& committed = watch_.retired();
        if (committed.size() > tokens.size() || !std::equal(committed.begin(), committed.end(), tokens.begin()))
            network_.violations.push_back("a text is not what the ranks have committed");
        ++outcome_.served;
        ++of(request).times_served;
        of(request).completion = std::move(completion);
    };
    return callbacks;
}

} // namespace entrodraft
