// The bytes of packets and admissions, and the checks of received ones. See packet.h.
#include "spec/protocol/packet.h"

#include "spec/verify/random.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace entrodraft::spec {

static_assert(std::is_trivially_copyable_v<PacketHeader> && sizeof(PacketHeader) == 40);
static_assert(std::is_trivially_copyable_v<SlotHeader> && sizeof(SlotHeader) == 12);

namespace {

constexpr int kMaxPacketSlots = 256; // PacketHeader::slot is a byte

std::string wrong(const char* what, std::uint64_t found, std::uint64_t expected) {
    return fmt::format("packet {} is {}, expected {}", what, found, expected);
}

// The beginning of an admission. Then come the sampling options, 8 bytes each, the lists whose lengths it gives
// (biases, banned tokens, prompt, source), and the rules.
struct AdmissionHeader {
    std::uint64_t sequence_key = 0;
    double repetition_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    std::int32_t no_repeat_ngram_size = 0;
    std::int32_t min_new_tokens = 0;
    std::uint32_t n_biases = 0;
    std::uint32_t n_banned = 0;
    std::uint32_t n_tokens = 0;
    std::uint32_t verified_on_device = 0;
    std::uint32_t n_source = 0;
    std::int32_t num_beams = 0;
    std::int32_t logprobs = -1;
    std::uint32_t language = 0; // of the constraint
};

struct Bias {
    TokenId token = 0;
    float bias = 0;
};

// Options that only generation_config.json has. The lists whose lengths it gives follow: biased sequences, all of their
// tokens, and suppressed and forced tokens.
struct RulesHeader {
    double encoder_repetition_penalty = 1;
    double decay_factor = 1;
    std::int32_t decay_start = 0;
    std::int32_t encoder_no_repeat_ngram_size = 0;
    std::int32_t forced_bos_token = -1;
    std::int32_t forced_eos_at = 0;
    std::uint32_t n_sequences = 0;
    std::uint32_t n_suppressed = 0;
    std::uint32_t n_begin_suppressed = 0;
    std::uint32_t n_forced_eos = 0;
};

struct BiasedLength {
    std::uint32_t n_tokens = 0;
    float bias = 0;
};

} // namespace

std::string to_string(DraftEnd end) {
    switch (end) {
    case DraftEnd::none:
        return "none";
    case DraftEnd::rule:
        return "rule";
    case DraftEnd::cap:
        return "cap";
    case DraftEnd::budget:
        return "budget";
    case DraftEnd::context:
        return "context";
    case DraftEnd::end_of_text:
        return "end_of_text";
    case DraftEnd::no_match:
        return "no_match";
    }
    throw std::invalid_argument(fmt::format("draft end {} is unknown", static_cast<int>(end)));
}

Packet::Packet(int n_slots, int max_draft_tokens) : n_slots_(n_slots), max_draft_tokens_(max_draft_tokens) {
    if (n_slots < 1 || n_slots > kMaxPacketSlots)
        throw std::invalid_argument(fmt::format("a packet holds 1 to 256 slots, not {}", n_slots));
    if (max_draft_tokens < 0 || max_draft_tokens > kMaxDraftTokens)
        throw std::invalid_argument(
            fmt::format("a packet holds 0 to 127 draft tokens a slot, not {}", max_draft_tokens));
    const auto capacity = static_cast<std::size_t>(max_draft_tokens);
    const std::size_t used = sizeof(SlotHeader) + capacity * (sizeof(TokenId) + 1);
    slot_bytes_ = (used + alignof(TokenId) - 1) / alignof(TokenId) * alignof(TokenId);
    bytes_.resize(sizeof(PacketHeader) + static_cast<std::size_t>(n_slots) * slot_bytes_);
    clear();
}

void Packet::clear() {
    std::memset(bytes_.data(), 0, bytes_.size());
    new (bytes_.data()) PacketHeader();
    for (int i = 0; i < n_slots_; ++i)
        new (bytes_.data() + slot_offset(i)) SlotHeader();
}

std::size_t Packet::slot_offset(int index) const {
    if (index < 0 || index >= n_slots_) throw std::out_of_range(fmt::format("packet slot {} of {}", index, n_slots_));
    return sizeof(PacketHeader) + static_cast<std::size_t>(index) * slot_bytes_;
}

SlotHeader& Packet::slot(int index) {
    return *reinterpret_cast<SlotHeader*>(bytes_.data() + slot_offset(index));
}

const SlotHeader& Packet::slot(int index) const {
    return *reinterpret_cast<const SlotHeader*>(bytes_.data() + slot_offset(index));
}

std::span<TokenId> Packet::tokens(int index) {
    auto* first = bytes_.data() + slot_offset(index) + sizeof(SlotHeader);
    return {reinterpret_cast<TokenId*>(first), static_cast<std::size_t>(max_draft_tokens_)};
}

std::span<const TokenId> Packet::tokens(int index) const {
    const auto* first = bytes_.data() + slot_offset(index) + sizeof(SlotHeader);
    return {reinterpret_cast<const TokenId*>(first), static_cast<std::size_t>(max_draft_tokens_)};
}

