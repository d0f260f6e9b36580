// See target_scorer.h.
#include "spec/distill/target_scorer.h"

#include "spec/verify/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

namespace entrodraft::spec {

namespace {

struct Candidate {
    TokenId token = -1;
    float logit = -std::numeric_limits<float>::infinity();
    float noisy = -std::numeric_limits<float>::infinity();
};

bool is_better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// A rank's part of a row: this, then its n_top best tokens, then the best of the others with noise; fewer if its slice
// is small.
struct PartHead {
    double sum = 0; // of exp(logit - max)
    float max = -std::numeric_limits<float>::infinity();
    std::int32_t n_best = 0;
};

class RowParts {
  public:
    RowParts(int n_top, std::uint64_t seed, std::uint64_t key) : n_top_(n_top), noise_(seed, key) {}

    // A multiple of PartHead's alignment, as rows follow one another.
    std::size_t row_bytes() const {
        const std::size_t bytes = sizeof(PartHead) + (static_cast<std::size_t>(n_top_) + 1) * sizeof(Candidate);
        return (bytes + alignof(PartHead) - 1) / alignof(PartHead) * alignof(PartHead);
    }

    // Encodes the logits of tokens [first, first + logits.size()).
    void encode(std::span<const float> logits, TokenId first, std::uint64_t place, std::byte* to) {
        const std::size_t n = logits.size(), begin = static_cast<std::size_t>(first);
        noises_.resize(begin + n);
        noise_.fill(place, noises_);
        all_.clear();
        for (std::size_t i = 0; i < n; ++i) {
            if (!(logits[i] < std::numeric_limits<float>::infinity()))
                throw std::runtime_error("a logit of the target is not a number");
            all_.push_back({first + static_cast<TokenId>(i), logits[i], logits[i] + noises_[begin + i]});
        }
        const std::size_t n_best = std::min(n, static_cast<std::size_t>(n_top_));
        std::partial_sort(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(n_best), all_.end(), is_better);
        PartHead head;
        head.n_best = static_cast<std::int32_t>(n_best);
        if (n > 0) head.max = all_.front().logit;
        for (const Candidate& each : all_)
            head.sum += std::exp(static_cast<double>(each.logit) - head.max);
        Candidate rest;
        for (std::size_t i = n_best; i < n; ++i)
            if (all_[i].noisy > rest.noisy) rest = all_[i];
        auto* heads = reinterpret_cast<PartHead*>(to);
        *heads = head;
        auto* candidates = reinterpret_cast<Candidate*>(heads + 1);
        std::copy_n(all_.begin(), n_best, candidates);
        candidates[n_best] = rest;
    }

    // Appends a place, from the parts of its row.
    void decode(std::span<const std::byte* const> parts, ScoredText& text) {
        all_.clear();
        double max = -std::numeric_limits<double>::infinity(), sum = 0;
        Candidate rest;
        const auto head_of = [](const std::byte* part) { return reinterpret_cast<const PartHead*>(part); };
        for (const std::byte* part : parts)
            max = std::max<double>(max, head_of(part)->max);
        for (const std::byte* part : parts) {
            const PartHead& head = *head_of(part);
            if (head.sum > 0) sum += head.sum * std::exp(head.max - max);
            const auto* candidates = reinterpret_cast<const Candidate*>(&head + 1);
            all_.insert(all_.end(), candidates, candidates + head.n_best);
            if (candidates[head.n_best].noisy > rest.noisy) rest = candidates[head.n_best];
        }
        std::ranges::sort(all_, is_better);
        const auto n_top = static_cast<std::size_t>(text.n_top);
        for (std::size_t i = n_top; i < all_.size(); ++i)
            if (all_[i].noisy > rest.noisy) rest = all_[i];
        const double log_sum = max + std::log(sum);
        double mass = 0;
        for (std::size_t i = 0; i < n_top; ++i) {
            const double log_prob = all_[i].logit - log_sum;
            mass += std::exp(log_prob);
            text.top_tokens.push_back(all_[i].token);
            text.top_log_probs.push_back(static_cast<float>(log_prob));
        }
        text.rest_mass.push_back(rest.token < 0 ? 0.0F : static_cast<float>(std::max(0.0, 1 - mass)));
        text.rest_token.push_back(rest.token);
        text.rest_log_prob.push_back(rest.token < 0 ? 0.0F : static_cast<float>(rest.logit - log_sum));
    }

