#include "model/gpu/decoder.h"

#include "model/gpu/delta_table.h"
#include "model/gpu/device_cache.h"
#include "model/gpu/device_extension.h"
#include "model/gpu/encoder.h"
#include "model/gpu/logit_outputs.h"
#include "model/gpu/ops.h"
#include "model/gpu/prompt_products.h"
#include "model/pass/transformer.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <stdexcept>

namespace entrodraft::model::gpu {

namespace {

NumberType number_type(WeightType type, WeightType stored) {
    switch (activation_type(type, stored)) {
    case WeightType::float32:
        return NumberType::float32;
    case WeightType::float16:
        return NumberType::float16;
    default:
        return NumberType::bfloat16;
    }
}

class GpuDecoder final : public Decoder {
  public:
    GpuDecoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
               dist::Communicator& tp, std::unique_ptr<Stream> stream, const BookedCache& texts)
        : Decoder(setup, texts.books), tp_(tp), stream_(std::move(stream)), timeout_seconds_(options.timeout_seconds),
          weights_(checkpoint, config_, shard_, texts.view.type, options.weight_type, options.progress),
          sources_(config_.has_encoder() ? BookedCache(texts.view.type, setup.sources, *stream_) : BookedCache()),
          workspace_(config_, shard_, weights_, texts.view, tp, *stream_, options,
                     {.sources = sources_.view, .states = texts.states}),
          outputs_(workspace_), host_table_(1), table_(1), loop_(1), host_loop_(1), parents_(kMaxLoopRows) {
        host_features_ = PinnedArray<float>(workspace_.features.size());
        if (max_prompt_rows() > kMaxRows) { // prompts use other kernels than other passes
            prompt_products_.emplace(weights_, config_.hidden_size, *stream_, timeout_seconds_);
            host_prompt_table_ = PinnedArray<PromptTable>(1);
            prompt_table_ = DeviceArray<PromptTable>(1);
        }
        if (config_.n_linear_layers() > 0) delta_tables_.emplace(setup.cache.n_slots);
        if (config_.has_encoder())
            encoder_ = std::make_unique<GpuEncoder>(checkpoint, setup, options, workspace_, sources_,
                                                    prompt_products_ ? &*prompt_products_ : nullptr);
    }

    std::size_t weight_bytes() const override { return weights_.bytes_per_pass; }
    double operations_per_row() const override { return weights_.operations_per_row; }
    int max_prompt_rows() const override { return workspace_.max_rows; }
    std::string note() const override { return prompt_products_ ? prompt_products_->note() : ""; }
    PassResult forward(const Pass& pass) override;

  private:
    void read_source(int number, std::span<const TokenId> source) override {
        encoder_->enqueue(source, number, deadline());
        await();
    }
    // The properties that tell one graph from another.
    struct Form {
        bool is_prompt = false;      // uses prompt_products_
        int rows = 0;                // padded
        int mask_words = kMaskWords; // if more, masks_ holds them
        int state_steps = 0;         // padded: DeltaTables::n_steps
        LogitForm logits;
        DeviceExtension* extension = nullptr;
        int extension_form = 0;
        int loop_rows = 0;              // padded, for a loop
        std::vector<int> hidden_layers; // as in Pass
        bool has_features = false, features_are_own = false;
        auto operator<=>(const Form&) const = default;
    };
    // A form that has been met before.
    struct KnownForm {
        Graph graph;
        dist::Traffic enqueued; // by one launch of the graph
    };

