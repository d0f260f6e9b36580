#include "model/gpu/decoder.h"

#include "model/attention.h"
#include "model/decoder_backend.h"
#include "model/gpu/chain.h"
#include "model/gpu/summed_array.h"
#include "model/gpu/weights.h"
#include "model/pass_layout.h"
#include "model/rotary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <tuple>

namespace entrodraft::model::gpu {

namespace {

constexpr int kMaxRows = Decoder::kMaxRows;

std::size_t index(int value) {
    return static_cast<std::size_t>(value);
}

int aligned(int numbers) {
    return (numbers + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
}

const float* scales_of(const DeviceMatrix& matrix) {
    return matrix.scales.size() > 0 ? matrix.scales.data() : nullptr;
}

// Of activations and cache; of 8-bit weights what the checkpoint was made for, or the wider range.
NumberType number_type(WeightType type, WeightType stored) {
    switch (type) {
    case WeightType::float32:
        return NumberType::float32;
    case WeightType::bfloat16:
        return NumberType::bfloat16;
    case WeightType::float16:
        return NumberType::float16;
    case WeightType::int8:
    case WeightType::float8:
        return stored == WeightType::float16 ? NumberType::float16 : NumberType::bfloat16;
    }
    throw std::invalid_argument("a type of weights that GPUs do not know");
}

DeviceNoise on_device(const RowNoise& noise) {
    return {{noise.key[0], noise.key[1]}, noise.position, noise.temperature};
}

// Keys and values of all slots in device memory.
class DeviceCache final : public KvMemory {
  public:
    DeviceCache(NumberType type, int n_layers, int n_kv_heads, int head_dim, int n_slots, int capacity,
                const Stream& stream)
        : stream_(stream), n_layers_(n_layers) {
        const int positions = KvCache::whole_blocks(capacity);
        const int stride = (head_dim + kHeadAlign - 1) / kHeadAlign * kHeadAlign;
        view_ = {type, nullptr, nullptr, n_slots, n_kv_heads, positions, head_dim, stride};
        const std::size_t numbers =
            index(n_layers) * index(n_slots) * index(n_kv_heads) * index(positions) * index(view_.head_stride);
        keys_ = DeviceBytes(numbers * bytes_of(type));
        values_ = DeviceBytes(numbers * bytes_of(type));
        view_.keys = keys_.data();
        view_.values = values_.data();
    }

    const CacheView& view() const { return view_; }
    void copy_range(int from, int to, int begin, int end) override { move(from, to, begin, begin, end - begin); }
    void copy_position(int slot, int from, int to) override { move(slot, slot, from, to, 1); }

  private:
    void move(int from_slot, int to_slot, int from, int to, int count) const {
        const std::size_t position = index(view_.head_stride) * bytes_of(view_.type);
        for (int layer = 0; layer < n_layers_; ++layer)
            for (int head = 0; head < view_.n_kv_heads; ++head)
                for (std::byte* numbers : {keys_.data(), values_.data()}) {
                    const auto at = [&](int slot, int place) {
                        const std::size_t heads =
                            (index(layer) * index(view_.n_slots) + index(slot)) * index(view_.n_kv_heads) + index(head);
                        return numbers + (heads * index(view_.capacity) + index(place)) * position;
                    };
                    copy(stream_, at(to_slot, to), at(from_slot, from), index(count) * position);
                }
    }

    const Stream& stream_;
    int n_layers_;
    CacheView view_;
    DeviceBytes keys_, values_;
};

// What a pass tells the device of its rows, one block of memory on either side.
class Rows {
  public:
    // 32-bit columns, in the order in which they lie.
    enum Column {
        tokens,
        slots,
        positions,
        places,
        n_keys,
        first_keys,
        window_ends,
        prefix_slots,
        prefix_lengths,
        mask_begins,
        logit_rows,
        kept_rows, // of logit rows: their numbers among those kept
        n_columns
    };

    Rows() : host_(kWords), device_(kWords) {}

    std::int32_t& at(Column column, int row) const {
        return host_.data()[index(column) * index(kMaxRows) + index(row)];
    }
    std::uint64_t* mask(int row) const {
        return reinterpret_cast<std::uint64_t*>(host_.data() + kMasks) + index(row) * kMaskWords;
    }
    DeviceNoise& noise(int row) const { return reinterpret_cast<DeviceNoise*>(host_.data() + kNoises)[index(row)]; }
    std::int32_t* on_device(Column column) const { return device_.data() + index(column) * index(kMaxRows); }
    DeviceDraftedRow& drafted(int row) const {
        return reinterpret_cast<DeviceDraftedRow*>(host_.data() + kDrafted)[index(row)];
    }
    DeviceNoise* noises_on_device() const { return reinterpret_cast<DeviceNoise*>(device_.data() + kNoises); }
    const DeviceDraftedRow* drafted_on_device() const {
        return reinterpret_cast<const DeviceDraftedRow*>(device_.data() + kDrafted);
    }
    RowTable table(int rows) const {
        return {on_device(tokens),
                on_device(slots),
                on_device(positions),
                on_device(places),
                on_device(n_keys),
                on_device(first_keys),
                on_device(window_ends),
                on_device(prefix_slots),
                on_device(prefix_lengths),
                on_device(mask_begins),
                reinterpret_cast<const std::uint64_t*>(device_.data() + kMasks),
                rows};
    }
    void upload(const Stream& stream) const {
        copy(stream, device_.data(), host_.data(), kWords * sizeof(std::int32_t));
    }

  private:
    static constexpr std::size_t kMasks = static_cast<std::size_t>(n_columns) * kMaxRows;
    static constexpr std::size_t kNoises = kMasks + static_cast<std::size_t>(kMaxRows) * kMaskWords * 2;
    static constexpr std::size_t kDrafted = kNoises + static_cast<std::size_t>(kMaxRows) * sizeof(DeviceNoise) / 4;
    static constexpr std::size_t kWords = kDrafted + static_cast<std::size_t>(kMaxRows) * sizeof(DeviceDraftedRow) / 4;
    static_assert(sizeof(std::int32_t) == 4 && kNoises % 2 == 0 && sizeof(DeviceNoise) % 8 == 0);
    static_assert(kDrafted % 2 == 0 && sizeof(DeviceDraftedRow) % 8 == 0);
    PinnedArray<std::int32_t> host_;
    DeviceArray<std::int32_t> device_;
};

class GpuDecoder final : public DecoderBackend {
  public:
    GpuDecoder(const Checkpoint& checkpoint, const ModelConfig& model, const RankShard& held,
               const DecoderOptions& decoder_options, dist::Communicator& ranks)
        : GpuDecoder(checkpoint, model, held, decoder_options, ranks, std::make_unique<Stream>()) {}

    std::size_t weight_bytes() const override { return weights_.bytes_per_pass(); }
    double operations_per_row() const override { return weights_.operations_per_row(); }
    PassResult forward(const Pass& pass) override;
    bool has_device_draft_loop() const override { return tp_->size() == 1; }
    bool keeps_logits_on_device() const override { return true; }

  private:
    // What makes one graph unlike another.
    struct Form {
        int rows = 0;       // padded
        int logit_rows = 0; // padded
        int max_keys = 0;
        LogitSummary summary = LogitSummary::none;
        int known = 0;        // tokens that count in it
        int counted = 0;      // of these, the rank's own
        bool rows_too = true; // logits go to the host
        bool has_noise = false;
        bool keeps = false;
        bool verifies = false;
        int chain_rows = 0; // padded, of a chain
        bool is_summarized() const { return summary != LogitSummary::none || has_noise; }
        auto operator<=>(const Form&) const = default;
    };

    GpuDecoder(const Checkpoint& checkpoint, const ModelConfig& model, const RankShard& held,
               const DecoderOptions& decoder_options, dist::Communicator& ranks, std::unique_ptr<Stream> stream)
        : GpuDecoder(checkpoint, model, held, decoder_options, ranks, std::move(stream), nullptr) {}
    GpuDecoder(const Checkpoint& checkpoint, const ModelConfig& model, const RankShard& held,
               const DecoderOptions& decoder_options, dist::Communicator& ranks, std::unique_ptr<Stream> stream,
               DeviceCache* memory)
        : DecoderBackend(model, held, make_cache(model, held, decoder_options, *stream, memory),
                         decoder_options.capacity),
          options_(decoder_options), tp_(&ranks), stream_(std::move(stream)), cache_view_(memory->view()),
          weights_(checkpoint, config, shard, number_type(options_.weight_type, config.stored_type),
                   options_.weight_type, options_.progress) {
        options_.progress = nullptr; // its owner need not outlive the loading
        make_buffers();
    }

    static KvCache make_cache(const ModelConfig& model, const RankShard& held, const DecoderOptions& options,
                              const Stream& stream, DeviceCache*& memory) {
        const NumberType type = number_type(options.weight_type, model.stored_type);
        auto made = std::make_unique<DeviceCache>(type, model.n_layers, held.n_kv_heads(), model.head_dim,
                                                  options.n_slots, options.capacity, stream);
        memory = made.get();
        return KvCache({model.n_layers, held.n_kv_heads(), model.head_dim, options.n_slots, options.capacity},
                       std::move(made));
    }

    // A form that has been met.
    struct KnownForm {
        Graph graph;
        dist::Traffic sums; // of one launch
    };

    void make_buffers();
    void fill_rows(int padded);
    Form form_of(const Pass& pass) const;
    void make_room_for(const Form& form, const Pass& pass);
    int padded_keys(int keys) const;
    int chain_rows(const Pass& pass, const Form& form) const;
    void run_chain(const Pass& pass, const Form& pass_form, int max_rows);
    void take_row(const Form& form, const DeviceLogitStats& stats, const DeviceNoisy& noisy);
    void run(const Form& form);
    void await();
    void record(const Form& form);
    void compute(const Form& form);
    void run_layer(const Form& form, const DeviceLayer& layer, int number);
    void look_up(const Form& form);
    void make_logits(const Form& form);
    void summarize(const Form& form);
    void verify(const Form& form);
    void copy_out(const Form& form);

    void add_pending(int rows);
    void round_rows(float* from, int rows, int width, DeviceBytes& to);
    void multiply(const DeviceMatrix& matrix, const DeviceBytes& x, int rows, DeviceBytes& y);
    void multiply_delta(const DeviceMatrix& matrix, const DeviceBytes& x, int rows, bool add);
    void sum_over_ranks(float* data, std::size_t count);
    void add_and_norm_rows(int rows, float* x, const float* delta, const DeviceNorm& norm, void* out,
                           NumberType out_type, int out_stride, const std::int32_t* from_rows = nullptr);
    void attend_rows(const Form& form, const DeviceLayer& layer, int number);
    void keep_hidden(int layers_done);

    void* handle() const { return stream_->handle(); }
    int vocab() const { return static_cast<int>(shard.vocab.size()); }

    DecoderOptions options_;
    dist::Communicator* tp_;
    std::unique_ptr<Stream> stream_;
    CacheView cache_view_;
    DeviceWeights weights_;
    std::map<Form, KnownForm> forms_;
    std::map<Form, Graph> chains_; // by the form of their further rows
    PassLayout layout_;
    Rows rows_;

    DeviceArray<float> cosines_, sines_, slopes_;
    DeviceArray<std::int32_t> kv_heads_;
    SummedArray x_, delta_;                                         // float32: [kMaxRows][hidden_size]
    DeviceArray<float> normed_delta_, logits_, partial_;            // float32: [kMaxRows][...]
    DeviceBytes normed_, qkv_, attended_, wide_, inner_, embedded_; // in the number type, rows aligned
    DeviceArray<DeviceLogitStats> stats_parts_, stats_;
    DeviceArray<DeviceNoisy> noisy_parts_, noisy_;
    DeviceArray<float> kept_; // [kMaxKept][vocab], from the first row on that is to be kept
    SummedArray whole_rows_;  // [kMaxRows][all tokens], of verified rows that are sharded across ranks
    DeviceArray<VerifyMasses> mass_parts_, masses_;
    DeviceArray<VerifyPart> verify_parts_;
    DeviceArray<VerifiedRow> verified_;
    DeviceArray<ChainPlan> plan_; // [1]
    DeviceArray<ChainState> chain_;
    PinnedArray<float> host_logits_;
    PinnedArray<DeviceLogitStats> host_stats_;
    PinnedArray<DeviceNoisy> host_noisy_;
    PinnedArray<VerifiedRow> host_verified_;
    PinnedArray<ChainPlan> host_plan_;
    PinnedArray<ChainState> host_chain_;
    std::vector<float> hidden_;
    std::vector<kernels::LogitStats> summaries_;
    std::vector<NoisyToken> noisy_tokens_;
    std::vector<const float*> kept_rows_;
    bool pending_ = false; // delta_ is still to be added to x_
};

// ---- construction ----

void GpuDecoder::make_buffers() {
    const std::size_t number = bytes_of(weights_.type);
    const auto row_of = [&](int width) { return DeviceBytes(index(kMaxRows) * index(aligned(width)) * number); };
    const DeviceLayer& layer = weights_.layers.front();
    if (config.block == Block::sandwich)
        normed_delta_ = DeviceArray<float>(index(kMaxRows) * index(config.hidden_size));
    normed_ = row_of(config.hidden_size);
    qkv_ = row_of(layer.qkv.n);
    attended_ = row_of(layer.output.k);
    wide_ = row_of(layer.wide.n);
    inner_ = row_of(layer.down.k);
    if (weights_.project_in.n > 0) embedded_ = row_of(config.embedding_size);
    logits_ = DeviceArray<float>(index(kMaxRows) * index(vocab()));
    host_logits_ = PinnedArray<float>(logits_.size());
    stats_parts_ = DeviceArray<DeviceLogitStats>(index(kMaxRows) * kStatsBlocks);
    stats_ = DeviceArray<DeviceLogitStats>(kMaxRows);
    noisy_parts_ = DeviceArray<DeviceNoisy>(index(kMaxRows) * kStatsBlocks);
    noisy_ = DeviceArray<DeviceNoisy>(kMaxRows);
    plan_ = DeviceArray<ChainPlan>(1);
    chain_ = DeviceArray<ChainState>(1);
    host_stats_ = PinnedArray<DeviceLogitStats>(kMaxRows);
    host_noisy_ = PinnedArray<DeviceNoisy>(kMaxRows);
    host_plan_ = PinnedArray<ChainPlan>(1);
    host_chain_ = PinnedArray<ChainState>(1);
    partial_ = DeviceArray<float>(
        attend_workspace_floats(kMaxRows, shard.n_query_heads(), config.head_dim, cache_view_.capacity));

    const auto upload = [&]<typename T>(const std::vector<T>& values) {
        DeviceArray<T> array(values.size());
        copy(*stream_, array.data(), values.data(), values.size() * sizeof(T));
        stream_->wait(options_.timeout_seconds);
        return array;
    };
    const int group = config.n_heads / config.n_kv_heads;
    std::vector<std::int32_t> heads;
    for (std::int64_t head = shard.heads.query_heads.begin; head < shard.heads.query_heads.end; ++head)
        heads.push_back(static_cast<std::int32_t>(head / group - shard.heads.kv_heads.begin));
    kv_heads_ = upload(heads);
    if (config.positions == Positions::rotary) {
        RotaryTable table(config.rope);
        table.cover(config.max_positions - 1);
        std::vector<float> cosines, sines;
        for (int position = 0; position < config.max_positions; ++position) {
            cosines.insert(cosines.end(), table.cosines(position), table.cosines(position) + config.rope.dims / 2);
            sines.insert(sines.end(), table.sines(position), table.sines(position) + config.rope.dims / 2);
        }
        cosines_ = upload(cosines);
        sines_ = upload(sines);
    }
    if (config.positions == Positions::alibi) {
        const std::vector<float> all = alibi_slopes(config.n_heads);
        slopes_ = upload(
            std::vector<float>(all.begin() + shard.heads.query_heads.begin, all.begin() + shard.heads.query_heads.end));
    }
}

// ---- the pass ----

// Padding belongs to no slot, and its logit rows are row 0's.
void GpuDecoder::fill_rows(int padded) {
    const Pass& pass = layout_.pass;
    for (int r = 0; r < padded; ++r) {
        for (int column = 0; column < Rows::n_columns; ++column)
            rows_.at(static_cast<Rows::Column>(column), r) = 0;
        rows_.at(Rows::mask_begins, r) = -1;
        rows_.at(Rows::slots, r) = -1;
        if (r >= layout_.rows()) continue;
        const Row& row = pass.rows[index(r)];
        const Segment& segment = layout_.segments[index(layout_.segment_of[index(r)])];
        const int length = segment.end - segment.begin, place = segment.cached + r - segment.begin;
        const KvCache::Prefix prefix = cache.prefix(row.slot);
        const bool is_tree = pass.mask == Mask::by_parent;
        rows_.at(Rows::tokens, r) = row.token;
        rows_.at(Rows::slots, r) = row.slot;
        rows_.at(Rows::positions, r) = row.position;
        rows_.at(Rows::places, r) = place;
        rows_.at(Rows::n_keys, r) = pass.mask == Mask::full ? segment.cached + length : place + 1;
        // In a tree, the cached keys within reach; the tree itself is narrower than any window.
        const int end = is_tree ? row.position + 1 : rows_.at(Rows::n_keys, r);
        rows_.at(Rows::window_ends, r) = end;
        rows_.at(Rows::first_keys, r) = pass.mask == Mask::window ? std::max(0, end - pass.window) : 0;
        rows_.at(Rows::prefix_slots, r) = prefix.slot;
        rows_.at(Rows::prefix_lengths, r) = prefix.length;
        if (!is_tree) continue;
        rows_.at(Rows::mask_begins, r) = segment.cached;
        std::copy_n(&layout_.ancestors[index(r) * PassLayout::kAncestorWords], kMaskWords, rows_.mask(r));
    }
    for (std::size_t i = 0; i < pass.logit_rows.size(); ++i)
        rows_.at(Rows::logit_rows, static_cast<int>(i)) = pass.logit_rows[i];
    for (std::size_t i = 0; !pass.needs.noises.empty() && i < std::bit_ceil(pass.logit_rows.size()); ++i) {
        const RowNoise noise = i < pass.needs.noises.size() ? pass.needs.noises[i] : RowNoise{};
        rows_.noise(static_cast<int>(i)) = on_device(noise);
    }
    for (int i = 0; i < kMaxRows; ++i)
        rows_.at(Rows::kept_rows, i) =
            pass.needs.keep_from < 0 || index(i) >= pass.logit_rows.size() ? -1 : pass.needs.keep_from + i;
    for (std::size_t i = 0; !pass.needs.drafted.empty() && i < std::bit_ceil(pass.logit_rows.size()); ++i) {
        const DraftedRow row = i < pass.needs.drafted.size() ? pass.needs.drafted[i] : DraftedRow{};
        const bool is_drawn = row.drafted >= 0 && row.draft_logits != nullptr;
        rows_.drafted(static_cast<int>(i)) = {is_drawn ? row.draft_logits : nullptr,
                                              on_device(row.noise),
                                              row.drafted,
                                              row.is_first ? 1 : 0,
                                              row.is_scaled ? 1 : 0,
                                              row.lenience};
    }
}

GpuDecoder::Form GpuDecoder::form_of(const Pass& pass) const {
    const auto padded = [](std::size_t rows) { return static_cast<int>(std::bit_ceil(rows)); };
    Form form;
    form.rows = padded(pass.rows.size());
    form.logit_rows = pass.logit_rows.empty() ? 0 : padded(pass.logit_rows.size());
    int keys = 1;
    for (const Segment& segment : layout_.segments)
        keys = std::max(keys, segment.cached + segment.end - segment.begin);
    form.max_keys = padded_keys(keys);
    form.summary = form.logit_rows > 0 ? pass.needs.summary : LogitSummary::none;
    form.rows_too = pass.needs.rows;
    form.has_noise = form.logit_rows > 0 && !pass.needs.noises.empty();
    form.keeps = form.logit_rows > 0 && pass.needs.keep_from >= 0;
    form.verifies = form.logit_rows > 0 && !pass.needs.drafted.empty();
    if (form.is_summarized() || form.verifies) {
        form.known = pass.summary_vocab > 0 ? pass.summary_vocab : config.vocab_size;
        form.counted =
            static_cast<int>(std::clamp<std::int64_t>(form.known - shard.vocab.begin, 0, shard.vocab.size()));
    }
    return form;
}

// What ranks make together is made by a first pass, to which all of them come; what only verified texts need, by the
// first of them.
void GpuDecoder::make_room_for(const Form& form, const Pass& pass) {
    const auto summed = [&](int width) {
        return SummedArray(*tp_, index(kMaxRows) * index(width),
                           dist::Deadline::after_seconds(options_.timeout_seconds));
    };
    if (x_.size() == 0) x_ = summed(config.hidden_size);
    if (delta_.size() == 0) delta_ = summed(config.hidden_size);
    if (form.keeps && kept_.size() == 0) kept_ = DeviceArray<float>(index(Decoder::kMaxKept) * index(vocab()));
    if (form.keeps && index(pass.needs.keep_from) + pass.logit_rows.size() > index(Decoder::kMaxKept))
        throw std::invalid_argument("more rows are to be kept than there is room for");
    if (!form.verifies || verified_.size() > 0) return;
    mass_parts_ = DeviceArray<VerifyMasses>(index(kMaxRows) * kStatsBlocks);
    masses_ = DeviceArray<VerifyMasses>(kMaxRows);
    verify_parts_ = DeviceArray<VerifyPart>(index(kMaxRows) * kStatsBlocks);
    verified_ = DeviceArray<VerifiedRow>(kMaxRows);
    host_verified_ = PinnedArray<VerifiedRow>(kMaxRows);
    if (tp_->size() > 1) whole_rows_ = summed(config.vocab_size);
}

int GpuDecoder::padded_keys(int keys) const {
    const std::size_t blocks = (index(keys) + kKeyBlock - 1) / kKeyBlock;
    return std::min(static_cast<int>(std::bit_ceil(blocks)) * kKeyBlock, cache_view_.capacity);
}

PassResult GpuDecoder::forward(const Pass& pass) {
    layout_.set(pass, config, cache);
    const Form form = form_of(pass);
    make_room_for(form, pass);
    fill_rows(form.rows);
    hidden_.resize(pass.hidden_layers.size() * pass.rows.size() * index(config.hidden_size));
    pass.hidden_layers.empty() ? run(form) : record(form); // hidden states are copied out on the way
    const int max_rows = chain_rows(pass, form);
    if (max_rows > 1) run_chain(pass, form, max_rows);
    await();
    for (const Segment& segment : layout_.segments)
        cache.append(segment.slot, segment.end - segment.begin);
    summaries_.clear();
    noisy_tokens_.clear();
    const int further = max_rows > 1 ? host_chain_.data()->n_rows - 1 : 0;
    if (further > 0) cache.append(pass.rows.back().slot, further);
    for (int i = 0; max_rows > 1 && i <= further; ++i)
        take_row(form, host_chain_.data()->rows[i].stats, host_chain_.data()->rows[i].noisy);
    for (std::size_t i = 0; max_rows == 1 && i < pass.logit_rows.size(); ++i)
        take_row(form, host_stats_.data()[i], host_noisy_.data()[i]);
    const std::size_t copied = form.rows_too ? pass.logit_rows.size() * index(vocab()) : 0;
    kept_rows_.clear();
    for (int i = 0; form.keeps && i < static_cast<int>(max_rows > 1 ? further + 1 : pass.logit_rows.size()); ++i)
        kept_rows_.push_back(kept_.data() + index(pass.needs.keep_from + i) * index(vocab()));
    return {{host_logits_.data(), copied},
            index(vocab()),
            summaries_,
            noisy_tokens_,
            hidden_,
            kept_rows_,
            {host_verified_.data(), form.verifies ? pass.logit_rows.size() : 0}};
}

void GpuDecoder::take_row(const Form& form, const DeviceLogitStats& stats, const DeviceNoisy& noisy) {
    if (form.summary != LogitSummary::none)
        summaries_.push_back({stats.max, stats.arg_max, stats.sum_exp, stats.sum_shifted_exp});
    if (form.has_noise) noisy_tokens_.push_back({noisy.value, noisy.token, noisy.logit});
}

// The first time at once, so that nothing has to be set up under capture; then as a graph.
void GpuDecoder::run(const Form& form) {
    const auto [found, is_new] = forms_.try_emplace(form);
    KnownForm& known = found->second;
    if (is_new) return record(form);
    if (known.graph) {
        tp_->count_again(known.sums);
    } else {
        const dist::Traffic before = tp_->traffic();
        known.graph = Graph(*stream_, [&] { record(form); });
        known.sums = {.all_reduces = tp_->traffic().all_reduces - before.all_reduces,
                      .all_reduce_bytes = tp_->traffic().all_reduce_bytes - before.all_reduce_bytes};
    }
    known.graph.launch(*stream_);
}

// How many rows a chain behind this pass may have, the pass's own included; 1: none.
int GpuDecoder::chain_rows(const Pass& pass, const Form& form) const {
    const Chain* chain = pass.needs.chain;
    if (chain == nullptr || !has_device_draft_loop() || pass.logit_rows.size() != 1 || !pass.hidden_layers.empty() ||
        pass.mask != Mask::causal || form.summary == LogitSummary::none || form.rows_too ||
        pass.logit_rows.front() != static_cast<int>(pass.rows.size()) - 1)
        return 1;
    const int room = config.max_positions - (pass.rows.back().position + 1); // for the rows that follow
    const int kept = form.keeps ? Decoder::kMaxKept - pass.needs.keep_from : kMaxChain;
    return std::clamp(chain->max_rows, 1, std::min({kMaxChain, room + 1, kept}));
}

// Behind a pass that is under way: what its last row says is read as the next row, and so on.
void GpuDecoder::run_chain(const Pass& pass, const Form& pass_form, int max_rows) {
    *host_plan_.data() = {max_rows, static_cast<int>(pass.rows.size()) - 1, pass_form.has_noise ? 1 : 0,
                          pass.needs.chain->stop};
    Form form = pass_form;
    form.rows = 1;
    form.chain_rows = std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(max_rows))), kMaxChain);
    form.max_keys = padded_keys(rows_.at(Rows::n_keys, static_cast<int>(pass.rows.size()) - 1) + max_rows);
    Graph& graph = chains_[form];
    if (!graph) {
        ChainCall call = {rows_.on_device(Rows::tokens),
                          rows_.on_device(Rows::slots),
                          rows_.on_device(Rows::positions),
                          rows_.on_device(Rows::places),
                          rows_.on_device(Rows::n_keys),
                          rows_.on_device(Rows::window_ends),
                          rows_.on_device(Rows::first_keys),
                          rows_.on_device(Rows::prefix_slots),
                          rows_.on_device(Rows::prefix_lengths),
                          rows_.on_device(Rows::mask_begins),
                          rows_.on_device(Rows::logit_rows),
                          rows_.on_device(Rows::kept_rows),
                          rows_.noises_on_device(),
                          stats_.data(),
                          noisy_.data(),
                          plan_.data(),
                          chain_.data()};
        Graph::Repeated parts;
        parts.first = [&](unsigned long long condition) {
            call.condition = condition;
            copy(*stream_, plan_.data(), host_plan_.data(), sizeof(ChainPlan));
            begin_chain(handle(), call);
        };
        parts.again = [&](unsigned long long) {
            compute(form);
            go_on_with_chain(handle(), call);
        };
        parts.last = [&] {
            copy(*stream_, host_chain_.data(), chain_.data(), ChainState::bytes_of_rows(form.chain_rows));
        };
        graph = Graph(*stream_, parts);
    }
    graph.launch(*stream_);
}

