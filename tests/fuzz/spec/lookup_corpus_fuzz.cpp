// A corpus that the drafter suffix looks in: a file of build-corpus, with the checksum that its contents have.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "spec/draft/lookup_corpus.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace entrodraft;

namespace {

constexpr std::size_t kHeader = 40, kChecksumAt = 32;

// Else next to no input would come further than the checksum.
void set_checksum(std::vector<std::uint64_t>& words, std::size_t size) {
    auto* const bytes = reinterpret_cast<unsigned char*>(words.data());
    if (size < kHeader) return;
    const std::size_t half = (size - kHeader) / 2;
    std::uint64_t hash = spec::hash_bytes(bytes, kChecksumAt);
    hash = spec::hash_bytes(bytes + kHeader, half, hash);
    hash = spec::hash_bytes(bytes + kHeader + half, half, hash);
    std::memcpy(bytes + kChecksumAt, &hash, sizeof hash);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::vector<std::uint64_t> words((size + 7) / 8); // aligned, as a mapped file is
    std::copy_n(data, size, reinterpret_cast<std::uint8_t*>(words.data()));
    set_checksum(words, size);
    std::uint32_t vocab_size = 0;
    std::uint64_t fingerprint = 0;
    if (size >= kHeader) {
        std::memcpy(&vocab_size, data + 12, sizeof vocab_size);
        std::memcpy(&fingerprint, data + 16, sizeof fingerprint);
    }
    try {
        const spec::LookupCorpus corpus(std::as_bytes(std::span(words)).first(size), "the corpus",
                                        static_cast<int>(vocab_size & 0x7fffffff), fingerprint);
        const auto tokens = corpus.tokens();
        for (std::size_t n = 1; n <= std::min<std::size_t>(tokens.size(), 64); ++n)
            for (const int shortest : {1, 3}) {
                const auto match = corpus.match(tokens.first(n), shortest);
                for (std::size_t i = 0; match && i < 4; ++i)
                    static_cast<void>(match->token(i));
            }
    } catch (const model::BadFile&) { // its contract
    }
    return 0;
}