    Form form_of(const Pass& pass) const;
    void prepare_hidden(std::size_t numbers);
    void prepare_masks(const Form& form);
    void prepare_states();
    std::size_t wide_masks(const Form& form) const {
        return form.mask_words > kMaskWords ? index(form.rows) * index(form.mask_words) : 0;
    }
    std::span<const float> hidden_of(const Form& form, const Pass& pass);
    std::size_t hidden_numbers(const Form& form) const {
        return form.hidden_layers.size() * index(form.rows) * index(config_.hidden_size);
    }
    void run(const Form& form);
    void record(const Form& form);
    void compute(const Form& form);
    DeltaTable segments_of(const Form& form) const;
    int loop_rows(const Pass& pass, const Form& form) const;
    Form loop_form(const Form& pass_form, int max_rows) const;
    void run_loop(const Form& form, int max_rows);
    Graph loop_graph(const Form& form);
    void carry_states_on(const Form& form, bool of_loop) const;
    void await();
    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds_); }

    dist::Communicator& tp_;
    std::unique_ptr<Stream> stream_;
    double timeout_seconds_;
    DeviceWeights weights_;
    BookedCache sources_; // for a model with an encoder, like encoder_
    GpuWorkspace workspace_;
    LogitOutputs outputs_;
    PassLayout layout_;
    PinnedArray<PassTable> host_table_;
    DeviceArray<PassTable> table_;
    std::optional<PromptProducts> prompt_products_; // none: prompts run as other passes do
    PinnedArray<PromptTable> host_prompt_table_;
    DeviceArray<PromptTable> prompt_table_;
    std::map<Form, KnownForm> forms_;
    std::map<Form, Graph> loops_; // by the form of the loop's further rows
    DeviceArray<LoopState> loop_;
    PinnedArray<LoopState> host_loop_;
    DeviceArray<std::int32_t> parents_; // DeviceLoop::parents
    // For a draft head's loop, as in PassResult::loop_hidden: [kMaxLoopRows][hidden_size], empty before the first loop.
    DeviceArray<float> loop_states_;
    PinnedArray<float> host_loop_states_;
    PinnedArray<std::uint64_t> host_masks_; // for large trees, [rows][Form::mask_words]
    DeviceArray<std::uint64_t> masks_;
    DeviceArray<float> hidden_; // [hidden_layers][rows, padded][hidden_size]
    PinnedArray<float> host_hidden_;
    PinnedArray<float> host_features_; // for a draft head, as in Pass
    std::unique_ptr<GpuEncoder> encoder_;
    std::optional<DeltaTables> delta_tables_; // for linear attention
    DeviceArray<float> saved_states_;         // DeltaNetCall's
};

PassResult GpuDecoder::forward(const Pass& pass) {
    layout_.set(pass, config_, *cache_, max_prompt_rows());
    require_sources(pass.rows);
    if (delta_tables_) prepare_states();
    const Form form = form_of(pass);
    const SlotBooks books = {*cache_, sources_.books.get()};
    workspace_.make_summed(deadline());
    if (form.extension != nullptr) form.extension->prepare(outputs_.logits(form.logits), deadline());
    form.is_prompt ? host_prompt_table_.data()->fill(layout_, books, form.rows)
                   : host_table_.data()->fill(layout_, books, form.rows);
    const int max_rows = loop_rows(pass, form);
    const Form loop = max_rows > 1 ? loop_form(form, max_rows) : Form{};
    prepare_hidden(std::max(hidden_numbers(form), hidden_numbers(loop)));
    prepare_masks(form);
    std::ranges::copy(pass.features, host_features_.data());
    run(form);
    if (max_rows > 1) run_loop(loop, max_rows);
    await();
    for (const Segment& segment : layout_.segments)
        cache_->append(segment.slot, segment.end - segment.begin);
    if (max_rows > 1) cache_->append(pass.rows.back().slot, host_loop_.data()->n_rows - 1);
    const bool is_chain = max_rows > 1 && form.extension->tree_width() == 0;
    PassResult result =
        outputs_.result(form.logits, pass, is_chain ? host_loop_.data() : nullptr, hidden_of(form, pass));
    if (max_rows > 1 && form.has_features)
        result.loop_hidden = {host_loop_states_.data(),
                              index(host_loop_.data()->n_rows - 1) * index(config_.hidden_size)};
    return result;
}

