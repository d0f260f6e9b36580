// See self_check.h.
#include "model/pass/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <vector>

namespace entrodraft::model {

namespace {

struct Results {
    std::vector<float> logits; // [kCheckedRows][local vocabulary]
    std::vector<float> hidden; // [layers][kCheckedRows][hidden_size]
};

std::vector<Row> rows_at(const Decoder& decoder, int first, int count) {
    std::vector<Row> rows;
    for (int i = 0; i < count; ++i)
        rows.push_back({((first + i) * 37 + 11) % decoder.config().vocab_size, 0, first + i, i - 1});
    return rows;
}

// Returns features for a draft head's rows: arbitrary numbers between -1 and 1.
std::vector<float> features_of(const Decoder& decoder, std::size_t n_rows) {
    std::vector<float> features;
    const Fusion kind = decoder.config().fusion.kind;
    if (kind == Fusion::none || kind == Fusion::context) return features;
    const auto width = static_cast<std::size_t>(decoder.config().fusion.width());
    for (std::size_t i = 0; i < n_rows * width; ++i)
        features.push_back(static_cast<float>((i * 37 + 11) % 97) / 48 - 1);
    return features;
}

// Returns the first layer that has hidden states.
int first_layer(const ModelConfig& config) {
    return config.fusion.kind == Fusion::features ? 1 : 0;
}

void read_context(Decoder& decoder, int context) {
    if (decoder.max_source() > 0) {
        std::vector<TokenId> source;
        for (int i = 0; i < std::min(kCheckedRows, decoder.max_source()); ++i)
            source.push_back((i * 53 + 7) % decoder.config().encoder.vocab_size);
        decoder.encode(0, source);
    }
    for (int done = 0; done < context;) {
        const std::vector<Row> rows = rows_at(decoder, done, std::min(context - done, decoder.max_rows()));
        const std::vector<float> features = features_of(decoder, rows.size());
        decoder.forward({.rows = rows, .mask = Mask::causal, .features = features});
        done += static_cast<int>(rows.size());
    }
}

Results compute(Decoder& decoder, int context, bool with_hidden) {
    const std::vector<Row> rows = rows_at(decoder, context, kCheckedRows);
    std::vector<int> layers;
    for (int layer = first_layer(decoder.config()); with_hidden && layer <= decoder.config().n_layers; ++layer)
        layers.push_back(layer);
    std::vector<int> logit_rows(kCheckedRows);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const std::vector<float> features = features_of(decoder, rows.size());
    const PassResult pass = decoder.forward(
        {.rows = rows, .logit_rows = logit_rows, .hidden_layers = layers, .mask = Mask::causal, .features = features});
    decoder.cache().truncate(0, context);
    Results results;
    const auto width = static_cast<std::size_t>(decoder.local_vocab().size());
    for (std::size_t i = 0; i < kCheckedRows; ++i) {
        const auto row = pass.logits.subspan(i * pass.logits_stride, width);
        results.logits.insert(results.logits.end(), row.begin(), row.end());
    }
    results.hidden.assign(pass.hidden.begin(), pass.hidden.end());
    return results;
}

// Returns NaN where one of them holds NaN.
double distance(std::span<const float> tested, std::span<const float> other) {
    double differences = 0, squares = 0;
    for (std::size_t i = 0; i < tested.size(); ++i) {
        const double b = other[i], difference = static_cast<double>(tested[i]) - b;
        differences += difference * difference;
        squares += b * b;
    }
    return differences == 0 ? 0 : std::sqrt(differences / squares);
}

// The largest distance over the rows of `width` numbers, and its row.
struct Worst {
    double distance = 0;
    int row = 0;
};
Worst worst_row(std::span<const float> tested, std::span<const float> other, std::size_t width) {
    Worst worst;
    for (std::size_t row = 0; row < kCheckedRows; ++row) {
        const double of_row = distance(tested.subspan(row * width, width), other.subspan(row * width, width));
        if (!(of_row <= worst.distance)) worst = {of_row, static_cast<int>(row)};
        if (std::isnan(of_row)) break;
    }
    return worst;
}

bool are_same(std::span<const float> a, std::span<const float> b) {
    return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

} // namespace

double self_check_bound(WeightType tested, const ModelConfig& config) {
    const bool is_linear = config.n_linear_layers() > 0; // it gives short keys length 1, and rounding turns these
    switch (tested) {
    case WeightType::float32:
        return 1e-3;
    case WeightType::float16:
        return 1e-2;
    case WeightType::bfloat16:
    case WeightType::int8: // the activations' types differ
        return is_linear ? 8e-2 : 5e-2;
    case WeightType::int4: // GPUs have an embedding of 16 bits, CPUs one of 4: in small random models 0.1 to 0.4
        if (is_linear) return 1.2;               // 0.95
        return config.is_latent() ? 7e-1 : 5e-1; // matrices that make queries and values differ in the same way: 0.54
    case WeightType::float8:                     // the same models: 0.05 to 0.2
        return 3e-1;
    }
    return 0;
}

std::string difference_of(Decoder& tested, Decoder& other, double bound, int context) {
    for (Decoder* decoder : {&tested, &other})
        read_context(*decoder, context);
    const Results first = compute(tested, context, true), recorded = compute(tested, context, false),
                  repeated = compute(tested, context, false), expected = compute(other, context, true);
    for (Decoder* decoder : {&tested, &other})
        decoder->cache().truncate(0, 0);
    const auto hidden = static_cast<std::size_t>(tested.config().hidden_size);
    std::string layer;
    for (std::size_t at = 0; at < first.hidden.size() && layer.empty(); at += kCheckedRows * hidden) {
        const auto part = [&](const Results& of) { return std::span(of.hidden).subspan(at, kCheckedRows * hidden); };
        const int number = first_layer(tested.config()) + static_cast<int>(at / (kCheckedRows * hidden));
        if (const Worst worst = worst_row(part(first), part(expected), hidden); !(worst.distance <= bound))
            layer = number == 0 ? "the embedding" : fmt::format("layer {}", number - 1);
    }
    const Worst worst = worst_row(first.logits, expected.logits, first.logits.size() / kCheckedRows);
    if (!(worst.distance <= bound))
        return fmt::format("logits of row {} differ by {:.3g} (bound {:.3g}){}", worst.row, worst.distance, bound,
                           layer.empty() ? "" : ", " + layer + " first");
    if (!layer.empty()) return fmt::format("hidden states differ, bound {:.3g}, {} first", bound, layer);
    if (!are_same(first.logits, recorded.logits) || !are_same(first.logits, repeated.logits))
        return "the same pass gave other bits when it was repeated";
    return "";
}

} // namespace entrodraft::model
