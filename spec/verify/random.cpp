// Philox4x32-10 and its keys, the noise of tokens, and the search for the best token: see random.h. The search's vector
// loop is in row_kernels.inl. The loop only rules tokens out; every value that counts is computed here.
#include "spec/verify/random.h"

#include "spec/verify/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <vector>

namespace entrodraft::spec {

namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9, kKeyStep1 = 0xBB67AE85;
constexpr int kRounds = 10;
constexpr std::uint64_t kHashStep = 0x9E3779B97F4A7C15;

// A bijection of 64 bits in which every input bit moves every output bit (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
    return mix(state + kHashStep + mix(word + kHashStep));
}

} // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
        const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += kKeyStep0;
        key[1] += kKeyStep1;
    }
    return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t sequence_key, Purpose purpose,
                           std::uint32_t cascade_level) {
    std::uint64_t state = absorb(absorb(0, seed), sequence_key);
    state = absorb(state, std::uint64_t{static_cast<std::uint32_t>(purpose)} << 32 | cascade_level);
    key_ = {static_cast<std::uint32_t>(state), static_cast<std::uint32_t>(state >> 32)};
}

double RandomStream::uniform(std::uint64_t position, std::uint32_t token, std::uint32_t round_start) const {
    const auto bits = philox4x32(
        {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), token, round_start}, key_);
    const std::uint64_t word = std::uint64_t{bits[1]} << 32 | bits[0];
    return static_cast<double>(word >> 11) * 0x1p-53;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
    const auto* byte = static_cast<const unsigned char*>(data);
    std::uint64_t state = absorb(absorb(0, seed), bytes);
    for (std::size_t start = 0; start < bytes; start += 8) {
        std::uint64_t word = 0; // little-endian on every machine
        for (std::size_t i = 0; i < 8 && start + i < bytes; ++i)
            word |= std::uint64_t{byte[start + i]} << (8 * i);
        state = absorb(state, word);
    }
    return state;
}

// ---- noise ----

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kRefinedBelow = 1U << 20; // words whose v is below 2^-12

// The library's log may differ between processors in its last bit. These functions give the same bits on all, for they
// only add, multiply and divide.

// log((1 + s) / (1 - s)), |s| <= 0.172, to double precision.
double log_ratio(double s) {
    const double z = s * s;
    double sum = 1.0 / 23;
    for (int odd = 21; odd >= 1; odd -= 2)
        sum = sum * z + 1.0 / odd;
    return 2 * s * sum;
}

double natural_log(double x) {
    constexpr double kLn2 = 0x1.62e42fefa39efp-1, kSqrtHalf = 0x1.6a09e667f3bcdp-1;
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent);
    if (mantissa < kSqrtHalf) {
        mantissa *= 2;
        --exponent;
    }
    return exponent * kLn2 + log_ratio((mantissa - 1) / (mantissa + 1));
}

// -log(1 - v), 0 < v < 1
double exponential_of(double v) {
    return v < 0.25 ? log_ratio(v / (2 - v)) : -natural_log(1 - v);
}

void check(const LogitSlice& slice, double temperature) {
    SamplingOptions options;
    options.temperature = temperature;
    if (*why_invalid(options) != '\0') throw std::invalid_argument(why_invalid(options));
    if (options.greedy()) throw std::invalid_argument("noise needs a --temperature above 0");
    if (slice.first_token < 0) throw std::invalid_argument("a slice of the vocabulary begins below 0");
}

// The largest logit. Throws std::runtime_error if it is infinite, or if any logit is NaN.
float largest(const LogitSlice& slice) {
    const LogitScan scan = row_kernels().scan(slice.logits.data(), slice.logits.size());
    if (scan.has_nan || scan.max > std::numeric_limits<float>::max())
        throw std::runtime_error(scan.has_nan ? "a logit is not a number" : "the largest logit is infinite");
    return scan.max;
}

GumbelScan scan_of(std::uint64_t position, std::array<std::uint32_t, 2> key) {
    GumbelScan scan;
    scan.position[0] = static_cast<std::uint32_t>(position);
    scan.position[1] = static_cast<std::uint32_t>(position >> 32);
    std::ranges::copy(key, scan.key);
    return scan;
}

class Search {
  public:
    Search(const LogitSlice& slice, float max, double temperature, const GumbelNoise& noise)
        : slice_(slice), temperature_(temperature), noise_(noise), scan_(scan_of(slice.position, noise.key())) {
        scan_.max = max;
        scan_.scale = static_cast<float>(1 / temperature);
        scan_.least = -std::numeric_limits<float>::infinity();
    }