// Makes room for hidden states. Graphs would write to the old place, so they are dropped.
void GpuDecoder::prepare_hidden(std::size_t numbers) {
    if (hidden_.size() >= numbers) return;
    forms_.clear();
    loops_.clear();
    hidden_ = DeviceArray<float>(numbers);
    host_hidden_ = PinnedArray<float>(numbers);
}

// Makes room for large masks in the same way, and fills them.
void GpuDecoder::prepare_masks(const Form& form) {
    const std::size_t n = wide_masks(form);
    if (masks_.size() < n) {
        forms_.clear();
        masks_ = DeviceArray<std::uint64_t>(n);
        host_masks_ = PinnedArray<std::uint64_t>(n);
    }
    for (int r = 0; r < layout_.rows() && n > 0; ++r)
        std::copy_n(layout_.ancestors_of(r), layout_.ancestor_words, &host_masks_.data()[r * form.mask_words]);
}

// Plans how the pass changes the states of linear attention, and makes room for the states that its trees save.
void GpuDecoder::prepare_states() {
    bool is_moved = delta_tables_->fill(layout_, cache_->recurrent());
    const StatesView& states = workspace_.states;
    const std::size_t of_state = states.state_numbers() / index(states.n_layers);
    if (saved_states_.size() < index(delta_tables_->n_saved()) * of_state) {
        saved_states_ = DeviceArray<float>(std::bit_ceil(index(delta_tables_->n_saved())) * of_state);
        is_moved = true;
    }
    if (!is_moved) return;
    forms_.clear();
    loops_.clear();
}

// Returns the hidden states without the padding between layers.
std::span<const float> GpuDecoder::hidden_of(const Form& form, const Pass& pass) {
    const std::size_t padded = index(form.rows) * index(config_.hidden_size),
                      numbers = pass.rows.size() * index(config_.hidden_size);
    float* const hidden = host_hidden_.data();
    for (std::size_t i = 1; i < form.hidden_layers.size() && numbers < padded; ++i)
        std::copy_n(hidden + i * padded, numbers, hidden + i * numbers);
    return {hidden, form.hidden_layers.size() * numbers};
}

GpuDecoder::Form GpuDecoder::form_of(const Pass& pass) const {
    Form form;
    form.is_prompt = pass.is_prompt && prompt_products_;
    form.rows =
        std::max(static_cast<int>(std::bit_ceil(pass.rows.size())), form.is_prompt ? PromptProducts::kMinRows : 1);
    if (pass.mask == Mask::by_parent) form.mask_words = static_cast<int>(std::bit_ceil(layout_.ancestor_words));
    if (delta_tables_) form.state_steps = static_cast<int>(std::bit_ceil(index(delta_tables_->n_steps())));
    form.logits = outputs_.form_of(pass);
    if (pass.needs.extension != nullptr && !pass.logit_rows.empty()) {
        form.extension = pass.needs.extension;
        form.extension_form = form.extension->form();
    }
    form.hidden_layers.assign(pass.hidden_layers.begin(), pass.hidden_layers.end());
    form.has_features = !pass.features.empty();
    form.features_are_own = pass.features_are_own;
    return form;
}

// Runs a form's first pass without a graph, so that nothing has to be set up under capture; then as a graph.
void GpuDecoder::run(const Form& form) {
    const auto [found, is_new] = forms_.try_emplace(form);
    KnownForm& known = found->second;
    if (is_new) return record(form);
    if (known.graph) {
        tp_.count_again(known.enqueued);
    } else {
        const dist::Traffic before = tp_.traffic();
        known.graph = Graph(*stream_, [&] { record(form); });
        known.enqueued = tp_.traffic().since(before);
    }
    known.graph.launch(*stream_);
}

