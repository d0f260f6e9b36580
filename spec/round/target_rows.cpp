// Encodes a pass's logits for the gather, and decodes them: see target_rows.h.
#include "spec/round/target_rows.h"

#include "dist/layout/layout.h"
#include "model/cpu/kernels.h"
#include "spec/beams/beam_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr double kNoValue = -std::numeric_limits<double>::infinity();
constexpr std::size_t kStatusBytes = sizeof(std::uint64_t);
constexpr int kRoot = dist::RankLayout::kCoordinatorReplicaRank;

// Beam searches apply weights to log-probabilities, which a rank does not know from its slice.
RowFormat beam_format(const Request& request) {
    return request.processing.weighs() ? RowFormat::logits : RowFormat::beams;
}

} // namespace

RowFormat row_format(const VerifyOptions& options, const SamplingOptions& sampling) {
    if (options.whole_rows || options.acceptance.has_threshold()) return RowFormat::logits;
    if (sampling.greedy()) return options.acceptance.lenience == 1 ? RowFormat::arg_max : RowFormat::logits;
    if (options.acceptance.kind != Acceptance::gumbel) return RowFormat::logits;
    switch (gumbel_gather(sampling)) {
    case GumbelGather::best:
        return RowFormat::gumbel_max;
    case GumbelGather::shortlist:
        return RowFormat::shortlist;
    case GumbelGather::rows:
        return RowFormat::logits;
    }
    throw std::invalid_argument("row_format: no such gather");
}

std::size_t GatherSetting::max_slice() const {
    return static_cast<std::size_t>(model::vocab_slice(*config, 0, tp_size).size());
}

RowEncoder::RowEncoder(const GatherSetting& setting, const Request& request, bool verified_on_device)
    : setting_(&setting), sampling_(request.sampling), num_beams_(request.beams.num_beams),
      sends_raw_(request.logprobs.has_value() || request.processing.constraint.is_on()),
      noise_(sampling_.seed, request.sequence_key), resample_(sampling_.seed, request.sequence_key, Purpose::resample),
      format_(verified_on_device      ? RowFormat::verified_on_device
              : sends_raw_            ? RowFormat::logits
              : request.beams.is_on() ? beam_format(request)
                                      : row_format(setting.options, sampling_)) {
    if (request.processing.is_off() || (request.processing.constraint.is_on() && !request.processing.grammar)) return;
    const std::vector<std::int64_t>& eos = setting.config->eos_token_ids;
    processor_.emplace(request.processing, request.prompt, std::vector<TokenId>(eos.begin(), eos.end()),
                       request.source);
}

std::size_t RowEncoder::row_bytes() const {
    switch (format_) {
    case RowFormat::verified_on_device:
        return sizeof(VerifiedRow);
    case RowFormat::beams:
        return beam_row_bytes(n_candidates());
    case RowFormat::arg_max:
    case RowFormat::gumbel_max:
        return sizeof(BestToken);
    case RowFormat::shortlist:
        return shortlist_bytes(sampling_);
    case RowFormat::logits:
        return setting_->max_slice() * sizeof(float);
    }
    throw std::invalid_argument("row_bytes: no such format");
}

// ---- the needs of a pass ----

model::LogitNeeds RowEncoder::needs() const {
    if (format_ == RowFormat::verified_on_device) return {model::LogitSummary::none, false};
    if (selects_on_device()) return {model::LogitSummary::entropy, false};
    const bool is_best = format_ == RowFormat::arg_max || format_ == RowFormat::gumbel_max;
    if (!is_best || processor_) return {};
    return {format_ == RowFormat::arg_max ? model::LogitSummary::max : model::LogitSummary::none, false};
}

model::RowNoise RowEncoder::noise(std::uint64_t position) const {
    if (format_ != RowFormat::gumbel_max || needs().rows) return {};
    return {noise_.key(), position, sampling_.temperature};
}

DraftedRow RowEncoder::drafted_row(const ScoredSequence& sequence, std::size_t i) const {
    if (format_ != RowFormat::verified_on_device) return {};
    const bool is_block = setting_->options.acceptance.kind == Acceptance::block;
    const std::uint64_t first = sequence.tokens.size(), round_start = is_block ? first : 0;
    DraftedRow row;
    if (i < sequence.drafted.size()) row.drafted = sequence.drafted[i];
    row.is_first = i == 0;
    row.is_scaled = is_block;
    row.lenience = static_cast<float>(setting_->options.acceptance.lenience);
    row.noise = {resample_.key(), noise_position(first + i, round_start), sampling_.temperature};
    return row;
}