void GpuDecoder::await() {
    if (tp_->size() > 1)
        tp_->await_stream(handle(), dist::Deadline::after_seconds(options_.timeout_seconds));
    else
        stream_->wait(options_.timeout_seconds);
}

// Everything of a pass, put on the stream.
void GpuDecoder::record(const Form& form) {
    rows_.upload(*stream_);
    compute(form);
    copy_out(form);
}

// From the rows on the device to their logits and what is made of them, there.
void GpuDecoder::compute(const Form& form) {
    look_up(form);
    keep_hidden(0);
    for (int i = 0; i < config.n_layers; ++i) {
        run_layer(form, weights_.layers[index(i)], i);
        keep_hidden(i + 1);
    }
    make_logits(form);
}

void GpuDecoder::look_up(const Form& form) {
    const RowTable table = rows_.table(form.rows);
    const bool projects = weights_.project_in.n > 0;
    Embed tokens;
    tokens.type = weights_.type;
    tokens.table = weights_.embedding.numbers.data();
    tokens.stride = weights_.embedding.stride;
    tokens.first_token = static_cast<int>(shard.vocab.begin);
    tokens.n_tokens = vocab();
    tokens.width = config.embedding_size;
    tokens.scale = config.embedding_scale;
    tokens.x = projects ? delta_.data() : x_.data();
    Embed places = tokens; // no token is its own
    places.n_tokens = 0;
    places.width = config.hidden_size;
    places.x = x_.data();
    places.positions = weights_.positions.size() > 0 ? weights_.positions.data() : nullptr;
    places.position_offset = config.position_offset;
    if (!projects && shard.is_first) { // of what is summed over ranks
        tokens.positions = places.positions;
        tokens.position_offset = config.position_offset;
    }
    embed(handle(), table, tokens);
    sum_over_ranks(tokens.x, index(form.rows) * index(tokens.width));
    pending_ = projects;
    if (!projects) return;
    round_rows(delta_.data(), form.rows, config.embedding_size, embedded_);
    multiply_delta(weights_.project_in, embedded_, form.rows, false);
    embed(handle(), table, places);
}

