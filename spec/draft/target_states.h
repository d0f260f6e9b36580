// Hidden states of a text's tokens that a draft head has of its target: which of them it has read, and which a pass
// reads. Positions are those of the head's rows. Called by head_texts.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

class TargetStates {
  public:
    TargetStates() = default;
    // `width` numbers a position. Rows are read in blocks of so many, counted from the first of a pass that drafts.
    TargetStates(std::size_t width, std::size_t block) : width_(width), block_(block) {}

    std::size_t n_read() const { return n_read_; } // the first so many positions
    std::size_t n_unread() const { return unread_.size() / width_; }
    std::size_t n_known() const { return n_read_ + n_unread(); }
    std::span<const float> unread(std::size_t n) const { return std::span(unread_).first(n * width_); }
    // Throws std::logic_error where they do not follow those that are known.
    void take(std::size_t first_position, std::span<const float> states);

    // Of the unread ones in front of `end` how many a pass of at most `max_rows` rows reads that does not draft: whole
    // blocks, which lie as if the pass that drafts read them too; to that one it leaves a block at least.
    std::size_t n_early(std::size_t end, std::size_t max_rows) const;
    void mark_early(std::size_t n);
    // Before a pass that drafts. Where less than a block is new, rows are read again that the last such pass has read:
    // all but one of a block or, where nothing is new, those that lay in its last blocks.
    void read_again();
    // That pass has read all.
    void mark_drafted();

  private:
    std::size_t width_ = 1, block_ = 1;
    std::size_t n_read_ = 0;
    std::vector<float> unread_; // [n_unread()][width_]
    std::vector<float> last_;   // [rows][width_], in front of them: the last blocks of the pass that drafted
};

} // namespace entrodraft::spec
