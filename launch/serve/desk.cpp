// Reading, dealing and writing: see desk.h.
#include "launch/serve/desk.h"

#include "launch/failure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace entrodraft::launch {

namespace {

constexpr int kOwnReplica = kDeskReplica;
constexpr double kGlanceSeconds = 0.002; // at the input, before the letters have their turn again

} // namespace

double patience_seconds(double collective_timeout_seconds) {
    return std::clamp(collective_timeout_seconds / 4, 0.001, 0.2);
}

Desk::Desk(const GenerateOptions& options)
    : options_(&options), writer_(options.output, options.resume ? Existing::resume : Existing::refuse),
      progress_(options.quiet || options.prompt.has_value()) {
    if (!streams()) lines_ = std::make_unique<LineReader>(options.input);
    if (!options.trace.empty()) trace_.emplace(options.trace, Existing::refuse, "--trace");
    if (!options.timeline.empty()) timeline_.emplace(options.timeline, Existing::refuse, "--timeline");
}

void Desk::begin(const PromptLimits& limits) {
    if (const std::string why = spec::why_invalid(options_->requests.processing, limits.vocab_size); !why.empty())
        throw BadOption(why);
    if (streams()) {
        InputItem item = request_of_prompt(*options_->prompt, options_->requests, limits);
        if (const auto* bad = std::get_if<BadLine>(&item)) throw BadOption("--prompt: " + bad->error);
        ahead_.push_back({{next_order_++, std::move(std::get<spec::Request>(item))}, 0, ""});
        input_ended_ = true;
        return;
    }
    reader_.emplace(std::move(lines_), options_->requests, limits);
    if (options_->share) reader_->keep(*options_->share);
    skip_served(*reader_, writer_, options_->output);
    next_order_ = resumed();
}

void Desk::open(dist::Mailbox& mailbox, const dist::RankLayout& layout, const dist::Clock& clock, int slots) {
    writer_.keep();
    if (trace_) trace_->keep();
    branches_.resize(static_cast<std::size_t>(layout.replicas));
    slots_ = branches_.size() * static_cast<std::size_t>(slots);
    if (layout.replicas > 1) letters_.emplace(mailbox, layout, clock, options_->models.collective_timeout_seconds);
}

// ---- reading ahead ----

bool Desk::is_over() const {
    return input_ended_ && ahead_.empty() &&
           std::all_of(branches_.begin() + 1, branches_.end(), [](const Branch& branch) { return branch.is_idle(); });
}

bool Desk::is_full() const {
    return next_order_ - writer_.written() >= kMostAhead * static_cast<std::int64_t>(slots_);
}

// With one replica a line is read when it is asked for; with several, some lie ready, so that it is known in time
// whether there are enough for all.
void Desk::look_ahead(double patience_seconds) {
    const std::size_t most = letters_ ? slots_ + 1 : 1;
    while (ahead_.size() < most && !input_ended_ && !is_full()) {
        reader_->lines().set_patience(std::chrono::milliseconds(std::lround(patience_seconds * 1e3)));
        std::optional<InputItem> item = reader_->next();
        if (!item) {
            input_ended_ = !reader_->lines().waiting() && !reader_->lines().interrupted();
            return;
        }
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            ++bad_lines_;
            progress_.clear();
            writer_.put(next_order_++, error_line(*bad));
            continue;
        }
        ahead_.push_back({{next_order_++, std::move(std::get<spec::Request>(*item))}, reader_->last_number(), ""});
        if (letters_) ahead_.back().line = reader_->last_line().text;
    }
}

// ---- replica 0 ----

// A signal that interrupts the wait is no answer: it is told to all ranks in the status word of the next step.
std::optional<Work> Desk::next(bool idle) {
    const double patience = idle ? patience_seconds(options_->models.collective_timeout_seconds) : 0;
    const auto deadline = dist::Deadline::after_seconds(patience);
    const double glance = letters_ ? std::min(patience, kGlanceSeconds) : patience;
    for (;;) {
        look_ahead(glance);
        if (letters_) serve();
        if (!ahead_.empty()) {
            Work work = std::move(ahead_.front().work);
            ahead_.pop_front();
            out_.emplace(work.order, kOwnReplica);
            return work;
        }
        if (!idle || is_over() || stops_ || deadline.passed()) break;
        if (reader_ && reader_->lines().interrupted()) break;
        if (letters_ && (input_ended_ || is_full()))
            if (const auto letter = letters_->await(kGlanceSeconds)) take(*letter);
    }
    if (idle && is_over()) say_over();
    return std::nullopt;
}

void Desk::put(const Result& result) {
    write(result, kOwnReplica);
}