void GpuDecoder::run_layer(const Form& form, const DeviceLayer& layer, int number) {
    const int rows = form.rows, stride = aligned(config.hidden_size);
    const NumberType type = weights_.type;
    const auto norm_into = [&](const DeviceNorm& norm) {
        add_and_norm_rows(rows, x_.data(), pending_ ? delta_.data() : nullptr, norm, normed_.data(), type, stride);
        pending_ = false;
    };
    const auto mlp = [&] {
        multiply(layer.wide, normed_, rows, wide_);
        const int width = layer.down.k;
        activate(handle(), {config.activation, type, wide_.data(), aligned(layer.wide.n), config.gated_mlp,
                            inner_.data(), aligned(width), width, rows});
    };
    const auto sum_delta = [&] { sum_over_ranks(delta_.data(), index(rows) * index(config.hidden_size)); };
    switch (config.block) {
    case Block::pre_norm:
        norm_into(layer.attention_norm);
        attend_rows(form, layer, number);
        multiply_delta(layer.output, attended_, rows, false);
        sum_delta();
        pending_ = true;
        norm_into(layer.mlp_norm);
        mlp();
        multiply_delta(layer.down, inner_, rows, false);
        sum_delta();
        pending_ = true;
        return;
    case Block::parallel:
        norm_into(layer.attention_norm);
        attend_rows(form, layer, number);
        if (!config.shared_norm) norm_into(layer.mlp_norm);
        mlp();
        multiply_delta(layer.output, attended_, rows, false);
        multiply_delta(layer.down, inner_, rows, true);
        sum_delta();
        pending_ = true;
        return;
    case Block::post_norm: {
        const auto norm_in_place = [&](const DeviceNorm& norm) {
            add_and_norm_rows(rows, x_.data(), delta_.data(), norm, x_.data(), NumberType::float32, config.hidden_size);
        };
        norm_into({}); // as it is, in the number type
        attend_rows(form, layer, number);
        multiply_delta(layer.output, attended_, rows, false);
        sum_delta();
        norm_in_place(layer.attention_norm);
        norm_into({});
        mlp();
        multiply_delta(layer.down, inner_, rows, false);
        sum_delta();
        norm_in_place(layer.mlp_norm);
        return;
    }
    case Block::sandwich: {
        const auto add_normed_delta = [&](const DeviceNorm& norm) {
            add_and_norm_rows(rows, delta_.data(), nullptr, norm, normed_delta_.data(), NumberType::float32,
                              config.hidden_size);
            add_and_norm_rows(rows, x_.data(), normed_delta_.data(), {}, nullptr, NumberType::float32, 0);
        };
        norm_into(layer.attention_norm);
        attend_rows(form, layer, number);
        multiply_delta(layer.output, attended_, rows, false);
        sum_delta();
        add_normed_delta(layer.after_attention_norm);
        norm_into(layer.mlp_norm);
        mlp();
        multiply_delta(layer.down, inner_, rows, false);
        sum_delta();
        add_normed_delta(layer.after_mlp_norm);
        return;
    }
    }
}

