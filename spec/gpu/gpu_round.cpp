// Drafting and verification on a GPU, as extensions of passes: see spec/gpu/device_round.h.
#include "spec/gpu/device_round.h"

#include "model/gpu/summed_array.h"
#include "model/pass/decoder.h"
#include "spec/gpu/kernels.h"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

namespace entrodraft::spec::gpu {

namespace {

using model::DeviceLogits;
constexpr std::size_t kMaxVerified = model::Decoder::kMaxRows;

// A draft that the device continues by itself. Its rows may stay there for the verification.
class DraftLoop final : public model::DeviceExtension {
  public:
    void set(const DeviceStopRule& rule, int first_kept) {
        host_state_.data()->rule = rule;
        host_state_.data()->kept_row = first_kept;
    }
    // The row that drafted token `number` was drawn from; null if this rank has never kept a row.
    const float* kept_row(int number) const {
        const auto found = kept_.find(stride_);
        return found == kept_.end() ? nullptr : found->second.data() + static_cast<std::size_t>(number) * stride_;
    }

    int form() const override { return keeps() ? 1 : 0; }
    void prepare(const DeviceLogits& logits, dist::Deadline) override {
        if (!keeps()) return;
        stride_ = logits.stride();
        DeviceArray<float>& kept = kept_[stride_];
        if (kept.size() == 0) kept = DeviceArray<float>(DeviceRound::kMaxKept * stride_);
    }
    void copy_in(const DeviceLogits& logits) override {
        copy_by_kernel(logits.stream, state_.data(), host_state_.data(), offsetof(DraftState, history));
    }
    void enqueue(const DeviceLogits& logits) override {
        if (keeps())
            keep_row(logits.stream.handle(),
                     {logits.logits, logits.stride(), &state_.data()->kept_row, kept_.at(logits.stride()).data()});
    }
    int max_rows() const override { return host_state_.data()->rule.max_rows; }
    void decide(const Stream& stream, const DeviceLoop& loop) override {
        decide_next_row(stream.handle(), {loop, state_.data()});
    }

  private:
    bool keeps() const { return host_state_.data()->kept_row >= 0; }

    DeviceArray<DraftState> state_{1};
    PinnedArray<DraftState> host_state_{1};
    std::map<std::size_t, DeviceArray<float>> kept_; // by vocabulary: [kMaxKept][vocabulary]
    std::size_t stride_ = 0;                         // of the latest kept rows
};

// A tree that the device grows by itself, or one level of any number of rows.
class TreeLoop final : public model::DeviceExtension {
  public:
    void set(const DeviceTreePlan& plan) {
        const auto& [key, position, temperature] = plan.noise;
        *host_start_.data() = {plan, {{key[0], key[1]}, position, temperature}};
        vocab_size_ = 0;
        forget();
    }
    void set(int n_rows, int n, int vocab_size) {
        DeviceTreePlan plan;
        plan.n_children = n;
        *host_start_.data() = {plan, {}, n_rows};
        vocab_size_ = vocab_size;
        forget();
    }
    void forget() { host_tree_.data()->n_rows = 0; }
    std::span<const GrownRow> grown() const {
        return {host_tree_.data()->rows, static_cast<std::size_t>(host_tree_.data()->n_rows)};
    }

    void prepare(const DeviceLogits&, dist::Deadline) override {
        if (parts_.size() > 0) return;
        constexpr std::size_t kParts = static_cast<std::size_t>(kMaxLoopRows) * RankCall::kParts;
        parts_ = DeviceArray<RankCall::Part>(kParts * DeviceTreePlan::kMaxChildren);
        part_stats_ = DeviceArray<DeviceLogitStats>(kParts);
    }
    void copy_in(const DeviceLogits& logits) override {
        copy_by_kernel(logits.stream, static_cast<TreeStart*>(state_.data()), host_start_.data(), sizeof(TreeStart));
    }
    void enqueue(const DeviceLogits& logits) override {
        const dist::Slice own = logits.local_vocab;
        const auto known = static_cast<int>(std::clamp<std::int64_t>(vocab_size_ - own.begin, 0, own.size()));
        rank_rows(logits.stream.handle(),
                  {logits.logits, logits.stride(), logits.rows, vocab_size_ > 0 ? known : logits.counted, logits.tokens,
                   logits.stats, state_.data(), parts_.data(), part_stats_.data(), tree_.data()});
    }
    void copy_out(const DeviceLogits& logits) override {
        copy_by_kernel(logits.stream, host_tree_.data(), tree_.data(), DeviceTree::bytes_of_rows(logits.rows));
    }
    int max_rows() const override { return plan().max_levels > 0 ? 1 + plan().max_nodes : 1; }
    int tree_width() const override { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(plan().width))); }
    void decide(const Stream& stream, const DeviceLoop& loop) override {
        grow_tree(stream.handle(), {loop, state_.data(), tree_.data(), tree_width()});
    }
    void copy_loop_out(const Stream& stream, int rows) override {
        copy(stream, host_tree_.data(), tree_.data(), DeviceTree::bytes_of_rows(rows));
    }

  private:
    const DeviceTreePlan& plan() const { return host_start_.data()->plan; }