std::span<std::int8_t> Packet::parents(int index) {
    const auto capacity = static_cast<std::size_t>(max_draft_tokens_);
    auto* first = bytes_.data() + slot_offset(index) + sizeof(SlotHeader) + capacity * sizeof(TokenId);
    return {reinterpret_cast<std::int8_t*>(first), capacity};
}

std::span<const std::int8_t> Packet::parents(int index) const {
    const auto capacity = static_cast<std::size_t>(max_draft_tokens_);
    const auto* first = bytes_.data() + slot_offset(index) + sizeof(SlotHeader) + capacity * sizeof(TokenId);
    return {reinterpret_cast<const std::int8_t*>(first), capacity};
}

std::uint64_t Packet::digest() const {
    constexpr std::size_t kBegin = offsetof(PacketHeader, digest), kEnd = kBegin + sizeof(PacketHeader::digest);
    const std::uint64_t before = hash_bytes(bytes_.data(), kBegin);
    return hash_bytes(bytes_.data() + kEnd, bytes_.size() - kEnd, before);
}

void Packet::seal() {
    header().digest = digest();
}

bool Packet::is_intact() const {
    return header().digest == digest();
}

std::string Packet::why_unexpected(std::uint64_t round, std::uint64_t checksum) const {
    const PacketHeader& head = header();
    if (head.magic != PacketHeader::kMagic) return wrong("magic", head.magic, PacketHeader::kMagic);
    if (head.version != PacketHeader::kVersion) return wrong("version", head.version, PacketHeader::kVersion);
    if (head.round != round) return wrong("number", head.round, round);
    if (head.checksum != checksum) return wrong("checksum", head.checksum, checksum);
    const auto command = static_cast<unsigned>(head.command);
    if (command < static_cast<unsigned>(Command::round) || command > static_cast<unsigned>(Command::share))
        return fmt::format("packet command {} is unknown", command);
    if (head.slot >= n_slots_) return fmt::format("packet slot {} is not one of {}", int{head.slot}, n_slots_);
    if (head.command == Command::admit && head.admission_bytes == 0) return "packet admits a sequence of 0 bytes";
    if (head.command == Command::prefill && head.prefill_rows == 0) return "packet prefills 0 rows";
    if (head.command == Command::share &&
        (static_cast<int>(head.prefill_rows) >= n_slots_ || head.prefill_rows == head.slot))
        return fmt::format("packet shares the prompt of slot {}", head.prefill_rows);
    for (int i = 0; i < n_slots_; ++i) {
        const std::string reason = why_unexpected_slot(i);
        if (!reason.empty()) return fmt::format("packet slot {}: {}", i, reason);
    }
    return {};
}

std::string Packet::why_unexpected_slot(int index) const {
    const SlotHeader& head = slot(index);
    if (static_cast<unsigned>(head.state) > static_cast<unsigned>(SlotState::decoding))
        return fmt::format("state {} is unknown", static_cast<unsigned>(head.state));
    if (static_cast<unsigned>(head.draft_end) > static_cast<unsigned>(DraftEnd::no_match))
        return fmt::format("draft end {} is unknown", static_cast<unsigned>(head.draft_end));
    const std::uint64_t n_tokens = std::uint64_t{head.n_beams} + head.n_drafted;
    if (n_tokens > static_cast<std::uint64_t>(max_draft_tokens_))
        return fmt::format("{} drafted tokens exceed {}", n_tokens, max_draft_tokens_);
    if (head.last_accepted < -1 || head.last_accepted >= max_draft_tokens_)
        return fmt::format("drafted token {} is the last accepted of {}", int{head.last_accepted}, max_draft_tokens_);
    if (header().command != Command::round || head.state != SlotState::decoding) return {}; // the rest is not used
    if (head.next_token < 0) return fmt::format("next token {} is negative", head.next_token);
    for (std::size_t i = 0; i < n_tokens; ++i) {
        if (tokens(index)[i] < 0) return fmt::format("drafted token {} is negative: {}", i, tokens(index)[i]);
        const int parent = parents(index)[i];
        const bool is_beam = i < head.n_beams; // its parent is a row of the round before
        if (parent < (head.n_beams > 0 && !is_beam ? 0 : -1) || (!is_beam && parent >= static_cast<int>(i)))
            return fmt::format("drafted token {} has parent {}", i, parent);
    }
    return {};
}

// ---- admissions ----