// From normed_ to attended_.
void GpuDecoder::attend_rows(const Form& form, const DeviceLayer& layer, int number) {
    multiply(layer.qkv, normed_, form.rows, qkv_);
    const RowTable table = rows_.table(form.rows);
    PlaceCall place;
    place.cache = cache_view_;
    place.layer = number;
    place.qkv = qkv_.data();
    place.stride = aligned(layer.qkv.n);
    place.n_query_heads = shard.n_query_heads();
    if (config.query_key_norm) {
        place.query_norm = layer.query_norm.weight.data();
        place.key_norm = layer.key_norm.weight.data();
        place.norm_epsilon = config.norm_epsilon;
    }
    if (cosines_.size() > 0) {
        place.cosines = cosines_.data();
        place.sines = sines_.data();
        place.rotary_dims = config.rope.dims;
    }
    place_keys(handle(), table, place);
    AttendCall call;
    call.cache = cache_view_;
    call.layer = number;
    call.qkv = qkv_.data();
    call.stride = place.stride;
    call.n_query_heads = place.n_query_heads;
    call.kv_head_of = kv_heads_.data();
    call.scale = config.attention_scale;
    call.soft_cap = config.attention_soft_cap;
    call.slopes = slopes_.size() > 0 ? slopes_.data() : nullptr;
    call.window = config.window(number);
    call.max_keys = form.max_keys;
    call.partial = partial_.data();
    call.attended = attended_.data();
    call.out_stride = aligned(layer.output.k);
    attend(handle(), table, call);
}

