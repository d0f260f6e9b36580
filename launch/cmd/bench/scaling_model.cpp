// The scaling model: see scaling_model.h.
#include "launch/cmd/bench/scaling_model.h"

#include <stdexcept>

namespace entrodraft::launch {

namespace {

// With weights 1 / seconds^2 the squares summed up are those of relative errors.
Link constant_link(std::span<const LinkSample> samples) {
    double weighted = 0, weights = 0;
    for (const LinkSample& sample : samples) {
        const double weight = 1 / (sample.seconds * sample.seconds);
        weighted += weight * sample.seconds;
        weights += weight;
    }
    return {weighted / weights, 0};
}

Link proportional_link(std::span<const LinkSample> samples) {
    double weighted = 0, weights = 0;
    for (const LinkSample& sample : samples) {
        const double weight = 1 / (sample.seconds * sample.seconds);
        weighted += weight * sample.bytes * sample.seconds;
        weights += weight * sample.bytes * sample.bytes;
    }
    return {0, weighted / weights};
}

} // namespace

Link fit_link(std::span<const LinkSample> samples) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    double least = 0, most = 0;
    for (const LinkSample& sample : samples) {
        if (!(sample.seconds > 0) || !(sample.bytes > 0))
            throw std::invalid_argument("a collective's bytes and time must be above 0");
        const double weight = 1 / (sample.seconds * sample.seconds);
        n += weight;
        x += weight * sample.bytes;
        y += weight * sample.seconds;
        xx += weight * sample.bytes * sample.bytes;
        xy += weight * sample.bytes * sample.seconds;
        least = least == 0 || sample.bytes < least ? sample.bytes : least;
        most = sample.bytes > most ? sample.bytes : most;
    }
    if (least == most) throw std::invalid_argument("alpha and beta need collectives of at least two sizes");
    Link link;
    link.beta = (n * xy - x * y) / (n * xx - x * x);
    link.alpha = (y - link.beta * x) / n;
    if (link.beta < 0) return constant_link(samples);
    if (link.alpha < 0) return proportional_link(samples);
    return link;
}

double MeasuredPass::compute() const {
    const double left = seconds - communication();
    if (!(left > 0)) throw std::invalid_argument("the all-reduces of a pass would take longer than the whole pass");
    return left;
}

PredictedPass predict(const MeasuredPass& base, std::span<const ShardPass> shards, const MeasuredPass& measured) {
    const double compute = base.compute();
    PredictedPass predicted;
    predicted.compute_by_reading = compute * measured.limit / base.limit;
    predicted.compute_by_division = compute * base.tensor_parallel / measured.tensor_parallel;
    predicted.communication = measured.communication();
    for (const ShardPass& shard : shards)
        if (shard.of == measured.tensor_parallel)
            predicted.compute_by_shard = shard.seconds * measured.limit / shard.limit;
    return predicted;
}

double throughput_of_replicas(int cores, int group, double seconds_per_token) {
    if (group < 1 || cores % group != 0 || !(seconds_per_token > 0)) return 0;
    const int replicas = cores / group;
    return replicas / seconds_per_token;
}

} // namespace entrodraft::launch