    int vocab_size_ = 0; // for a level: tokens that may be selected
    DeviceArray<TreeState> state_{1};
    PinnedArray<TreeStart> host_start_{1};
    DeviceArray<DeviceTree> tree_{1};
    PinnedArray<DeviceTree> host_tree_{1};
    DeviceArray<RankCall::Part> parts_;
    DeviceArray<DeviceLogitStats> part_stats_;
};

// Verifies the target's rows by the draft's. If the vocabulary is sharded, an all-reduce of the ranks' parts first
// makes whole rows. Only rank 0 has the draft's rows, so only its verification counts.
class VerifyExtension final : public model::DeviceExtension {
  public:
    void set(std::span<const DraftedRow> rows, const DraftLoop& draft);
    std::span<const VerifiedRow> verified() const { return host_verified_.span().first(n_rows_); }

    void prepare(const DeviceLogits& logits, dist::Deadline deadline) override {
        if (logits.tp.size() > 1 && whole_rows_.size() == 0)
            whole_rows_ = SummedArray(logits.tp, kMaxVerified * static_cast<std::size_t>(logits.vocab_size), deadline);
    }
    void copy_in(const DeviceLogits& logits) override {
        copy_by_kernel(logits.stream, drafted_.data(), host_drafted_.data(),
                       static_cast<std::size_t>(logits.rows) * sizeof(DeviceDraftedRow));
    }
    void enqueue(const DeviceLogits& logits) override;
    void copy_out(const DeviceLogits& logits) override {
        copy_by_kernel(logits.stream, host_verified_.data(), verified_.data(),
                       static_cast<std::size_t>(logits.rows) * sizeof(VerifiedRow));
    }

  private:
    std::size_t n_rows_ = 0;
    PinnedArray<DeviceDraftedRow> host_drafted_{kMaxVerified};
    PinnedArray<VerifiedRow> host_verified_{kMaxVerified};
    DeviceArray<DeviceDraftedRow> drafted_{kMaxVerified};
    DeviceArray<VerifiedRow> verified_{kMaxVerified};
    DeviceArray<VerifyMasses> mass_parts_{kMaxVerified * kStatsBlocks}, masses_{kMaxVerified};
    DeviceArray<VerifyPart> parts_{kMaxVerified * kStatsBlocks};
    SummedArray whole_rows_; // [kMaxVerified][vocab_size]
};

void VerifyExtension::set(std::span<const DraftedRow> rows, const DraftLoop& draft) {
    n_rows_ = rows.size();
    std::fill_n(host_drafted_.data(), kMaxVerified, DeviceDraftedRow{}); // padding has temperature 0
    int number = 0;                                                      // of the drafted token in its text
    for (std::size_t i = 0; i < rows.size(); ++i, ++number) {
        const DraftedRow& row = rows[i];
        if (row.is_first) number = 0;
        host_drafted_.data()[i] = {row.drafted >= 0 ? draft.kept_row(number) : nullptr,
                                   {{row.noise.key[0], row.noise.key[1]}, row.noise.position, row.noise.temperature},
                                   row.drafted,
                                   row.is_first ? 1 : 0,
                                   row.is_scaled ? 1 : 0,
                                   row.lenience};
    }
}

void VerifyExtension::enqueue(const DeviceLogits& logits) {
    void* const stream = logits.stream.handle();
    VerifyCall call = {logits.logits,      logits.stride(), logits.rows,   logits.counted,  drafted_.data(),
                       mass_parts_.data(), masses_.data(),  parts_.data(), verified_.data()};
    if (logits.tp.size() > 1) {
        call.logits = whole_rows_.data();
        call.stride = static_cast<std::size_t>(logits.vocab_size);
        widen_rows(stream,
                   {logits.logits, static_cast<int>(logits.stride()), static_cast<int>(logits.local_vocab.begin),
                    whole_rows_.data(), logits.vocab_size, logits.rows});
        logits.tp.enqueue_all_reduce_sum(whole_rows_.data(), static_cast<std::size_t>(logits.rows) * call.stride,
                                         dist::ElementType::float32, stream);
    }
    verify_rows(stream, call);
}

class GpuRound final : public DeviceRound {
  public:
    model::DeviceExtension* draft(const DeviceStopRule& rule, int first_kept) override {
        if (first_kept >= kMaxKept) throw std::invalid_argument("more rows are to be kept than there is room for");
        DeviceStopRule bounded = rule;
        if (first_kept >= 0) bounded.max_rows = std::min(rule.max_rows, kMaxKept - first_kept);
        loop_.set(bounded, first_kept);
        tree_.forget();
        return &loop_;
    }
    model::DeviceExtension* grow(const DeviceTreePlan& plan) override {
        tree_.set(plan);
        return &tree_;
    }
    std::span<const GrownRow> grown() const override { return tree_.grown(); }
    model::DeviceExtension* select(int n_rows, int n, int vocab_size) override {
        tree_.set(n_rows, n, vocab_size);
        return &tree_;
    }
    model::DeviceExtension* verify(std::span<const DraftedRow> rows) override {
        verification_.set(rows, loop_);
        return &verification_;
    }
    std::span<const VerifiedRow> verified() const override { return verification_.verified(); }

  private:
    DraftLoop loop_;
    TreeLoop tree_;
    VerifyExtension verification_;
};

} // namespace

std::unique_ptr<DeviceRound> make_device_round() {
    return std::make_unique<GpuRound>();
}

} // namespace entrodraft::spec::gpu
