// The desk by letters: see remote_desk.h.
#include "launch/serve/remote_desk.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace entrodraft::launch {

RemoteDesk::RemoteDesk(const GenerateOptions& options, const PromptLimits& limits, dist::Mailbox& mailbox,
                       const dist::RankLayout& layout, const dist::Clock& clock, int slots)
    : options_(&options), limits_(limits), letters_(mailbox, layout, clock, options.models.collective_timeout_seconds),
      slots_(slots) {}

// Says how this replica stands, where the desk does not know it yet.
void RemoteDesk::ask(bool urgent, bool idle) {
    AskLetter now = {ask_.asked, received_, urgent, idle};
    const std::int64_t in_hand = static_cast<std::int64_t>(in_hand_.size());
    now.asked += slots_ - in_hand - (ask_.asked - received_); // those in hand and those on their way
    if (now.asked == ask_.asked && now.urgent == ask_.urgent && now.idle == ask_.idle &&
        (!now.idle || now.received == ask_.received))
        return;
    ask_ = now;
    letters_.send(kDeskReplica, LetterKind::ask, pack(now));
}

std::optional<Work> RemoteDesk::next(bool idle) {
    const auto deadline =
        dist::Deadline::after_seconds(idle ? patience_seconds(options_->models.collective_timeout_seconds) : 0);
    for (;;) {
        read_letters();
        if (!in_hand_.empty()) {
            Work work = std::move(in_hand_.front());
            in_hand_.pop_front();
            ask(false, false);
            return work;
        }
        if (over_ || stops_) return std::nullopt;
        ask(true, idle);
        if (!idle || deadline.passed()) return std::nullopt;
        if (const auto letter = letters_.await(patience_seconds(options_->models.collective_timeout_seconds)))
            take(*letter);
    }
}

void RemoteDesk::put(const Result& result) {
    letters_.send(kDeskReplica, LetterKind::result, pack(result));
}

void RemoteDesk::put_trace(std::string_view line) {
    letters_.send(kDeskReplica, LetterKind::trace, line);
}

void RemoteDesk::note(std::string_view line) {
    letters_.send(kDeskReplica, LetterKind::note, line);
}

bool RemoteDesk::step() {
    read_letters();
    return !stops_;
}

void RemoteDesk::read_letters() {
    while (const auto letter = letters_.poll())
        take(*letter);
    letters_.keep_alive();
}

void RemoteDesk::take(const dist::Letter& letter) {
    switch (static_cast<LetterKind>(letter.kind)) {
    case LetterKind::work: {
        WorkLetter work = unpack_work(letter.bytes);
        InputItem item = parse_request({std::move(work.line), false, true}, work.number, options_->requests, limits_);
        auto* request = std::get_if<spec::Request>(&item);
        if (request == nullptr) // the desk found it good
            throw std::runtime_error("line " + std::to_string(work.number) + " of the input: " +
                                     std::get<BadLine>(item).error + "; the ranks do not hold the same files");
        in_hand_.push_back({work.order, std::move(*request)});
        ++received_;
        return;
    }
    case LetterKind::over:
        over_ = true;
        return;
    case LetterKind::stop:
        stops_ = true;
        return;
    case LetterKind::closed:
        closed_ = true;
        return letters_.dismiss(kDeskReplica);
    default:
        throw std::runtime_error("the desk sent a letter of kind " + std::to_string(letter.kind));
    }
}

void RemoteDesk::close(const Tally& own, bool interrupted) {
    letters_.send(kDeskReplica, LetterKind::farewell, pack(FarewellLetter{own, interrupted}));
    while (!closed_) {
        if (const auto letter = letters_.await(0.01)) take(*letter);
        letters_.keep_alive();
    }
    letters_.flush();
}

} // namespace entrodraft::launch