void Desk::write(const Result& result, int replica) {
    const auto handed_out = out_.find(result.order);
    if (handed_out == out_.end() || handed_out->second != replica)
        throw std::runtime_error("replica " + std::to_string(replica) + " has a result of prompt " +
                                 std::to_string(result.order) + ", which it was not given");
    out_.erase(handed_out);
    if (streams()) return writer_.write_text("\n");
    progress_.clear();
    writer_.put(result.order, result.line);
    new_tokens_ += result.new_tokens;
    progress_.update(reader_->fraction(), next_order_, new_tokens_);
}

void Desk::put_trace(std::string_view line) {
    trace_->write_text(std::string(line) + "\n");
}

void Desk::put_timeline(std::string_view text) {
    try {
        timeline_->write_text(text);
    } catch (...) {
        timeline_->cut_to(0); // half of it is no JSON
        throw;
    }
}

void Desk::put_text(std::string_view text) {
    if (streams()) writer_.write_text(text);
}

void Desk::note(std::string_view line) {
    progress_.clear();
    say(std::string(line));
}

bool Desk::step() {
    if (letters_) serve();
    return !stops_;
}

// ---- the other replicas ----

void Desk::serve() {
    while (const auto letter = letters_->poll())
        take(*letter);
    deal();
    letters_->keep_alive();
}

void Desk::take(const dist::Letter& letter) {
    Branch& branch = branches_.at(static_cast<std::size_t>(letter.from));
    switch (static_cast<LetterKind>(letter.kind)) {
    case LetterKind::ask:
        branch.ask = unpack_ask(letter.bytes);
        return;
    case LetterKind::result:
        return write(unpack_result(letter.bytes), letter.from);
    case LetterKind::trace:
        return put_trace(unpack_text(letter.bytes));
    case LetterKind::note:
        return note(unpack_text(letter.bytes));
    case LetterKind::farewell:
        branch.farewell = unpack_farewell(letter.bytes);
        stops_ = stops_ || branch.farewell->interrupted;
        return letters_->dismiss(letter.from);
    default:
        throw std::runtime_error("replica " + std::to_string(letter.from) + " sent the desk a letter of kind " +
                                 std::to_string(letter.kind));
    }
}

// Whose turn it is: those that have room first; those that want one in advance only while there is one for everybody.
Desk::Branch* Desk::next_to_serve() {
    for (const bool urgent : {true, false}) {
        if (ahead_.size() <= (urgent ? 0 : slots_)) break;
        for (std::size_t i = 1; i <= branches_.size(); ++i) {
            const std::size_t replica = (last_served_ + i) % branches_.size();
            if (replica == kOwnReplica || !branches_[replica].wants() || (urgent && !branches_[replica].ask.urgent))
                continue;
            last_served_ = replica;
            return &branches_[replica];
        }
    }
    return nullptr;
}

void Desk::deal() {
    while (!stops_) {
        look_ahead(0);
        Branch* const branch = next_to_serve();
        if (branch == nullptr) return;
        const Ahead& first = ahead_.front();
        const int replica = static_cast<int>(branch - branches_.data());
        letters_->send(replica, LetterKind::work, pack(WorkLetter{first.work.order, first.number, first.line}));
        out_.emplace(first.work.order, replica);
        ++branch->sent;
        ahead_.pop_front();
    }
}

void Desk::say_over() {
    if (!letters_ || std::exchange(said_over_, true)) return;
    for (std::size_t replica = 1; replica < branches_.size(); ++replica)
        letters_->send(static_cast<int>(replica), LetterKind::over);
}

std::vector<Tally> Desk::close(const Tally& own, bool interrupted) {
    stops_ = stops_ || interrupted;
    std::vector<Tally> tallies = {own};
    if (letters_) {
        const auto is_gone = [](const Branch& branch) { return branch.farewell.has_value(); };
        for (std::size_t replica = 1; stops_ && replica < branches_.size(); ++replica)
            letters_->send(static_cast<int>(replica), LetterKind::stop);
        while (!std::all_of(branches_.begin() + 1, branches_.end(), is_gone)) {
            if (const auto letter = letters_->await(kGlanceSeconds)) take(*letter);
            letters_->keep_alive();
        }
        for (std::size_t replica = 1; replica < branches_.size(); ++replica) {
            letters_->send(static_cast<int>(replica), LetterKind::closed);
            tallies.push_back(branches_[replica].farewell->tally);
        }
        letters_->flush();
    }
    progress_.clear();
    if (streams() && stops_) writer_.write_text("\n");
    writer_.require_intact();
    if (trace_) trace_->require_intact();
    return tallies;
}

} // namespace entrodraft::launch