void GpuDecoder::make_logits(const Form& form) {
    add_pending(form.rows);
    if (form.logit_rows == 0) return;
    add_and_norm_rows(form.logit_rows, x_.data(), nullptr, weights_.final_norm, normed_.data(), weights_.type,
                      aligned(config.hidden_size), rows_.on_device(Rows::logit_rows));
    const bool projects = weights_.project_out.n > 0;
    if (projects) multiply(weights_.project_out, normed_, form.logit_rows, embedded_);
    const DeviceMatrix& head = weights_.head();
    Linear call;
    call.type = weights_.type;
    call.w = head.numbers.data();
    call.scales = scales_of(head);
    call.is_float8 = head.is_float8;
    call.x = projects ? embedded_.data() : normed_.data();
    call.k = head.k;
    call.stride = head.stride;
    call.n = head.n;
    call.rows = form.logit_rows;
    call.bias = weights_.head_bias.size() > 0 ? weights_.head_bias.data() : nullptr;
    call.y = logits_.data();
    call.y_stride = vocab();
    linear(handle(), call);
    const std::size_t count = index(form.logit_rows) * index(vocab());
    if (config.logit_soft_cap > 0) soft_cap(handle(), logits_.data(), count, config.logit_soft_cap);
    if (form.keeps)
        keep_rows(handle(),
                  {logits_.data(), index(vocab()), form.logit_rows, rows_.on_device(Rows::kept_rows), kept_.data()});
    if (form.is_summarized()) summarize(form);
    if (form.verifies) verify(form);
}