    BestToken run() {
        const std::size_t first = static_cast<std::size_t>(slice_.first_token), end = first + slice_.logits.size();
        const std::size_t whole = std::min(end, (first + kGumbelGroup - 1) / kGumbelGroup * kGumbelGroup);
        const std::size_t rest = std::max(whole, end / kGumbelGroup * kGumbelGroup);
        if (first < whole) part_of_group(first, whole);
        groups(slice_.logits.data() + (whole - first), rest - whole, whole);
        if (rest < end) part_of_group(rest, end);
        return best_;
    }

  private:
    // Searches tokens [first, end) of one group. The group's other tokens count as banned.
    void part_of_group(std::size_t first, std::size_t end) {
        const auto slice_begin = static_cast<std::size_t>(slice_.first_token);
        float values[kGumbelGroup];
        std::fill_n(values, kGumbelGroup, -std::numeric_limits<float>::infinity());
        for (std::size_t token = first; token < end; ++token)
            values[token % kGumbelGroup] = slice_.logits[token - slice_begin];
        groups(values, kGumbelGroup, first / kGumbelGroup * kGumbelGroup);
    }

    // Searches `n` values: whole groups from first_token on.
    void groups(const float* values, std::size_t n, std::size_t first_token) {
        std::uint32_t words[kGumbelGroup];
        float bounds[kGumbelGroup];
        for (std::size_t start = 0; start < n; start += kGumbelGroup) {
            scan_.first_block = static_cast<std::uint32_t>((first_token + start) / 4);
            start += row_kernels().gumbel_candidates(values + start, n - start, scan_, words, bounds);
            if (start == n) return;
            for (std::size_t i = 0; i < kGumbelGroup; ++i)
                if (bounds[i] > scan_.least)
                    consider(static_cast<TokenId>(first_token + start + i), values[start + i], words[i]);
        }
    }

    void consider(TokenId token, float logit, std::uint32_t word) {
        constexpr double kMargin = 1e-3; // more than the float bounds can be off
        const double value = static_cast<double>(logit) / temperature_ + noise_.of_word(word, slice_.position, token);
        best_ = better(best_, {value, token, -kInfinity});
        scan_.least = static_cast<float>(best_.runner_up - static_cast<double>(scan_.max) / temperature_ - kMargin);
    }

    LogitSlice slice_;
    double temperature_;
    const GumbelNoise& noise_;
    GumbelScan scan_;
    BestToken best_;
};

bool beats(double value, TokenId token, double other, TokenId other_token) {
    return value > other || (value == other && token < other_token);
}

// A shortlist begins with this; then come the logits, then the records.
struct ShortlistHeader {
    std::uint32_t n_tokens = 0; // kept of the slice by top-k, ties at its border included; with min-p alone 0 or 1
    std::uint32_t n_records = 0;
};

// A token that is better than all before it. Packed: shortlists travel.
struct [[gnu::packed]] Record {
    double value = 0;
    float logit = 0;
    std::uint32_t place = 0; // number of tokens before it
    TokenId token = 0;
};

constexpr std::size_t kMaxRecords = 64; // n tokens have about log n records; 2^17 have 64 with a chance of 10^-24

std::size_t listed_logits(const SamplingOptions& options) {
    return options.top_k > 0 ? static_cast<std::size_t>(options.top_k) : 1;
}

struct Shortlist {
    std::vector<float> logits; // in the order of its tokens; ties after the first top_k repeat the last
    std::vector<Record> records;
};

void write(const Shortlist& list, std::size_t n_tokens, std::span<std::byte> to) {
    const ShortlistHeader header = {static_cast<std::uint32_t>(n_tokens),
                                    static_cast<std::uint32_t>(list.records.size())};
    std::ranges::fill(to, std::byte{});
    std::memcpy(to.data(), &header, sizeof header);
    std::ranges::copy(std::as_bytes(std::span(list.logits)), to.begin() + sizeof header);
    std::ranges::copy(std::as_bytes(std::span(list.records)), to.last(kMaxRecords * sizeof(Record)).begin());
}

