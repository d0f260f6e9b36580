// Induced sorting: see suffix_array.h.
//
// A suffix is small (S) if it is less than the suffix that starts one place later, else large (L). An S suffix that
// starts one place after an L suffix is called LMS. The steps are:
//   1. Two passes over the array sort the pieces between neighbouring LMS suffixes.
//   2. Each piece is replaced by its rank; the ranks form a text of at most half the length. The suffix array of this
//      text, made in the same way, gives the order of the LMS suffixes.
//   3. From this order, a forward pass sorts the L suffixes, and then a backward pass sorts the S suffixes.
#include "spec/draft/suffix_array.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

namespace {

constexpr std::uint32_t kEmpty = std::numeric_limits<std::uint32_t>::max();

class InducedSorting {
  public:
    InducedSorting(std::span<const TokenId> text, TokenId largest)
        : text_(text), array_(text.size(), kEmpty), small_(text.size()), begin_(static_cast<std::size_t>(largest) + 2) {
        for (std::size_t i = text.size(); i-- > 0;)
            small_[i] = i + 1 < text.size() && (text[i] == text[i + 1] ? small_[i + 1] : text[i] < text[i + 1]);
        for (const TokenId token : text)
            ++begin_[static_cast<std::size_t>(token) + 1];
        for (std::size_t token = 1; token < begin_.size(); ++token)
            begin_[token] += begin_[token - 1];
    }

    std::vector<std::uint32_t> sort() {
        if (text_.empty()) return {};
        std::vector<std::uint32_t> in_text; // the LMS positions
        for (std::size_t i = 1; i < text_.size(); ++i)
            if (is_lms(i)) in_text.push_back(static_cast<std::uint32_t>(i));
        induce(in_text);
        if (!in_text.empty()) induce(ordered(in_text));
        return std::move(array_);
    }

  private:
    bool is_lms(std::size_t i) const { return i > 0 && small_[i] && !small_[i - 1]; }
    std::size_t at(std::uint32_t position) const { return static_cast<std::size_t>(text_[position]); }

    // Makes the whole array from these LMS positions. Positions of the same token keep their order.
    void induce(std::span<const std::uint32_t> lms) {
        std::ranges::fill(array_, kEmpty);
        std::vector<std::uint32_t> place(begin_.begin() + 1, begin_.end()); // after each token's suffixes
        for (std::size_t i = lms.size(); i-- > 0;)
            array_[--place[at(lms[i])]] = lms[i];
        std::copy(begin_.begin(), begin_.end() - 1, place.begin()); // before them
        const auto last = static_cast<std::uint32_t>(text_.size() - 1);
        array_[place[at(last)]++] = last; // an L: nothing follows it
        for (std::size_t i = 0; i < array_.size(); ++i)
            if (const std::uint32_t next = array_[i]; next != kEmpty && next > 0 && !small_[next - 1])
                array_[place[at(next - 1)]++] = next - 1;
        std::copy(begin_.begin() + 1, begin_.end(), place.begin());
        for (std::size_t i = array_.size(); i-- > 0;)
            if (const std::uint32_t next = array_[i]; next != kEmpty && next > 0 && small_[next - 1])
                array_[--place[at(next - 1)]] = next - 1;
    }

    // Returns whether the pieces from these LMS positions to the next ones are equal.
    bool are_alike(std::size_t a, std::size_t b) const {
        for (std::size_t i = 0;; ++i) {
            if (a + i >= text_.size() || b + i >= text_.size()) return false;
            if (text_[a + i] != text_[b + i]) return false;
            if (i > 0 && (is_lms(a + i) || is_lms(b + i))) return is_lms(a + i) && is_lms(b + i);
        }
    }

    // The LMS positions in the order of their suffixes. The array must have their pieces in order.
    std::vector<std::uint32_t> ordered(std::span<const std::uint32_t> in_text) const {
        std::vector<TokenId> rank(text_.size() / 2 + 1, 0); // [position / 2]: no two LMS are neighbours
        std::uint32_t before = kEmpty;
        TokenId largest = -1;
        for (const std::uint32_t position : array_) {
            if (position == kEmpty || !is_lms(position)) continue;
            if (before == kEmpty || !are_alike(before, position)) ++largest;
            rank[position / 2] = largest;
            before = position;
        }
        std::vector<TokenId> shorter;
        shorter.reserve(in_text.size());
        for (const std::uint32_t position : in_text)
            shorter.push_back(rank[position / 2]);
        std::vector<std::uint32_t> order = suffix_array(shorter, largest);
        for (std::uint32_t& each : order)
            each = in_text[each];
        return order;
    }

    std::span<const TokenId> text_;
    std::vector<std::uint32_t> array_; // kEmpty: not placed yet
    std::vector<bool> small_;
    std::vector<std::uint32_t> begin_; // [token]: where its suffixes begin in the array; the last: after all
};

} // namespace

std::vector<std::uint32_t> suffix_array(std::span<const TokenId> tokens, TokenId largest) {
    return InducedSorting(tokens, largest).sort();
}

} // namespace entrodraft::spec
