// A decoder whose operations are ATen's, on any device that ATen knows. See plugin.h.
#include "model/torch/encoder.h"
#include "model/torch/ops.h"
#include "model/torch/plugin.h"
#include "model/transformer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <algorithm>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model::torch {

namespace {

at::ScalarType scalar_type(WeightType type) {
    switch (type) {
    case WeightType::float32:
        return at::kFloat;
    case WeightType::bfloat16:
        return at::kBFloat16;
    case WeightType::float16:
        return at::kHalf;
    case WeightType::int8:
    case WeightType::int4:
    case WeightType::float8:
        break;
    }
    throw std::invalid_argument("the torch backend has float32, bfloat16 and float16 weights, not " + to_string(type));
}

// Errors of ATen without the stack behind their message.
template <typename Work> void in_one_line(const Work& work) {
    try {
        work();
    } catch (const c10::Error& error) {
        throw std::runtime_error(std::string("torch: ") + error.what_without_backtrace());
    }
}

class TorchDecoder final : public Decoder {
  public:
    TorchDecoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
                 dist::Communicator& tp, const BookedTensors& texts)
        : Decoder(setup, texts.books), timeout_seconds_(options.timeout_seconds), texts_(texts),
          weights_(checkpoint, config_, shard_, numbers(), options.progress),
          workspace_(config_, shard_, weights_, weights_.embedding, texts_, sources_, tp) {
        if (!config_.has_encoder()) return;
        sources_ = BookedTensors(setup.sources, numbers());
        encoder_ = std::make_unique<TorchEncoder>(checkpoint, setup, numbers(), weights_, sources_, tp);
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
        in_one_line([&] { encoder_->run(source, number, deadline()); });
    }

    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds_); }
    at::TensorOptions numbers() const { return texts_.numbers.options(); }

    // By the kernels of the CPU: the logits are in host memory.
    void summarize(const Pass& pass, const float* logits) {
        const kernels::Kernels& kernels = kernels::best_kernels();
        summaries_.assign(pass.needs.summary == LogitSummary::none ? 0 : pass.logit_rows.size(), {});
        const int known = pass.summary_vocab > 0 ? pass.summary_vocab : config_.n_outputs();
        const dist::Slice own = shard_.outputs;
        const auto n = static_cast<int>(std::clamp<std::int64_t>(known - own.begin, 0, own.size()));
        const auto summary = pass.needs.summary == LogitSummary::max ? kernels.logit_max : kernels.logit_stats;
        at::parallel_for(0, std::ssize(summaries_), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end && n > 0; ++r)
                summaries_[static_cast<std::size_t>(r)] =
                    summary(logits + r * own.size(), n, static_cast<int>(own.begin));
        });
        for (kernels::LogitStats& made : summaries_)
            if (!config_.output_tokens.empty() && made.arg_max >= 0)
                made.arg_max = config_.output_tokens[static_cast<std::size_t>(made.arg_max)];
    }

    double timeout_seconds_;
    BookedTensors texts_, sources_; // sources_: of a model with an encoder, as encoder_
    TensorWeights weights_;
    TorchWorkspace workspace_;
    std::unique_ptr<TorchEncoder> encoder_;
    std::vector<kernels::LogitStats> summaries_;
};

// Another version may have all symbols, and other types behind them.
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

// ATen's code for a kind of device lies in a library of its own, which registers it. Empty, or why it is not there.
std::string load_device_code(const std::string& type) {
    if (type == "cpu" || dlopen(("libtorch_" + type + ".so").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
    return "torch " ENTRODRAFT_TORCH_VERSION " has no code for it (" + std::string(dlerror()) + ")";
}

Devices devices(const std::string& type) {
    if (const std::string why = load_device_code(type); !why.empty()) return {0, why};
    const c10::DeviceType of = c10::Device(type).type();
    const int count = c10::impl::hasDeviceGuardImpl(of) ? c10::impl::getDeviceGuardImpl(of)->deviceCount() : 0;
    return {count, count > 0 ? "" : "torch sees none (no device, no driver, or none is visible)"};
}

std::unique_ptr<Decoder> load(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                              dist::Communicator& tp, const Place& place) {
    const c10::InferenceMode mode;
    const DecoderSetup setup = prepare_decoder(checkpoint, config, options, tp);
    if (const std::string what = what_needs_cpu(config); !what.empty())
        throw std::invalid_argument("the torch backend cannot run a model with " + what);
    if (const std::string why = load_device_code(place.device.substr(0, place.device.find(':'))); !why.empty())
        throw std::invalid_argument("device " + place.device + ": " + why);
    at::set_num_threads(place.threads);
    std::unique_ptr<Decoder> decoder;
    in_one_line([&] {
        const auto numbers = at::TensorOptions(c10::Device(place.device)).dtype(scalar_type(options.weight_type));
        decoder = std::make_unique<TorchDecoder>(checkpoint, setup, options, tp, BookedTensors(setup.cache, numbers));
    });
    return decoder;
}

} // namespace

extern "C" __attribute__((visibility("default")))
const Plugin entrodraft_torch = {ENTRODRAFT_PLUGIN_VERSION, &why_unusable, &devices, &load};

} // namespace entrodraft::model::torch
