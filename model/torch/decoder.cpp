// A decoder that uses ATen's operations, on any device that ATen supports. See plugin.h.
#include "model/cpu/kernels.h"
#include "model/pass/transformer.h"
#include "model/torch/device.h"
#include "model/torch/encoder.h"
#include "model/torch/ops.h"
#include "model/torch/plugin.h"
#include "model/torch/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <algorithm>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model::torch {

namespace {

class TorchDecoder final : public Decoder {
  public:
    TorchDecoder(StoredTensors& stored, const DecoderSetup& setup, const DecoderOptions& options,
                 dist::Communicator& tp, const BookedTensors& texts)
        : Decoder(setup, texts.books), timeout_seconds_(options.timeout_seconds), texts_(texts),
          weights_(stored, config_, shard_, numbers(), options.progress),
          workspace_(config_, shard_, weights_, weights_.outer[Role::embedding], texts_, sources_, tp) {
        if (!config_.has_encoder()) return;
        sources_ = BookedTensors(setup.sources, numbers());
        encoder_ = std::make_unique<TorchEncoder>(stored, setup, numbers(), weights_, tp);
    }

    std::size_t weight_bytes() const override { return weights_.bytes_per_pass; }
    double operations_per_row() const override { return weights_.operations_per_row; }

    PassResult forward(const Pass& pass) override {
        if (pass.needs.extension != nullptr)
            throw std::invalid_argument("a pass of the torch backend has no extension on a GPU");
        const c10::InferenceMode mode;
        TorchWorkspace& w = workspace_;
        w.layout.set(pass, config_, *cache_, max_prompt_rows());
        require_sources(pass.rows);
        w.deadline = deadline();
        w.hidden.resize(pass.hidden_layers.size() * pass.rows.size() * index(config_.hidden_size));
        in_one_line([&] {
            TorchOps ops(w);
            run_transformer(config_, ops);
        });
        for (const Segment& segment : w.layout.segments)
            cache_->append(segment.slot, segment.end - segment.begin);
        const auto n_outputs = static_cast<std::size_t>(shard_.outputs.size());
        const std::size_t n_rows = pass.logit_rows.size();
        const float* logits = n_rows > 0 ? w.logits.const_data_ptr<float>() : nullptr;
        summarize(pass, logits);
        return {{logits, n_rows * n_outputs}, n_outputs, summaries_, {}, w.hidden};
    }

  private:
    void read_source(int number, std::span<const TokenId> source) override {
        const c10::InferenceMode mode;
        in_one_line([&] { encoder_->keep(source, sources_, number, deadline()); });
    }

    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds_); }
    at::TensorOptions numbers() const { return texts_.numbers.options(); }

    // Summarizes with the kernels of the CPU: the logits are in host memory.
    void summarize(const Pass& pass, const float* logits) {
        const kernels::Kernels& kernels = kernels::best_kernels();
        summaries_.assign(pass.needs.summary == LogitSummary::none ? 0 : pass.logit_rows.size(), {});
        const int known = pass.summary_vocab > 0 ? pass.summary_vocab : config_.n_outputs();
        const dist::Slice own = shard_.outputs;
        const auto n = static_cast<int>(std::clamp<std::int64_t>(known - own.begin, 0, own.size()));
        const auto summary = pass.needs.summary == LogitSummary::max ? kernels.logit_max : kernels.logit_stats;
        at::parallel_for(0, std::ssize(summaries_), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end && n > 0; ++r)
                summaries_[r] = summary(logits + r * own.size(), n, static_cast<int>(own.begin));
        });
        for (LogitStats& made : summaries_)
            if (!config_.output_tokens.empty() && made.arg_max >= 0) made.arg_max = config_.output_tokens[made.arg_max];
    }

    double timeout_seconds_;
    BookedTensors texts_, sources_; // sources_ and encoder_ are for a model with an encoder
    TensorWeights weights_;
    TorchWorkspace workspace_;
    std::unique_ptr<TorchEncoder> encoder_;
    std::vector<LogitStats> summaries_;
};

// Another version of torch may have all symbols, but other types for them.
std::string why_unusable() {
    constexpr std::string_view kVersion = "TORCH_VERSION=";
    const std::string config = at::show_config(); // "..., TORCH_VERSION=2.11.0, USE_CUDA=ON, ..."
    const std::size_t key = config.find(kVersion);
    const std::size_t begin = key == std::string::npos ? config.size() : key + kVersion.size();
    const std::string found = config.substr(begin, config.find(',', begin) - begin);
    if (found == ENTRODRAFT_TORCH_VERSION) return "";
    Dl_info library = {};
    dladdr(reinterpret_cast<const void*>(&at::show_config), &library);
    return "was built over torch " ENTRODRAFT_TORCH_VERSION " and finds " + (found.empty() ? "another" : found) +
           (library.dli_fname ? std::string(" (") + library.dli_fname + ")" : "");
}

std::unique_ptr<Decoder> load(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                              dist::Communicator& tp, const Place& place) {
    const c10::InferenceMode mode;
    const DecoderSetup setup = prepare_decoder(checkpoint, config, options, tp);
    const at::TensorOptions numbers = numbers_on(place, config, options.weight_type);
    std::unique_ptr<Decoder> decoder;
    in_one_line([&] {
        CheckpointTensors stored(checkpoint);
        decoder = std::make_unique<TorchDecoder>(stored, setup, options, tp, BookedTensors(setup.cache, numbers));
    });
    return decoder;
}

} // namespace

extern "C" __attribute__((visibility("default")))
const Plugin entrodraft_torch = {ENTRODRAFT_PLUGIN_VERSION, &why_unusable, &count_devices, &load, &make_trainer};

} // namespace entrodraft::model::torch