// ---- this rank's part ----

// Number of this rank's tokens that count.
std::size_t RowEncoder::n_known() const {
    const dist::Slice local = setting_->target->local_vocab();
    const int vocab = setting_->options.vocab_size;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(vocab - local.begin, 0, local.size()));
}

LogitRows RowEncoder::raw(const ScoredSequence& sequence, const model::PassResult& scores) const {
    if (scores.logits.empty()) return {};
    return {scores.logits.subspan(sequence.first_row * scores.logits_stride), scores.logits_stride,
            static_cast<std::size_t>(setting_->target->local_vocab().size())};
}

LogitRows RowEncoder::sent(const ScoredSequence& sequence, const model::PassResult& scores) {
    const LogitRows rows = raw(sequence, scores);
    if (sends_raw_ || num_beams_ > 0) return rows; // process_beam_row() processes the rows of beams
    return processed(rows, sequence, static_cast<TokenId>(setting_->target->local_vocab().begin));
}

LogitRows RowEncoder::processed(const LogitRows& raw, const ScoredSequence& sequence, TokenId first_token) {
    if (!processor_ || raw.logits.empty()) return raw;
    processed_.clear();
    for (std::size_t row = 0; row < sequence.n_rows(); ++row)
        processed_.insert(processed_.end(), raw.row(row).begin(), raw.row(row).end());
    processor_->follow(sequence.tokens);
    processor_->apply_to_rows(sequence.drafted, sequence.parents, processed_, first_token);
    return {processed_, raw.size, raw.size};
}

void RowEncoder::encode(const ScoredSequence& sequence, const model::PassResult& scores, std::span<std::byte> to) {
    if (!setting_->target) return std::fill(to.begin(), to.end(), std::byte{0});
    if (format_ == RowFormat::verified_on_device) {
        const auto verified =
            std::as_bytes(setting_->device->verified().subspan(sequence.first_row, sequence.n_rows()));
        std::copy(verified.begin(), verified.end(), to.begin());
        return;
    }
    if (format_ == RowFormat::beams) return encode_beams(sequence, scores, to);
    const LogitRows slice = sent(sequence, scores);
    const auto first_token = static_cast<TokenId>(setting_->target->local_vocab().begin);
    for (std::size_t row = 0; row < sequence.n_rows(); ++row) {
        const std::span<const float> logits = slice.row(row);
        const std::span<std::byte> encoded = to.subspan(row * row_bytes(), row_bytes());
        if (format_ == RowFormat::logits) {
            std::memcpy(encoded.data(), logits.data(), logits.size_bytes());
        } else if (format_ == RowFormat::shortlist) {
            make_shortlist({logits.first(n_known()), first_token, sequence.position(row)}, sampling_, noise_, encoded);
        } else {
            const BestToken best =
                best_of_slice(logits.empty() ? logits : logits.first(n_known()), sequence, scores, row);
            std::memcpy(encoded.data(), &best, sizeof best);
        }
    }
}

// True if the GPU selects a beam row's best tokens, so that its logits stay there.
bool RowEncoder::selects_on_device() const {
    return format_ == RowFormat::beams && setting_->device && !processor_ &&
           n_candidates() <= DeviceTreePlan::kMaxChildren && setting_->max_slice() <= DeviceTreePlan::kMaxVocab;
}

// Number of tokens that a beam search takes from a row, at most: num_beams of them do not end the text.
std::size_t RowEncoder::n_candidates() const {
    return static_cast<std::size_t>(num_beams_) + setting_->config->eos_token_ids.size();
}

void RowEncoder::process_beam_row(const ScoredSequence& sequence, std::size_t row, std::span<float> values,
                                  TokenId first) {
    if (!processor_) return;
    std::vector<TokenId> text(sequence.tokens.begin(), sequence.tokens.end());
    const std::vector<TokenId> found = sequence.beams->tokens_to(
        sequence.beams->first_of_pass() + static_cast<int>(row), static_cast<int>(text.size()));
    text.insert(text.end(), found.begin(), found.end());
    processor_->follow(text);
    processor_->apply(values, first);
}