Shortlist read(std::span<const std::byte> bytes, const SamplingOptions& options) {
    ShortlistHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.n_records > kMaxRecords) throw std::runtime_error("a gathered shortlist is damaged");
    Shortlist list;
    list.logits.resize(std::min<std::size_t>(header.n_tokens, listed_logits(options)));
    list.records.resize(header.n_records);
    const auto logits = std::as_writable_bytes(std::span(list.logits));
    const auto records = std::as_writable_bytes(std::span(list.records));
    std::ranges::copy(bytes.subspan(sizeof header, logits.size()), logits.begin());
    std::ranges::copy(bytes.last(kMaxRecords * sizeof(Record)).first(records.size()), records.begin());
    if (!list.logits.empty()) list.logits.resize(header.n_tokens, list.logits.back());
    return list;
}

// The number of tokens of each slice that the filters keep, with top-k on.
std::vector<std::size_t> tokens_left(std::span<const Shortlist> lists, const SamplingOptions& options) {
    struct Entry {
        float logit;
        std::size_t list;
    };
    std::vector<Entry> entries;
    for (std::size_t list = 0; list < lists.size(); ++list)
        for (const float logit : lists[list].logits)
            entries.push_back({logit, list});
    const auto order = [&](const Entry& entry) { return quotient(entry.logit, options.temperature); };
    std::ranges::stable_sort(entries, std::ranges::greater{}, order); // of equals, the lower id stays first
    const auto top_k = static_cast<std::size_t>(options.top_k);
    if (entries.size() > top_k) {
        const float border = order(entries[top_k - 1]);
        std::erase_if(entries, [&](const Entry& entry) { return order(entry) < border; });
    }
    std::vector<float> logits(entries.size()), probabilities(entries.size());
    std::ranges::transform(entries, logits.begin(), &Entry::logit);
    SamplingOptions rest = options;
    rest.top_k = 0;
    if (!logits.empty()) adjust(logits, rest, probabilities);
    std::vector<std::size_t> left(lists.size());
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (probabilities[i] > 0) ++left[entries[i].list];
    return left;
}

// The tokens of a slice that its shortlist stands for, sorted by logit. Tokens at -inf are left out.
std::vector<std::size_t> shortlisted(const LogitSlice& slice, float max, const SamplingOptions& options) {
    const float border = options.top_k > 0 ? top_k_border(slice.logits, options) : min_p_border(max, options);
    std::vector<std::size_t> ids;
    row_kernels().collect(slice.logits.data(), slice.logits.size(),
                          std::max(border, std::numeric_limits<float>::lowest()),
                          std::numeric_limits<float>::infinity(), ids);
    std::ranges::stable_sort(ids, std::ranges::greater{},
                             [&](std::size_t id) { return quotient(slice.logits[id], options.temperature); });
    return ids;
}

void check_shortlisting(const SamplingOptions& options) {
    if (*why_invalid(options) != '\0') throw std::invalid_argument(why_invalid(options));
    if (gumbel_gather(options) != GumbelGather::shortlist)
        throw std::invalid_argument("these sampling options are not served by shortlists");
}

} // namespace

double GumbelNoise::at(std::uint64_t position, TokenId token) const {
    const auto id = static_cast<std::uint32_t>(token);
    const auto words = philox4x32(
        {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), id / 64 * 16 + id % 16, 0},
        key());
    return of_word(words[id / 16 % 4], position, token);
}

void GumbelNoise::fill(std::uint64_t position, std::span<float> noise) const {
    GumbelScan scan = scan_of(position, key());
    std::uint32_t words[kGumbelGroup];
    float group[kGumbelGroup];
    for (std::size_t first = 0; first < noise.size(); first += kGumbelGroup) {
        scan.first_block = static_cast<std::uint32_t>(first / 4);
        const std::uint32_t least = row_kernels().gumbel_noise(scan, words, group);
        const std::size_t n = std::min(kGumbelGroup, noise.size() - first);
        std::copy_n(group, n, noise.data() + first);
        if (least >= kRefinedBelow) continue; // 98 of 100 groups
        for (std::size_t i = 0; i < n; ++i)
            if (words[i] < kRefinedBelow)
                noise[first + i] = static_cast<float>(of_word(words[i], position, static_cast<TokenId>(first + i)));
    }
}

double GumbelNoise::of_word(std::uint32_t word, std::uint64_t position, TokenId token) const {
    double below = 0.5;
    if (word < kRefinedBelow) {
        const auto more = philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                                      static_cast<std::uint32_t>(token), 1},
                                     key());
        below = (static_cast<double>(more[0]) + 0.5) * 0x1p-32;
    }
    return -natural_log(exponential_of((static_cast<double>(word) + below) * 0x1p-32));
}

