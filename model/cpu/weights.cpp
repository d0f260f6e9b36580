#include "model/cpu/weights.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace entrodraft::model {

// Makes a matrix for each planned one, in the order of the plans, and fills it.
class ModelWeights::Loader {
  public:
    Loader(ModelWeights& to, const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard)
        : to_(to), checkpoint_(checkpoint), config_(config), shard_(shard) {}

    void make_matrices(WeightType type, int threads) {
        const ModelNames names = names_of(config_, checkpoint_);
        to_.layers.resize(static_cast<std::size_t>(config_.n_layers));
        for (int i = 0; i < config_.n_layers; ++i) {
            HeldWeights& layer = to_.layers[static_cast<std::size_t>(i)];
            make(plan_layer(config_, names, i, shard_), i, layer, type, threads);
            for (int expert = 0; config_.has_experts(i) && expert < config_.experts.n_experts; ++expert)
                make(plan_expert(config_, names, i, expert, shard_), i, layer, type, threads);
        }
        make(plan_outer(config_, names, shard_), config_.n_layers, to_.outer, type, threads);
    }

    // A quantised matrix is held so, unless it is read the other way round.
    void choose_formats() {
        if (!config_.quantization) return;
        for (const Job& job : jobs_) {
            std::vector<const TensorView*> tensors;
            for (const StoredSlice& slice : job.source.rows)
                tensors.push_back(&stored(slice));
            const bool is_quantized =
                std::ranges::any_of(job.source.rows, [&](const auto& each) { return is_code(each); });
            if (job.source.transposed) {
                if (is_quantized) matrix(job).hold_as({WeightType::float32});
                continue;
            }
            if (auto format = format_of(tensors, job.source.inputs)) matrix(job).hold_as(*std::move(format));
        }
    }

    // Gives matrices their memory, and counts what a pass reads of it: of experts, as many as a row goes through.
    void place(WeightArena& arena) {
        to_.layer_work.resize(to_.layers.size());
        const double chosen = static_cast<double>(config_.experts.n_chosen) / std::max(1, config_.experts.n_experts);
        for (const Job& job : jobs_) {
            PackedMatrix& matrix = this->matrix(job);
            if (matrix.n() == 0) continue;
            arena.place(matrix);
            const Role role = job.source.role;
            const bool is_looked_up = role == Role::embedding && !to_.tied_;
            if (config_.is_encoder || is_looked_up || job.source.reading == Reading::once_a_source) continue;
            const double share = job.source.reading == Reading::chosen_experts ? chosen : 1;
            const auto bytes = static_cast<std::size_t>(static_cast<double>(matrix.bytes()) * share);
            const double operations = 2.0 * matrix.n() * matrix.k() * share;
            to_.bytes_per_pass += bytes;
            to_.operations_per_row += operations;
            if (job.layer == config_.n_layers || role == Role::cross_query || role == Role::cross_output) continue;
            LayerWork& work = to_.layer_work[static_cast<std::size_t>(job.layer)];
            work.bytes += bytes;
            work.operations += operations;
        }
        arena.allocate();
    }

    // Norms, biases and other small tensors.
    void read_vectors() {
        for (const Job& job : jobs_)
            if (!job.is_last) linear(job).set_bias(read_biases(checkpoint_, job.source));
        for (const Plan& plan : plans_)
            for (const PlannedVector& vector : plan.tensors.vectors)
                plan.to->vectors(vector.role).push_back(read_planned(checkpoint_, config_, shard_, vector));
        for (VectorValues& bias : to_.outer.vectors(Role::head_bias))
            bias.weight.resize(static_cast<std::size_t>(to_.head().n_padded()));
    }

    // This thread's part of every matrix.
    void read_matrices(int thread, const LoadProgress& progress) {
        std::size_t done = 0;
        for (const Job& job : jobs_) {
            std::vector<MatrixPart> parts;
            for (const StoredSlice& slice : job.source.rows)
                parts.push_back({&stored(slice), slice.rows, job.source.inputs, job.source.transposed, slice.step});
            matrix(job).load(parts, thread);
            done += matrix(job).bytes();
            if (thread == 0 && progress) progress(done, to_.arena_.bytes());
        }
    }

  private:
    struct Plan {
        TensorPlan tensors;
        HeldWeights* to;
    };
    // A packed matrix and what it is made of.
    struct Job {
        PlannedMatrix source;
        int layer;
        HeldWeights* to;
        std::size_t number;   // among those of its role
        bool is_last = false; // ShardedLinear::last()
    };

    const TensorView& stored(const StoredSlice& slice) const { return checkpoint_.tensor(slice.tensor->names.weight); }
    bool is_code(const StoredSlice& slice) const { return stored(slice).type == DiskType::quantized; }
    static ShardedLinear& linear(const Job& job) { return job.to->all(job.source.role)[job.number]; }
    static PackedMatrix& matrix(const Job& job) { return job.is_last ? linear(job).last() : linear(job).matrix(); }

    void make(TensorPlan plan, int layer, HeldWeights& to, WeightType type, int threads) {
        for (PlannedMatrix& planned : plan.matrices) {
            std::vector<ShardedLinear>& of_role = to.all(planned.role);
            const MatrixShape shape = planned.shape();
            const int n_last = n_plain_gates(planned, shape, layer);
            const WeightType held = planned.role == Role::router ? WeightType::float32 : type;
            of_role.emplace_back(shape, n_last, held, threads);
            Job& job = jobs_.emplace_back(Job{planned, layer, &to, of_role.size() - 1});
            if (n_last == 0) continue;
            Job last = job;
            last.source.rows = take_last(job.source.rows, n_last);
            last.is_last = true;
            jobs_.push_back(std::move(last));
        }
        plans_.push_back({std::move(plan), &to});
    }

    // So many stored rows at the end, which it takes away.
    static std::vector<StoredSlice> take_last(std::vector<StoredSlice>& rows, std::int64_t count) {
        auto from = rows.end();
        while (count > 0)
            count -= (--from)->rows.size();
        std::vector<StoredSlice> last(from, rows.end());
        rows.erase(from, rows.end());
        return last;
    }

    // Linear attention: outputs at the end that are stored as they are after quantised ones (the gates of FP8
    // checkpoints), where no unit has to hold some of both.
    int n_plain_gates(const PlannedMatrix& planned, const MatrixShape& shape, int layer) const {
        if (!config_.quantization || planned.role != Role::qkv || !config_.is_linear(layer)) return 0;
        int count = 0;
        for (auto at = planned.rows.rbegin(); at != planned.rows.rend() && !is_code(*at); ++at)
            count += static_cast<int>(at->rows.size());
        const int before = shape.outputs - count;
        return before > 0 && before % kernels::kLanes == 0 ? count : 0;
    }

    ModelWeights& to_;
    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    const RankShard& shard_;
    std::vector<Plan> plans_;
    std::vector<Job> jobs_;
};

ModelWeights::ModelWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                           WeightType type, ThreadTeam& team, const LoadProgress& progress)
    : tied_(config.tied_embeddings), vocab_(shard.vocab), arena_(team.size()) {
    Loader loader(*this, checkpoint, config, shard);
    loader.make_matrices(type, team.size());
    loader.choose_formats();
    loader.place(arena_);
    loader.read_vectors();
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(team.size()));
    team.run([&](int thread) { // each thread packs what it will read: its pages lie near its core
        try {
            loader.read_matrices(thread, progress);
        } catch (...) {
            failures[static_cast<std::size_t>(thread)] = std::current_exception();
        }
    });
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

} // namespace entrodraft::model
