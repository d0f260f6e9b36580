// Keeps the target's hidden states for a text's tokens, for a draft head. Knows which of them the head has read, and
// which a pass reads. Positions are those of the head's rows. Called by head_texts.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

class TargetStates {
  public:
    TargetStates() = default;
    // `width`: numbers a position. Rows are read in blocks of `block`, counted from the first one of a pass that
    // drafts.
    TargetStates(std::size_t width, std::size_t block) : width_(width), block_(block) {}

    std::size_t n_read() const { return n_read_; } // positions from the first one on
    std::size_t n_unread() const { return unread_.size() / width_; }
    std::size_t n_known() const { return n_read_ + n_unread(); }
    std::span<const float> unread(std::size_t n) const { return std::span(unread_).first(n * width_); }
    // Throws std::logic_error if they do not follow the known states.
    void take(std::size_t first_position, std::span<const float> states);

    // The number of unread rows before `end` that a pass of at most `max_rows` rows reads without drafting. They are
    // whole blocks, at the places where the pass that drafts would read them. At least one block is left to that pass.
    std::size_t n_early(std::size_t end, std::size_t max_rows) const;
    void mark_early(std::size_t n);
    // To be called before a pass that drafts. If less than a block is new, rows of the last such pass are read again:
    // all but one of a block or, if nothing is new, the rows of its last blocks.
    void read_again();
    // That pass has read all rows.
    void mark_drafted();

  private:
    std::size_t width_ = 1, block_ = 1;
    std::size_t n_read_ = 0;
    std::vector<float> unread_; // [n_unread()][width_]
    std::vector<float> last_;   // [rows][width_], before unread_: the last blocks of the pass that drafted
};

} // namespace entrodraft::spec