BestToken arg_max_of(const model::LogitStats& stats) {
    if (std::isnan(stats.max)) throw std::runtime_error("a logit is not a number");
    return {static_cast<double>(stats.max), stats.arg_max, static_cast<double>(stats.runner_up)};
}

BestToken better(const BestToken& a, const BestToken& b) {
    const bool first = beats(a.value, a.token, b.value, b.token);
    const BestToken &best = first ? a : b, &other = first ? b : a;
    return {best.value, best.token, std::max(best.runner_up, other.value)};
}

BestToken gumbel_max(const LogitSlice& slice, double temperature, const GumbelNoise& noise) {
    check(slice, temperature);
    const float max = largest(slice);
    if (std::isinf(max)) return {};
    return Search(slice, max, temperature, noise).run();
}

BestToken gumbel_max_adjusted(const LogitSlice& row, const SamplingOptions& options, const GumbelNoise& noise) {
    if (gumbel_gather(options) == GumbelGather::best) return gumbel_max(row, options.temperature, noise);
    std::vector<float> left(row.logits.size());
    adjust(row.logits, options, left);
    for (std::size_t i = 0; i < left.size(); ++i)
        left[i] = left[i] > 0 ? row.logits[i] : -std::numeric_limits<float>::infinity();
    return gumbel_max({left, row.first_token, row.position}, options.temperature, noise);
}

GumbelGather gumbel_gather(const SamplingOptions& options) {
    if (options.top_k > 0) return options.top_k <= kMaxShortlisted ? GumbelGather::shortlist : GumbelGather::rows;
    if (options.needs_all_logits()) return GumbelGather::rows;
    return options.min_p > 0 ? GumbelGather::shortlist : GumbelGather::best;
}

std::size_t shortlist_bytes(const SamplingOptions& options) {
    return sizeof(ShortlistHeader) + listed_logits(options) * sizeof(float) + kMaxRecords * sizeof(Record);
}

void make_shortlist(const LogitSlice& slice, const SamplingOptions& options, const GumbelNoise& noise,
                    std::span<std::byte> shortlist) {
    check(slice, options.temperature);
    check_shortlisting(options);
    if (shortlist.size() != shortlist_bytes(options)) throw std::invalid_argument("a shortlist has another size");
    const std::vector<std::size_t> ids = shortlisted(slice, largest(slice), options);
    Shortlist list;
    for (std::size_t place = 0; place < ids.size(); ++place) {
        const float logit = slice.logits[ids[place]];
        const auto token = static_cast<TokenId>(static_cast<std::size_t>(slice.first_token) + ids[place]);
        if (place < listed_logits(options)) list.logits.push_back(logit);
        const double value = static_cast<double>(logit) / options.temperature + noise.at(slice.position, token);
        if (!list.records.empty() && !beats(value, token, list.records.back().value, list.records.back().token))
            continue;
        list.records.push_back({value, logit, static_cast<std::uint32_t>(place), token});
    }
    if (list.records.size() > kMaxRecords)
        throw std::runtime_error(fmt::format("more than {} tokens beat all before them", kMaxRecords));
    write(list, options.top_k > 0 ? ids.size() : list.logits.size(), shortlist);
}

BestToken best_of_shortlists(std::span<const std::byte> shortlists, const SamplingOptions& options) {
    check_shortlisting(options);
    const std::size_t bytes = shortlist_bytes(options);
    if (shortlists.empty() || shortlists.size() % bytes != 0)
        throw std::invalid_argument("gathered shortlists have another size");
    std::vector<Shortlist> lists;
    for (std::size_t start = 0; start < shortlists.size(); start += bytes)
        lists.push_back(read(shortlists.subspan(start, bytes), options));
    std::vector<std::size_t> left(lists.size(), std::numeric_limits<std::size_t>::max());
    float min_logit = -std::numeric_limits<float>::infinity();
    if (options.top_k > 0) {
        left = tokens_left(lists, options);
    } else {
        for (const Shortlist& list : lists)
            if (!list.logits.empty()) min_logit = std::max(min_logit, list.logits.front());
        min_logit = min_p_border(min_logit, options);
    }
    BestToken best;
    for (std::size_t i = 0; i < lists.size(); ++i)
        for (const Record& record : lists[i].records)
            if (record.place < left[i] && record.logit >= min_logit)
                best = better(best, {record.value, record.token, -kInfinity});
    if (best.token < 0) throw NothingToSay();
    best.runner_up = std::numeric_limits<double>::quiet_NaN();
    return best;
}

} // namespace entrodraft::spec
