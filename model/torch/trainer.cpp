#include "model/torch/trainer.h"

#include "model/pass/transformer.h"
#include "model/torch/device.h"
#include "model/torch/encoder.h"
#include "model/torch/losses.h"
#include "model/torch/ops.h"
#include "model/torch/parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace entrodraft::model::torch {

using at::Tensor;

namespace {

// AdamW (Loshchilov and Hutter 2019).
constexpr double kFirstDecay = 0.9, kSecondDecay = 0.95, kAdamEpsilon = 1e-8;

TensorBytes bytes_of(const std::string& name, const Tensor& tensor, at::ScalarType type, const char* dtype) {
    const Tensor on_host = tensor.to(at::kCPU, type).contiguous();
    TensorBytes bytes = {name, dtype, on_host.sizes().vec(), std::vector<std::byte>(on_host.nbytes())};
    if (!bytes.bytes.empty()) std::memcpy(bytes.bytes.data(), on_host.const_data_ptr(), bytes.bytes.size());
    return bytes;
}
TensorBytes floats_of(const std::string& name, const Tensor& tensor) {
    return bytes_of(name, tensor, at::kFloat, "F32");
}

// Returns one column of TargetRows from a member of each text.
template <typename To, typename T>
Tensor column(std::span<const ScoredText* const> texts, const std::vector<T> ScoredText::*of, at::Device device) {
    std::vector<To> all;
    for (const ScoredText* text : texts)
        all.insert(all.end(), (text->*of).begin(), (text->*of).end());
    return to_tensor(all, device);
}

TargetRows target_rows(std::span<const ScoredText* const> texts, at::Device device) {
    const std::int64_t top = texts.front()->n_top;
    TargetRows rows = {column<std::int64_t>(texts, &ScoredText::top_tokens, device).view({-1, top}),
                       column<float>(texts, &ScoredText::top_log_probs, device).view({-1, top}),
                       column<float>(texts, &ScoredText::rest_mass, device),
                       column<std::int64_t>(texts, &ScoredText::rest_token, device),
                       column<float>(texts, &ScoredText::rest_log_prob, device)};
    rows.rest_token = rows.rest_token.clamp_min(0);
    return rows;
}

struct Moments {
    Tensor first, second;
};

class TorchTrainer final : public Trainer {
  public:
    TorchTrainer(const Checkpoint& checkpoint, DecoderSetup setup, const TrainerOptions& options,
                 dist::Communicator& ranks, const at::TensorOptions& numbers)
        : setup_(std::move(setup)), options_(options), ranks_(ranks), numbers_(numbers),
          parameters_(checkpoint, numbers.device()), cache_(BookedTensors::without_numbers(setup_.cache, numbers)) {
        const TensorWeights all(parameters_, setup_.config, setup_.shard, numbers_, {});
        if (setup_.config.has_encoder()) TorchEncoder(parameters_, setup_, numbers_, all, self_);
        const at::NoGradGuard guard;
        for (const auto& [name, parameter] : parameters_.all())
            moments_[name] = {at::zeros_like(parameter), at::zeros_like(parameter)};
    }

    TrainingSums measure(std::span<const ScoredText* const> texts) override {
        TrainingSums sums;
        in_one_line([&] {
            const at::NoGradGuard guard;
            for (std::size_t done = 0; done < texts.size();) {
                const auto some = texts.subspan(done, std::min(texts.size() - done, index(options_.max_texts)));
                add(some, 0, sums);
                done += some.size();
            }
        });
        return sums;
    }

    TrainingSums add_gradients(std::span<const ScoredText* const> texts, double weight) override {
        TrainingSums sums;
        in_one_line([&] { add(texts, weight, sums); });
        return sums;
    }