void GpuDecoder::summarize(const Form& form) {
    SummarizeCall call;
    call.logits = logits_.data();
    call.stride = index(vocab());
    call.rows = form.logit_rows;
    call.count = form.counted;
    call.first_token = static_cast<int>(shard.vocab.begin);
    call.partial = stats_parts_.data();
    call.stats = stats_.data();
    if (form.has_noise) {
        call.noises = rows_.noises_on_device();
        call.noisy_partial = noisy_parts_.data();
        call.noisy = noisy_.data();
    }
    summarize_logits(handle(), call);
}

// Rows that are sharded across ranks are put together first, as a sum of which each rank has a part; the draft's rows
// are on rank 0 alone, and so is a verification that counts.
void GpuDecoder::verify(const Form& form) {
    VerifyCall call;
    call.logits = logits_.data();
    call.stride = index(vocab());
    if (tp_->size() > 1) {
        widen_rows(handle(), {logits_.data(), vocab(), static_cast<int>(shard.vocab.begin), whole_rows_.data(),
                              config.vocab_size, form.logit_rows});
        sum_over_ranks(whole_rows_.data(), index(form.logit_rows) * index(config.vocab_size));
        call.logits = whole_rows_.data();
        call.stride = index(config.vocab_size);
    }
    call.rows = form.logit_rows;
    call.count = form.known;
    call.drafted = rows_.drafted_on_device();
    call.mass_parts = mass_parts_.data();
    call.masses = masses_.data();
    call.parts = verify_parts_.data();
    call.verified = verified_.data();
    verify_rows(handle(), call);
}

