// The normalizer of a tokenizer.json: what is done to text before it is cut into words. Now: nothing, or NFC.
// Others are refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace entrodraft::model {

// Unicode normal form C of valid UTF-8, in time n log n. Characters that Unicode got after version 9 stay as they
// are, as in the reference implementation, whose tables end there. Local.
std::string nfc(std::string_view text);

struct NfcStep {};
using NormalizerStep = std::variant<NfcStep>;

class Normalizer {
  public:
    // From the file's "normalizer" (null: none). Throws BadFile naming what is not supported. Local.
    static Normalizer from_json(const nlohmann::json& normalizer);

    bool changes_nothing() const { return steps_.empty(); }
    std::string normalize(std::string_view text) const;

  private:
    void add(const nlohmann::json& step, int depth);
    std::vector<NormalizerStep> steps_;
};

} // namespace entrodraft::model