// Puts the whole pass on the stream.
void GpuDecoder::record(const Form& form) {
    const DeviceLogits logits = outputs_.logits(form.logits);
    form.is_prompt ? copy_by_kernel(*stream_, prompt_table_.data(), host_prompt_table_.data(), sizeof(PromptTable))
                   : copy_by_kernel(*stream_, table_.data(), host_table_.data(), sizeof(PassTable));
    if (delta_tables_) delta_tables_->copy_in(*stream_, form.state_steps);
    if (form.has_features) {
        const int width = form.features_are_own ? config_.hidden_size : config_.fusion.width();
        copy_by_kernel(*stream_, workspace_.features.data(), host_features_.data(),
                       index(form.rows) * index(width) * sizeof(float));
    }
    if (wide_masks(form) > 0)
        copy_by_kernel(*stream_, masks_.data(), host_masks_.data(), wide_masks(form) * sizeof(std::uint64_t));
    if (form.extension != nullptr) form.extension->copy_in(logits);
    compute(form);
    outputs_.copy_out(form.logits);
    copy(*stream_, host_hidden_.data(), hidden_.data(), hidden_numbers(form) * sizeof(float));
    if (form.extension != nullptr) form.extension->copy_out(logits);
}

// Computes the logits from the rows on the device, and everything that is made from the logits there.
void GpuDecoder::compute(const Form& form) {
    const PassTable& table = *table_.data();
    const std::uint64_t* masks = wide_masks(form) > 0 ? masks_.data() : table.masks[0];
    const RowTable rows = form.is_prompt ? prompt_table_.data()->table(form.rows, masks, form.mask_words)
                                         : table.table(form.rows, masks, form.mask_words);
    Pass pass = layout_.pass;
    pass.features_are_own = form.features_are_own;
    GpuOps ops(
        workspace_, rows, table.logit_rows,
        {form.logits.n_rows, form.is_prompt ? &*prompt_products_ : nullptr, segments_of(form), saved_states_.data()},
        pass, hidden_.data());
    run_transformer(config_, ops);
    outputs_.summarize(form.logits, table);
    if (form.extension != nullptr) form.extension->enqueue(outputs_.logits(form.logits));
}

DeltaTable GpuDecoder::segments_of(const Form& form) const {
    if (!delta_tables_) return {};
    DeltaTable segments = delta_tables_->table(form.loop_rows > 0 ? 1 : form.rows);
    segments.in_loop = form.loop_rows > 0;
    return segments;
}

void GpuDecoder::await() {
    if (tp_.size() == 1) return stream_->wait(timeout_seconds_);
    try {
        tp_.await_stream(stream_->handle(), deadline());
    } catch (...) {
        forms_.clear(); // their graphs hold sums
        tp_.abort();
        throw;
    }
}

// ---- loops ----

// Returns how many rows a loop after this pass may have, the pass's own included; 1: it makes no loop.
int GpuDecoder::loop_rows(const Pass& pass, const Form& form) const {
    const bool hands_states_on = pass.hidden_layers.size() == 1 && form.has_features;
    if (form.extension == nullptr || tp_.size() > 1 || pass.logit_rows.size() != 1 ||
        (!hands_states_on && !pass.hidden_layers.empty()) || pass.mask != Mask::causal ||
        form.logits.summary == LogitSummary::none || form.logits.rows_too ||
        pass.logit_rows.front() != static_cast<int>(pass.rows.size()) - 1)
        return 1;
    if (delta_tables_ && form.extension->tree_width() > 0) return 1;          // its states only follow a chain
    const int room = config_.max_positions - (pass.rows.back().position + 1); // for the rows that follow
    return std::clamp(form.extension->max_rows(), 1, std::min(kMaxLoopRows, room + 1));
}

// Returns the form of the loop's further rows. A draft head's rows have its own states of their parents as features.
GpuDecoder::Form GpuDecoder::loop_form(const Form& pass_form, int max_rows) const {
    Form form = pass_form;
    form.rows = form.logits.n_rows = std::max(1, form.extension->tree_width());
    form.loop_rows = std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(max_rows))), kMaxLoopRows);
    form.features_are_own = form.has_features;
    return form;
}