void GpuDecoder::copy_out(const Form& form) {
    const std::size_t rows = index(form.logit_rows);
    if (rows == 0) return;
    if (form.rows_too) copy(*stream_, host_logits_.data(), logits_.data(), rows * index(vocab()) * sizeof(float));
    if (form.summary != LogitSummary::none)
        copy(*stream_, host_stats_.data(), stats_.data(), rows * sizeof(DeviceLogitStats));
    if (form.has_noise) copy(*stream_, host_noisy_.data(), noisy_.data(), rows * sizeof(DeviceNoisy));
    if (form.verifies) copy(*stream_, host_verified_.data(), verified_.data(), rows * sizeof(VerifiedRow));
}

void GpuDecoder::keep_hidden(int layers_done) {
    const Pass& pass = layout_.pass;
    const std::size_t numbers = pass.rows.size() * index(config.hidden_size);
    for (std::size_t i = 0; i < pass.hidden_layers.size(); ++i) {
        if (pass.hidden_layers[i] != layers_done) continue;
        add_pending(layout_.rows());
        copy(*stream_, hidden_.data() + i * numbers, x_.data(), numbers * sizeof(float));
    }
}

// ---- steps ----

void GpuDecoder::add_pending(int rows) {
    if (pending_) add_and_norm_rows(rows, x_.data(), delta_.data(), {}, nullptr, NumberType::float32, 0);
    pending_ = false;
}