  private:
    int n_top_;
    GumbelNoise noise_;
    std::vector<float> noises_;
    std::vector<Candidate> all_;
};

template <typename T>
void broadcast_column(std::vector<T>& column, std::size_t size, dist::Communicator& ranks, dist::Deadline deadline) {
    column.resize(size);
    if (size > 0) ranks.broadcast(column.data(), size * sizeof(T), 0, deadline);
}

} // namespace

void broadcast(ScoredText& text, dist::Communicator& ranks, dist::Deadline deadline) {
    std::int64_t sizes[] = {std::ssize(text.tokens), text.n_prompt, text.n_top, std::ssize(text.source)};
    ranks.broadcast(sizes, sizeof sizes, 0, deadline);
    text.n_prompt = static_cast<int>(sizes[1]);
    text.n_top = static_cast<int>(sizes[2]);
    ranks.broadcast(&text.temperature, sizeof text.temperature, 0, deadline);
    broadcast_column(text.tokens, static_cast<std::size_t>(sizes[0]), ranks, deadline);
    broadcast_column(text.source, static_cast<std::size_t>(sizes[3]), ranks, deadline);
    const std::size_t places = text.n_top == 0 ? 0 : static_cast<std::size_t>(text.places()); // 0: not scored yet
    broadcast_column(text.top_tokens, places * static_cast<std::size_t>(text.n_top), ranks, deadline);
    broadcast_column(text.top_log_probs, text.top_tokens.size(), ranks, deadline);
    broadcast_column(text.rest_mass, places, ranks, deadline);
    broadcast_column(text.rest_token, places, ranks, deadline);
    broadcast_column(text.rest_log_prob, places, ranks, deadline);
}

TargetScorer::TargetScorer(const ScorerOptions& options, model::Decoder* target, dist::Communicator& replica)
    : options_(options), target_(target), replica_(replica) {}

void TargetScorer::score(ScoredText& text, std::uint64_t key) {
    const auto deadline = [&] { return dist::Deadline::after_seconds(options_.timeout_seconds); };
    text.n_top = std::min(options_.n_top, options_.vocab_size);
    RowParts parts(options_.n_top, options_.seed, key);
    std::vector<std::byte> mine, gathered;
    std::vector<const std::byte*> of_row(static_cast<std::size_t>(replica_.size()));
    const int n_rows = static_cast<int>(text.tokens.size()) - 1;
    if (target_) target_->cache().truncate(0, 0);
    if (target_ && !text.source.empty()) target_->encode(0, text.source);
    for (int begin = 0; begin < n_rows; begin += model::Decoder::kMaxRows) {
        const int end = std::min(n_rows, begin + model::Decoder::kMaxRows);
        const int first_place = std::max(begin, text.n_prompt - 1);
        std::vector<model::Row> rows;
        std::vector<int> wanted;
        for (int i = begin; i < end; ++i) {
            if (i >= first_place) wanted.push_back(i - begin);
            rows.push_back({text.tokens[i], 0, i, i - begin - 1});
        }
        const std::size_t bytes = parts.row_bytes() * wanted.size();
        mine.assign(bytes, {});
        if (target_) {
            const model::PassResult result = target_->forward({.rows = rows, .logit_rows = wanted});
            const dist::Slice own = target_->local_vocab();
            const std::int64_t known = std::clamp<std::int64_t>(options_.vocab_size - own.begin, 0, own.size());
            for (std::size_t i = 0; i < wanted.size(); ++i)
                parts.encode(result.logits.subspan(i * result.logits_stride, static_cast<std::size_t>(known)),
                             static_cast<TokenId>(own.begin), static_cast<std::uint64_t>(first_place) + i + 1,
                             mine.data() + i * parts.row_bytes());
        } else {
            for (std::size_t i = 0; i < wanted.size(); ++i)
                parts.encode({}, 0, 0, mine.data() + i * parts.row_bytes());
        }
        if (wanted.empty()) continue;
        gathered.resize(bytes * of_row.size());
        replica_.gather(mine.data(), gathered.data(), bytes, 0, deadline());
        for (std::size_t i = 0; replica_.rank() == 0 && i < wanted.size(); ++i) {
            for (std::size_t rank = 0; rank < of_row.size(); ++rank)
                of_row[rank] = gathered.data() + rank * bytes + i * parts.row_bytes();
            parts.decode(of_row, text);
        }
    }
    if (target_) target_->cache().truncate(0, 0);
    broadcast(text, replica_, deadline());
}

} // namespace entrodraft::spec
