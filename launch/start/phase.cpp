// Does work that ends in agreement: see phase.h.
#include "launch/start/phase.h"

#include "dist/comm/agreement.h"
#include "launch/start/failure.h"
#include "spec/verify/random.h"

#include <new>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr int kWriterRank = 0; // RankLayout::is_writer()

dist::Status status_of(const std::function<void()>& work) {
    try {
        work();
        return {};
    } catch (const OrderlyFailure& failure) {
        return {failure.what(), failure.exit_code()};
    } catch (const BadOption& error) {
        return {error.what(), kBadOptions};
    } catch (const std::invalid_argument& error) { // sizes that do not fit the number of ranks
        return {error.what(), kBadOptions};
    } catch (const std::bad_alloc&) {
        return {"out of memory", kFailure};
    } catch (const std::exception& error) {
        return {error.what(), kFailure};
    }
}

} // namespace

void in_agreement(dist::Session& session, double timeout_seconds, const std::function<void()>& work) {
    dist::Status mine = status_of(work);
    mine.place = session.position();
    const auto all = dist::agree(session.world(), mine, dist::Deadline::after_seconds(timeout_seconds));
    if (!all.ok()) throw OrderlyFailure(all.exit_code, all.message);
}

void in_agreement(dist::Session& session, const std::function<void()>& work) {
    in_agreement(session, session.timeout_seconds(), work);
}

void require_same(dist::Session& session, const std::string& what, const std::string& text) {
    const std::uint64_t checksum = spec::hash_bytes(text.data(), text.size());
    const auto same = dist::same_on_all_ranks(session.world(), checksum, what, session.deadline());
    if (!same.ok()) throw OrderlyFailure(same.exit_code, same.message);
}

std::int64_t from_writer(dist::Session& session, std::int64_t value) {
    session.world().broadcast(&value, sizeof value, kWriterRank, session.deadline());
    return value;
}

} // namespace entrodraft::launch