// to = from, in the number type.
void GpuDecoder::round_rows(float* from, int rows, int width, DeviceBytes& to) {
    NormCall call;
    call.x = from;
    call.out = to.data();
    call.out_type = weights_.type;
    call.out_stride = aligned(width);
    call.width = width;
    call.rows = rows;
    add_and_norm(handle(), call);
}

void GpuDecoder::multiply(const DeviceMatrix& matrix, const DeviceBytes& x, int rows, DeviceBytes& y) {
    const float* bias = matrix.bias.size() > 0 ? matrix.bias.data() : nullptr;
    linear(handle(), {weights_.type, matrix.numbers.data(), x.data(), matrix.k, matrix.stride, matrix.n, rows, bias,
                      y.data(), aligned(matrix.n), weights_.type, false, scales_of(matrix), matrix.is_float8});
}

void GpuDecoder::multiply_delta(const DeviceMatrix& matrix, const DeviceBytes& x, int rows, bool add) {
    const float* bias = matrix.bias.size() > 0 ? matrix.bias.data() : nullptr;
    linear(handle(),
           {weights_.type, matrix.numbers.data(), x.data(), matrix.k, matrix.stride, matrix.n, rows, bias,
            delta_.data(), config.hidden_size, NumberType::float32, add, scales_of(matrix), matrix.is_float8});
}

void GpuDecoder::sum_over_ranks(float* data, std::size_t count) {
    if (tp_->size() > 1) tp_->enqueue_all_reduce_sum(data, count, dist::ElementType::float32, handle());
}

void GpuDecoder::add_and_norm_rows(int rows, float* x, const float* delta, const DeviceNorm& norm, void* out,
                                   NumberType out_type, int out_stride, const std::int32_t* from_rows) {
    NormCall call;
    call.x = x;
    call.delta = delta;
    call.delta_stride = call.width = config.hidden_size;
    call.norm = config.norm;
    call.weight = norm.weight.size() > 0 ? norm.weight.data() : nullptr;
    call.bias = norm.bias.size() > 0 ? norm.bias.data() : nullptr;
    call.epsilon = config.norm_epsilon;
    call.out = out;
    call.out_type = out_type;
    call.out_stride = out_stride;
    call.rows = rows;
    call.from_rows = from_rows;
    add_and_norm(handle(), call);
}

} // namespace

Decoder load_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                     dist::Communicator& tp) {
    ModelConfig own = config;
    untie_stored_head(own, checkpoint);
    check_shapes(own, checkpoint);
    DecoderOptions filled = options;
    if (filled.capacity == 0) filled.capacity = config.max_positions;
    const RankShard held = shard_of(config, tp.rank(), tp.size());
    return Decoder(std::make_unique<GpuDecoder>(checkpoint, own, held, filled, tp));
}

} // namespace entrodraft::model::gpu
