// Makes Unicode normal forms of valid UTF-8, in time n log n. Characters that Unicode added after version 9 stay as
// they are, as in the reference, whose tables end there. Also makes lower case. Called by normalizer.
#pragma once

#include <string>
#include <string_view>

namespace entrodraft::model {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::string normal_form(std::string_view text, NormalForm form);

// Applies each character's full lower case mapping, which ignores neighbours (a final sigma stays a plain one).
std::string lower_case(std::string_view text);

} // namespace entrodraft::model