// Banned tokens count in the sum of probabilities, as in transformers.
void RowEncoder::encode_beams(const ScoredSequence& sequence, const model::PassResult& scores,
                              std::span<std::byte> to) {
    const LogitRows slice = sent(sequence, scores);
    const auto first_token = static_cast<TokenId>(setting_->target->local_vocab().begin);
    const auto part_of = [&](std::size_t row) -> BeamRowPart {
        if (selects_on_device())
            return beam_row_part(setting_->device->grown()[sequence.first_row + row].row, first_token);
        const std::span<const float> logits = slice.row(row);
        processed_.assign(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(n_known()));
        process_beam_row(sequence, row, processed_, first_token);
        return beam_row_part(logits, processed_, first_token, n_candidates());
    };
    for (std::size_t row = 0; row < sequence.n_rows(); ++row)
        encode_beam_row(part_of(row), n_candidates(), to.subspan(row * row_bytes(), row_bytes()));
}

// `logits` is empty where the pass was not asked for them.
BestToken RowEncoder::best_of_slice(std::span<const float> logits, const ScoredSequence& sequence,
                                    const model::PassResult& scores, std::size_t row) const {
    if (n_known() == 0) return {}; // none of this rank's tokens counts
    const auto first_token = static_cast<TokenId>(setting_->target->local_vocab().begin);
    const std::size_t pass_row = sequence.first_row + row;
    if (format_ == RowFormat::gumbel_max) {
        if (!logits.empty())
            return gumbel_max({logits, first_token, sequence.position(row)}, sampling_.temperature, noise_);
        const model::NoisyToken& found = scores.noisy[pass_row];
        if (std::isnan(found.value)) throw std::runtime_error("a logit is not a number");
        return {found.token < 0 ? kNoValue : found.value, found.token, found.runner_up};
    }
    const model::LogitStats stats =
        processor_
            ? model::kernels::best_kernels().logit_max(logits.data(), static_cast<int>(logits.size()), first_token)
            : scores.summaries[pass_row];
    return arg_max_of(stats);
}

// ---- the parts of all ranks ----

TargetRows RowEncoder::decode(std::span<const std::byte> parts, std::size_t stride, const ScoredSequence& sequence) {
    TargetRows rows;
    rows.encoder_ = this;
    rows.sequence_ = sequence;
    rows.parts_ = parts;
    rows.part_stride_ = stride;
    if (format_ != RowFormat::logits) return rows;
    const auto vocab = static_cast<std::size_t>(setting_->config->vocab_size);
    whole_.resize(sequence.n_rows() * vocab);
    for (int tp_rank = 0; tp_rank < setting_->tp_size; ++tp_rank) {
        const dist::Slice slice = model::vocab_slice(*setting_->config, tp_rank, setting_->tp_size);
        for (std::size_t row = 0; row < sequence.n_rows(); ++row)
            std::memcpy(whole_.data() + row * vocab + slice.begin, rows.part(tp_rank, row).data(),
                        static_cast<std::size_t>(slice.size()) * sizeof(float));
    }
    return whole_rows({whole_, vocab, vocab}, sequence);
}

TargetRows RowEncoder::rows_of(const ScoredSequence& sequence, const model::PassResult& scores) {
    return whole_rows(sent(sequence, scores), sequence);
}

TargetRows RowEncoder::whole_rows(const LogitRows& sent, const ScoredSequence& sequence) {
    TargetRows rows;
    rows.encoder_ = this;
    rows.sequence_ = sequence;
    rows.raw_ = sent;
    rows.rows_ = sends_raw_ ? processed(sent, sequence, 0) : sent;
    return rows;
}

RowFormat TargetRows::format() const {
    return encoder_->format_;
}

std::span<const std::byte> TargetRows::part(int tp_rank, std::size_t row) const {
    const auto rank = static_cast<std::size_t>(encoder_->setting_->first_target_rank + tp_rank);
    return parts_.subspan(rank * part_stride_ + row * encoder_->row_bytes(), encoder_->row_bytes());
}