    double step(double learning_rate) override {
        double norm = 0;
        in_one_line([&] {
            const at::NoGradGuard guard;
            const Tensor all = summed_gradients();
            norm = all.norm().item<double>();
            if (!std::isfinite(norm)) throw std::runtime_error("the gradient is not finite; lower the learning rate");
            const Tensor gradients = all * std::min(1.0, options_.max_gradient_norm / std::max(norm, 1e-12));
            ++steps_;
            std::int64_t at = 0;
            for (const auto& [name, parameter] : parameters_.all()) {
                move(parameter, moments_.at(name), gradients.narrow(0, at, parameter.numel()).view_as(parameter),
                     learning_rate);
                at += parameter.numel();
                parameter.mutable_grad() = Tensor();
            }
        });
        return norm;
    }

    std::vector<TensorBytes> parameters(WeightType type) const override {
        const auto [scalar, dtype] = type == WeightType::float32    ? std::pair(at::kFloat, "F32")
                                     : type == WeightType::bfloat16 ? std::pair(at::kBFloat16, "BF16")
                                                                    : std::pair(at::kHalf, "F16");
        const at::NoGradGuard guard;
        std::vector<TensorBytes> tensors;
        for (const auto& [name, parameter] : parameters_.all())
            tensors.push_back(bytes_of(name, parameter, scalar, dtype));
        return tensors;
    }

    std::vector<TensorBytes> gradients() const override {
        const at::NoGradGuard guard;
        std::vector<TensorBytes> tensors;
        for (const auto& [name, parameter] : parameters_.all())
            tensors.push_back(floats_of(name, gradient_of(parameter)));
        return tensors;
    }

    std::vector<TensorBytes> state() const override {
        const at::NoGradGuard guard;
        std::vector<TensorBytes> tensors = {floats_of(kSteps, at::zeros(1) + static_cast<double>(steps_))};
        for (const auto& [name, parameter] : parameters_.all()) {
            tensors.push_back(floats_of(kParameter + name, parameter));
            tensors.push_back(floats_of(kFirst + name, moments_.at(name).first));
            tensors.push_back(floats_of(kSecond + name, moments_.at(name).second));
        }
        return tensors;
    }

    void restore(const Checkpoint& state) override {
        const at::NoGradGuard guard;
        const auto read = [&](const std::string& name, const Tensor& to) {
            if (at::IntArrayRef(state.tensor(name).shape) != to.sizes())
                throw std::invalid_argument("tensor " + name + " of the training state is of another model");
            to.copy_(to_tensor(read_vector(state, name), to.device()).view_as(to));
        };
        steps_ = static_cast<std::int64_t>(read_vector(state, kSteps).front());
        for (const auto& [name, parameter] : parameters_.all()) {
            read(kParameter + name, parameter);
            read(kFirst + name, moments_.at(name).first);
            read(kSecond + name, moments_.at(name).second);
        }
    }

  private:
    static constexpr const char *kSteps = "steps", *kParameter = "parameter.", *kFirst = "first_moment.",
                                *kSecond = "second_moment.";

    // Adds the sums of one pass; with weight 0, makes no gradients.
    void add(std::span<const ScoredText* const> texts, double weight, TrainingSums& sums) {
        const TargetRows target = target_rows(texts, numbers_.device());
        const Tensor logits = forward(texts);
        const Tensor losses = loss_of(options_.loss, logits, target);
        if (weight != 0) (losses.sum() * weight).backward();
        const Tensor detached = logits.detach();
        sums.places += losses.size(0);
        sums.loss += losses.detach().sum(at::kDouble).item<double>();
        sums.overlap += overlap_of(detached, target).sum(at::kDouble).item<double>();
        const Tensor is_same = at::argmax(detached, 1).eq(target.top_tokens.select(1, 0));
        sums.agreement += is_same.sum(at::kDouble).item<double>();
    }