// Runs after a pass that is still under way. Reads the last row's result as the next row or rows, and so on.
void GpuDecoder::run_loop(const Form& form, int max_rows) {
    host_loop_.data()->n_rows = 0;
    host_loop_.data()->max_rows = max_rows;
    if (form.has_features && loop_states_.size() == 0) {
        loop_states_ = DeviceArray<float>(index(kMaxLoopRows) * index(config_.hidden_size));
        host_loop_states_ = PinnedArray<float>(loop_states_.size());
    }
    Graph& graph = loops_[form];
    if (!graph) graph = loop_graph(form);
    graph.launch(*stream_);
}

Graph GpuDecoder::loop_graph(const Form& form) {
    DeviceLoop loop = {table_.data(), outputs_.stats(), form.logits.has_noise ? outputs_.noisy() : nullptr,
                       loop_.data(), parents_.data()};
    Graph::Repeated parts;
    parts.first = [&](unsigned long long condition) {
        loop.condition = condition;
        copy_by_kernel(*stream_, loop_.data(), host_loop_.data(), LoopState::bytes_of_rows(0));
        form.extension->decide(*stream_, loop);
        if (form.has_features) carry_states_on(form, false);
    };
    parts.again = [&] {
        compute(form);
        form.extension->decide(*stream_, loop);
        if (form.has_features) carry_states_on(form, true);
    };
    // Uses copies only: a kernel would ask to overlap with the loop.
    parts.last = [&] {
        const bool is_chain = form.extension->tree_width() == 0;
        copy(*stream_, host_loop_.data(), loop_.data(), LoopState::bytes_of_rows(is_chain ? form.loop_rows : 0));
        form.extension->copy_loop_out(*stream_, form.loop_rows);
        if (form.has_features)
            copy(*stream_, host_loop_states_.data(), loop_states_.data(),
                 index(form.loop_rows) * index(config_.hidden_size) * sizeof(float));
    };
    return Graph(*stream_, parts);
}

// Carries states from the previous pass, the text's own or one of the loop, to the next.
void GpuDecoder::carry_states_on(const Form& form, bool of_loop) const {
    CarryStatesCall call = {hidden_.data(), parents_.data(), workspace_.features.data(), config_.hidden_size,
                            form.rows};
    if (of_loop) {
        call.first = &loop_.data()->first_row;
        call.states = loop_states_.data();
        call.n_states = kMaxLoopRows;
    }
    carry_states(stream_->handle(), call);
}

} // namespace

std::unique_ptr<Decoder> load_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const DecoderOptions& options, dist::Communicator& tp) {
    DecoderSetup setup = prepare_decoder(checkpoint, config, options, tp);
    const NumberType numbers = number_type(options.weight_type, setup.config.stored_type);
    hold_small_embedding_whole(config, bytes_of(numbers), options.max_whole_embedding, setup.shard);
    if (config.has_encoder())
        hold_small_embedding_whole(encoder_of(config), bytes_of(numbers), options.max_whole_embedding,
                                   setup.encoder_shard);
    if (const std::string what = what_needs_cpu(config); !what.empty())
        throw std::invalid_argument("our kernels for GPUs cannot run a model with " + what);
    if (config.quantization && (is_scaled(options.weight_type) || options.weight_type == WeightType::float32))
        throw std::invalid_argument(
            "the checkpoint is quantised: its other matrices have 16 bits on GPUs, not --dtype " +
            to_string(options.weight_type));
    auto stream = std::make_unique<Stream>();
    KvCache::Shape shape = setup.cache;
    if (shape.recurrent.n_layers > 0) shape.recurrent.prompt_rows = max_prompt_rows(config, options.weight_type);
    const BookedCache texts(numbers, shape, *stream);
    return std::make_unique<GpuDecoder>(checkpoint, setup, options, tp, std::move(stream), texts);
}

} // namespace entrodraft::model::gpu