BestToken TargetRows::best(std::size_t row) const {
    const int tp_size = encoder_->setting_->tp_size;
    if (format() == RowFormat::shortlist) {
        std::vector<std::byte> shortlists;
        for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
            const std::span<const std::byte> of_rank = part(tp_rank, row);
            shortlists.insert(shortlists.end(), of_rank.begin(), of_rank.end());
        }
        return best_of_shortlists(shortlists, encoder_->sampling_);
    }
    const BestToken best = format() == RowFormat::logits ? best_of_whole(row) : best_of_slices(row);
    if (best.value == kNoValue && encoder_->processor_) throw NothingToSay();
    if (!std::isfinite(best.value)) throw std::runtime_error("the largest logit is infinite");
    return best;
}

BestToken TargetRows::best_of_slices(std::size_t row) const {
    BestToken best;
    for (int tp_rank = 0; tp_rank < encoder_->setting_->tp_size; ++tp_rank) {
        BestToken of_rank;
        std::memcpy(&of_rank, part(tp_rank, row).data(), sizeof of_rank);
        best = better(best, of_rank);
    }
    return best;
}

BestToken TargetRows::best_of_whole(std::size_t row) const {
    const std::span<const float> values = logits(row);
    if (!encoder_->sampling_.greedy())
        return gumbel_max_adjusted({values, 0, sequence_.position(row)}, encoder_->sampling_, encoder_->noise_);
    const auto stats = model::kernels::best_kernels().logit_max(values.data(), static_cast<int>(values.size()), 0);
    return arg_max_of(stats);
}

std::optional<TokenId> TargetRows::own_token(std::size_t row) const {
    const VerifyOptions& options = encoder_->setting_->options;
    if (format() == RowFormat::logits && !encoder_->sampling_.greedy() &&
        options.acceptance.kind != Acceptance::gumbel) { // best() would add noise
        const std::span<const float> values = logits(row);
        const auto stats = model::kernels::best_kernels().logit_max(values.data(), static_cast<int>(values.size()), 0);
        return std::isfinite(stats.max) ? std::optional<TokenId>(stats.arg_max) : std::nullopt;
    }
    try {
        return best(row).token;
    } catch (const NothingToSay&) {
        return std::nullopt;
    }
}

std::vector<BeamCandidate> TargetRows::candidates(std::size_t row) const {
    const std::size_t n = encoder_->n_candidates();
    if (format() == RowFormat::logits) {
        std::vector<float> log_probs = log_probs_of(raw_.row(row));
        log_probs.resize(static_cast<std::size_t>(encoder_->setting_->options.vocab_size));
        encoder_->process_beam_row(sequence_, row, log_probs, 0);
        return best_candidates(log_probs, n);
    }
    std::vector<std::span<const std::byte>> parts;
    for (int tp_rank = 0; tp_rank < encoder_->setting_->tp_size; ++tp_rank)
        parts.push_back(part(tp_rank, row));
    return decode_beam_row(parts, n);
}

VerifiedRow TargetRows::verified(std::size_t row) const {
    VerifiedRow verified;
    std::memcpy(&verified, part(0, row).data(), sizeof verified);
    return verified;
}

std::span<const float> TargetRows::logits(std::size_t row) const {
    return rows_.row(row).first(static_cast<std::size_t>(encoder_->setting_->options.vocab_size));
}

TokenLogProbs TargetRows::logprobs(std::size_t row, TokenId emitted, int n) const {
    const std::vector<float> log_probs = log_probs_of(raw_.row(row));
    TokenLogProbs found{{emitted, log_probs[emitted]}, {}};
    const auto known = static_cast<std::size_t>(encoder_->setting_->options.vocab_size); // other tokens have no text
    if (n > 0) found.top = best_candidates(std::span(log_probs).first(known), static_cast<std::size_t>(n));
    return found;
}

// ---- the gather ----

TargetGather::TargetGather(const GatherSetting& setting, dist::Communicator& replica, int n_slots)
    : setting_(setting), replica_(replica), encoders_(static_cast<std::size_t>(n_slots)) {}

void TargetGather::begin_sequence(int slot, const Request& request, bool verified_on_device) {
    encoders_[slot].emplace(setting_, request, verified_on_device);
}

bool TargetGather::is_coordinator() const {
    return replica_.rank() == kRoot;
}