    // Returns the logits of the places of all texts, [rows][vocabulary].
    Tensor forward(std::span<const ScoredText* const> texts) {
        std::vector<Row> rows;
        std::vector<int> wanted;
        for (std::size_t slot = 0; slot < texts.size(); ++slot) {
            const ScoredText& text = *texts[slot];
            for (int i = 0; i + 1 < std::ssize(text.tokens); ++i) {
                const int before = i == 0 ? -1 : static_cast<int>(rows.size()) - 1;
                if (i + 1 >= text.n_prompt) wanted.push_back(static_cast<int>(rows.size()));
                rows.push_back({text.tokens[index(i)], static_cast<int>(slot), i, before});
            }
        }
        const TensorWeights weights(parameters_, setup_.config, setup_.shard, numbers_, {});
        TorchWorkspace workspace(setup_.config, setup_.shard, weights, weights.outer[Role::embedding], cache_,
                                 no_sources_, self_);
        workspace.is_training = true;
        if (setup_.config.has_encoder()) workspace.training_sources = sources_of(texts, weights);
        workspace.layout.max_rows = static_cast<int>(rows.size());
        workspace.layout.set({.rows = rows, .logit_rows = wanted}, setup_.config, *cache_.books);
        TorchOps ops(workspace);
        run_transformer(setup_.config, ops);
        return options_.vocab_size > 0 ? workspace.logits.narrow(1, 0, options_.vocab_size) : workspace.logits;
    }

    std::vector<SourceKeysAndValues> sources_of(std::span<const ScoredText* const> texts,
                                                const TensorWeights& decoder) {
        TorchEncoder encoder(parameters_, setup_, numbers_, decoder, self_);
        std::vector<SourceKeysAndValues> sources;
        for (const ScoredText* text : texts) {
            if (text->source.empty()) throw std::invalid_argument("a text to learn has no source for the encoder");
            sources.push_back(
                encoder.read(text->source, true, dist::Deadline::after_seconds(options_.timeout_seconds)));
        }
        return sources;
    }

    static Tensor gradient_of(const Tensor& parameter) {
        return parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
    }

    // Returns the gradients of all parameters, one after another, summed over the ranks.
    Tensor summed_gradients() {
        std::vector<Tensor> each;
        for (const auto& [name, parameter] : parameters_.all())
            each.push_back(gradient_of(parameter).reshape(-1));
        Tensor all = at::cat(each);
        if (ranks_.size() == 1) return all;
        Tensor on_host = all.cpu();
        ranks_.all_reduce_sum(on_host.mutable_data_ptr<float>(), static_cast<std::size_t>(on_host.numel()),
                              dist::Deadline::after_seconds(options_.timeout_seconds));
        return on_host.to(all.device());
    }

    // Updates a parameter and its moments. Vectors (norms, biases) do not decay.
    void move(const Tensor& parameter, Moments& moments, const Tensor& gradient, double learning_rate) const {
        moments.first.mul_(kFirstDecay).add_(gradient, 1 - kFirstDecay);
        moments.second.mul_(kSecondDecay).addcmul_(gradient, gradient, 1 - kSecondDecay);
        const auto n = static_cast<double>(steps_);
        const Tensor scale = (moments.second / (1 - std::pow(kSecondDecay, n))).sqrt() + kAdamEpsilon;
        if (parameter.dim() > 1) parameter.mul_(1 - learning_rate * options_.weight_decay);
        parameter.add_(moments.first / scale, -learning_rate / (1 - std::pow(kFirstDecay, n)));
    }

    DecoderSetup setup_;
    TrainerOptions options_;
    dist::Communicator& ranks_;
    dist::SelfComm self_; // every rank has the whole model
    at::TensorOptions numbers_;
    Parameters parameters_;
    BookedTensors cache_, no_sources_;
    std::map<std::string, Moments> moments_;
    std::int64_t steps_ = 0;
};

} // namespace

std::unique_ptr<Trainer> make_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place) {
    DecoderOptions decoder;
    decoder.weight_type = options.weight_type;
    decoder.n_slots = options.max_texts;
    decoder.capacity = options.max_tokens;
    decoder.source_capacity = options.max_source;
    const dist::SelfComm self;
    DecoderSetup setup = prepare_decoder(checkpoint, config, decoder, self);
    const at::TensorOptions numbers = numbers_on(place, config, options.weight_type);
    std::unique_ptr<Trainer> trainer;
    in_one_line(
        [&] { trainer = std::make_unique<TorchTrainer>(checkpoint, std::move(setup), options, ranks, numbers); });
    return trainer;
}

} // namespace entrodraft::model::torch