namespace {

void append_rules(const LogitProcessing& processing, std::vector<std::byte>& bytes) {
    const RulesHeader head = {processing.encoder_repetition_penalty,
                              processing.decay.factor,
                              processing.decay.start,
                              processing.encoder_no_repeat_ngram_size,
                              processing.forced_bos_token,
                              processing.forced_eos_at,
                              static_cast<std::uint32_t>(processing.sequence_bias.size()),
                              static_cast<std::uint32_t>(processing.suppress_tokens.size()),
                              static_cast<std::uint32_t>(processing.begin_suppress_tokens.size()),
                              static_cast<std::uint32_t>(processing.forced_eos_tokens.size())};
    append_values(bytes, std::span(&head, 1));
    for (const BiasedTokens& each : processing.sequence_bias) {
        const BiasedLength length = {static_cast<std::uint32_t>(each.tokens.size()), each.bias};
        append_values(bytes, std::span(&length, 1));
    }
    for (const BiasedTokens& each : processing.sequence_bias)
        append_values(bytes, std::span<const TokenId>(each.tokens));
    for (const auto* tokens :
         {&processing.suppress_tokens, &processing.begin_suppress_tokens, &processing.forced_eos_tokens})
        append_values(bytes, std::span<const TokenId>(*tokens));
}

void take_rules(std::span<const std::byte>& bytes, LogitProcessing& processing) {
    const RulesHeader head = take_values<RulesHeader>(bytes, 1)[0];
    processing.encoder_repetition_penalty = head.encoder_repetition_penalty;
    processing.decay = {head.decay_factor, head.decay_start};
    processing.encoder_no_repeat_ngram_size = head.encoder_no_repeat_ngram_size;
    processing.forced_bos_token = head.forced_bos_token;
    processing.forced_eos_at = head.forced_eos_at;
    const std::vector<BiasedLength> lengths = take_values<BiasedLength>(bytes, head.n_sequences);
    if (std::ranges::count(lengths, 0U, &BiasedLength::n_tokens) > 0)
        throw std::runtime_error("an admission has a bias of no token");
    for (const BiasedLength& length : lengths)
        processing.sequence_bias.push_back({take_values<TokenId>(bytes, length.n_tokens), length.bias});
    processing.suppress_tokens = take_values<TokenId>(bytes, head.n_suppressed);
    processing.begin_suppress_tokens = take_values<TokenId>(bytes, head.n_begin_suppressed);
    processing.forced_eos_tokens = take_values<TokenId>(bytes, head.n_forced_eos);
}

} // namespace

std::vector<std::byte> pack_admission(const Request& request, bool verified_on_device) {
    const LogitProcessing& processing = request.processing;
    const AdmissionHeader head = {request.sequence_key,
                                  processing.repetition_penalty,
                                  processing.presence_penalty,
                                  processing.frequency_penalty,
                                  processing.no_repeat_ngram_size,
                                  processing.min_new_tokens,
                                  static_cast<std::uint32_t>(processing.logit_bias.size()),
                                  static_cast<std::uint32_t>(processing.banned_tokens.size()),
                                  static_cast<std::uint32_t>(request.prompt.size()),
                                  verified_on_device ? 1U : 0U,
                                  static_cast<std::uint32_t>(request.source.size()),
                                  request.beams.num_beams,
                                  request.logprobs.value_or(-1),
                                  static_cast<std::uint32_t>(processing.constraint.language)};
    std::vector<Bias> biases;
    for (const auto& [token, bias] : processing.logit_bias)
        biases.push_back({token, bias});
    std::vector<std::byte> bytes;
    append_values(bytes, std::span(&head, 1));
    visit_options(request.sampling, [&]<typename T>(const char*, const T& option) {
        using Packed = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
        const auto packed = static_cast<Packed>(option);
        append_values(bytes, std::span(&packed, 1));
    });
    append_values(bytes, std::span<const Bias>(biases));
    append_values(bytes, std::span<const TokenId>(processing.banned_tokens));
    append_values(bytes, std::span<const TokenId>(request.prompt));
    append_values(bytes, std::span<const TokenId>(request.source));
    append_rules(processing, bytes);
    return bytes;
}

Admission unpack_admission(std::span<const std::byte> bytes) {
    const AdmissionHeader head = take_values<AdmissionHeader>(bytes, 1)[0];
    Admission admission;
    admission.verified_on_device = head.verified_on_device != 0;
    Request& request = admission.request;
    request.sequence_key = head.sequence_key;
    visit_options(request.sampling, [&]<typename T>(const char*, T& option) {
        using Packed = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
        option = static_cast<T>(take_values<Packed>(bytes, 1)[0]);
    });
    LogitProcessing& processing = request.processing;
    processing.repetition_penalty = head.repetition_penalty;
    processing.presence_penalty = head.presence_penalty;
    processing.frequency_penalty = head.frequency_penalty;
    processing.no_repeat_ngram_size = head.no_repeat_ngram_size;
    processing.min_new_tokens = head.min_new_tokens;
    for (const Bias& bias : take_values<Bias>(bytes, head.n_biases))
        processing.logit_bias.emplace_back(bias.token, bias.bias);
    processing.banned_tokens = take_values<TokenId>(bytes, head.n_banned);
    request.prompt = take_values<TokenId>(bytes, head.n_tokens);
    request.source = take_values<TokenId>(bytes, head.n_source);
    take_rules(bytes, processing);
    request.beams.num_beams = head.num_beams;
    if (head.language > static_cast<std::uint32_t>(model::grammar::Language::grammar))
        throw std::runtime_error("an admission has an unknown constraint");
    processing.constraint.language = static_cast<model::grammar::Language>(head.language);
    if (head.logprobs >= 0) request.logprobs = head.logprobs;
    if (!bytes.empty()) throw std::runtime_error("an admission is longer than it says");
    return admission;
}

} // namespace entrodraft::spec