// A replica of one rank need not send whole rows to itself.
bool TargetGather::is_sent(const ScoredSequence& sequence) const {
    return replica_.size() > 1 || encoder(sequence.slot).format() != RowFormat::logits;
}

model::LogitNeeds TargetGather::needs(std::span<const ScoredSequence> sequences) {
    model::LogitNeeds all(model::LogitSummary::none, false);
    noises_.clear();
    drafted_rows_.clear();
    bool any_noise = false, any_verified = false;
    std::size_t n_selected = 0;
    for (const ScoredSequence& sequence : sequences) {
        const RowEncoder& encoder = encoder_of(sequence);
        all = all.and_those_of(encoder.needs());
        if (encoder.selects_on_device()) n_selected = std::max(n_selected, encoder.n_candidates());
        for (std::size_t i = 0; i < sequence.n_rows(); ++i) {
            noises_.push_back(encoder.noise(sequence.position(i)));
            any_noise = any_noise || noises_.back().temperature > 0;
            drafted_rows_.push_back(encoder.drafted_row(sequence, i));
            any_verified = any_verified || drafted_rows_.back().noise.temperature > 0;
        }
    }
    if (any_noise) all.noises = noises_;
    if (any_verified) all.extension = setting_.device->verify(drafted_rows_);
    if (n_selected > 0)
        all.extension = setting_.device->select(static_cast<int>(drafted_rows_.size()), static_cast<int>(n_selected),
                                                setting_.options.vocab_size);
    return all;
}

int TargetGather::summary_vocab(std::span<const ScoredSequence> sequences) const {
    return !sequences.empty() && sequences.front().beams ? 0 : setting_.options.vocab_size;
}

void TargetGather::start(std::uint64_t status, std::span<const ScoredSequence> sequences,
                         const model::PassResult& scores) {
    sequences_ = sequences;
    scores_ = &scores;
    std::size_t bytes = kStatusBytes;
    for (const ScoredSequence& sequence : sequences)
        if (is_sent(sequence)) bytes += sequence.n_rows() * encoder_of(sequence).row_bytes();
    sent_.resize(bytes);
    std::memcpy(sent_.data(), &status, sizeof status);
    std::size_t at = kStatusBytes;
    for (const ScoredSequence& sequence : sequences) {
        if (!is_sent(sequence)) continue;
        const std::size_t part = sequence.n_rows() * encoder_of(sequence).row_bytes();
        encoder_of(sequence).encode(sequence, scores, std::span(sent_).subspan(at, part));
        at += part;
    }
    if (is_coordinator()) gathered_.resize(sent_.size() * static_cast<std::size_t>(replica_.size()));
    replica_.start_gather(sent_.data(), gathered_.data(), sent_.size(), kRoot);
}

std::vector<TargetRows> TargetGather::finish(dist::Deadline deadline) {
    replica_.wait(deadline);
    std::vector<TargetRows> rows;
    if (!is_coordinator()) return rows;
    std::size_t at = kStatusBytes;
    for (const ScoredSequence& sequence : sequences_) {
        RowEncoder& encoder = encoder_of(sequence);
        if (!is_sent(sequence)) {
            rows.push_back(encoder.rows_of(sequence, *scores_));
            continue;
        }
        rows.push_back(encoder.decode(std::span(gathered_).subspan(at), sent_.size(), sequence));
        at += sequence.n_rows() * encoder.row_bytes();
    }
    return rows;
}

void TargetGather::share_hidden(model::PassResult& scores, std::size_t n, dist::Deadline deadline) {
    const int root = setting_.first_target_rank;
    if (root == kRoot || n == 0) return;
    hidden_.resize(n * static_cast<std::size_t>(setting_.config->hidden_size));
    if (replica_.rank() == root) std::copy(scores.hidden.begin(), scores.hidden.end(), hidden_.begin());
    replica_.broadcast(hidden_.data(), hidden_.size() * sizeof(float), root, deadline);
    if (is_coordinator()) scores.hidden = hidden_;
}

bool TargetGather::any_status(std::uint64_t status) const {
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(replica_.size()); ++rank) {
        std::uint64_t of_rank;
        std::memcpy(&of_rank, gathered_.data() + rank * sent_.size(), sizeof of_rank);
        if (of_rank == status) return true;
    }
    return false;
}

} // namespace entrodraft::spec
