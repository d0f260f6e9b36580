#include "model/cpu/weights.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <span>
#include <utility>

namespace entrodraft::model {

// Makes and fills a matrix for each planned matrix, in the order of the plans.
class ModelWeights::Loader {
  public:
    Loader(ModelWeights& to, const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard)
        : to_(to), checkpoint_(checkpoint), config_(config), shard_(shard) {}

    void make_matrices(const DecoderOptions& options, int threads) {
        const ModelNames names = names_of(config_, checkpoint_);
        to_.layers.resize(static_cast<std::size_t>(config_.n_layers));
        for (int i = 0; i < config_.n_layers; ++i) {
            HeldWeights& layer = to_.layers[i];
            make(plan_layer(config_, names, i, shard_), i, layer, options, threads);
            for (int expert = 0; config_.has_experts(i) && expert < config_.experts.n_experts; ++expert)
                make(plan_expert(config_, names, i, expert, shard_), i, layer, options, threads);
        }
        make(plan_outer(config_, names, shard_), config_.n_layers, to_.outer, options, threads);
    }

    // Gives matrices their memory, and counts what a pass reads. Counts only the experts that a row goes through.
    void place(WeightArena& arena) {
        to_.layer_work.resize(to_.layers.size());
        const double chosen = static_cast<double>(config_.experts.n_chosen) / std::max(1, config_.experts.n_experts);
        for (const Job& job : jobs_) {
            PackedMatrix& matrix = this->matrix(job);
            if (matrix.n() == 0) continue;
            arena.place(matrix);
            const Role role = job.source->role;
            const bool is_looked_up = role == Role::embedding && !to_.tied_;
            if (config_.is_encoder || is_looked_up || job.source->reading == Reading::once_a_source) continue;
            const double share = job.source->reading == Reading::chosen_experts ? chosen : 1;
            const auto bytes = static_cast<std::size_t>(static_cast<double>(matrix.bytes()) * share);
            const double operations = 2.0 * matrix.n() * matrix.k() * share;
            to_.bytes_per_pass += bytes;
            to_.operations_per_row += operations;
            if (job.layer == config_.n_layers || role == Role::cross_query || role == Role::cross_output) continue;
            LayerWork& work = to_.layer_work[job.layer];
            work.bytes += bytes;
            work.operations += operations;
        }
        arena.allocate();
    }

    // Norms, biases and other small tensors.
    void read_vectors() {
        for (const Job& job : jobs_)
            if (job.part == 0) linear(job).set_bias(read_biases(checkpoint_, *job.source));
        for (const Plan& plan : plans_)
            for (const PlannedVector& vector : plan.tensors.vectors)
                plan.to->vectors(vector.role).push_back(read_planned(checkpoint_, config_, shard_, vector));
        for (VectorValues& bias : to_.outer.vectors(Role::head_bias))
            bias.weight.resize(static_cast<std::size_t>(to_.head().n_padded()));
    }

    // Reads this thread's part of every matrix.
    void read_matrices(int thread, const auto& progress) {
        std::size_t done = 0;
        for (const Job& job : jobs_) {
            std::vector<MatrixPart> parts;
            for (const StoredSlice& slice : job.rows)
                parts.push_back({&stored(slice), slice.rows, job.source->inputs, job.source->transposed, slice.step});
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
    // A packed matrix, all of a planned one or a part of it.
    struct Job {
        const PlannedMatrix* source;
        int layer;
        HeldWeights* to;
        std::size_t number;                // among the matrices of its role
        std::size_t part;                  // in ShardedLinear::matrices()
        std::span<const StoredSlice> rows; // its outputs
    };

    const TensorView& stored(const StoredSlice& slice) const { return checkpoint_.tensor(slice.tensor->names.weight); }
    bool is_code(const StoredSlice& slice) const { return stored(slice).type == DiskType::quantized; }
    static ShardedLinear& linear(const Job& job) { return job.to->all(job.source->role)[job.number]; }
    static PackedMatrix& matrix(const Job& job) { return linear(job).matrices()[job.part]; }

    void make(TensorPlan tensors, int layer, HeldWeights& to, const DecoderOptions& options, int threads) {
        const Plan& plan = plans_.emplace_back(Plan{std::move(tensors), &to});
        for (const PlannedMatrix& planned : plan.tensors.matrices) {
            const MatrixShape shape = planned.shape();
            const WeightType held = planned.role == Role::router ? WeightType::float32 : options.weight_type;
            std::vector<ShardedLinear>& of_role = to.all(planned.role);
            std::vector<PackedMatrix> parts;
            for (FormatRun& run : runs_of(planned, format_of(held, shape.first_input))) {
                run.format.digits = bytes_of(options.activations);
                parts.emplace_back(run.outputs, shape.inputs, run.format, threads);
                jobs_.push_back({&planned, layer, &to, of_role.size(), parts.size() - 1, run.rows});
            }
            of_role.emplace_back(std::move(parts));
        }
    }

    // Consecutive rows that are held in one format.
    struct FormatRun {
        PackedFormat format;
        std::span<const StoredSlice> rows;
        int outputs = 0;
    };
    // Quantised rows are held as they are, unless they are read transposed; others as `plain`. A unit holds one format.
    // So if a run would end inside a unit, there is one run, of floats.
    std::vector<FormatRun> runs_of(const PlannedMatrix& matrix, const PackedFormat& plain) const {
        std::vector<FormatRun> runs;
        const std::span<const StoredSlice> rows = matrix.rows;
        const int outputs = matrix.shape().outputs;
        if (!config_.quantization ||
            !std::ranges::any_of(rows, [&](const StoredSlice& slice) { return is_code(slice); }))
            return {{plain, rows, outputs}};
        for (std::size_t i = 0; i < rows.size() && !matrix.transposed; ++i) {
            PackedFormat format = is_code(rows[i]) ? format_of(stored(rows[i]), matrix.inputs) : plain;
            const auto count = static_cast<int>(rows[i].rows.size());
            if (runs.empty() || !(runs.back().format == format)) {
                if (!runs.empty() && runs.back().outputs % kernels::kLanes != 0)
                    return {{{WeightType::float32}, rows, outputs}};
                runs.push_back({std::move(format), rows.subspan(i, 0)});
            }
            FormatRun& run = runs.back();
            run.rows = {run.rows.data(), run.rows.size() + 1};
            run.outputs += count;
        }
        if (runs.empty()) runs.push_back({{WeightType::float32}, rows, outputs});
        return runs;
    }

    ModelWeights& to_;
    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    const RankShard& shard_;
    std::deque<Plan> plans_; // a deque, so that they stay where they are
    std::vector<Job> jobs_;
};

ModelWeights::ModelWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                           const DecoderOptions& options, ThreadTeam& team)
    : tied_(!config.has_head()), vocab_(shard.vocab), arena_(team.size()) {
    Loader loader(*this, checkpoint, config, shard);
    loader.make_matrices(options, team.size());
    loader.place(arena_);
    loader.read_vectors();
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(team.size()));
    team.run([&](int thread) { // each thread packs the weights that it will read, so its pages lie near its core
        try {
            loader.read_matrices(thread, options.progress);
        } catch (...) {
            failures[thread] = std::current_exception();
        }
    });
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

} // namespace entrodraft::model
