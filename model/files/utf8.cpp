// See utf8.h. One scanner, scan_sequence, serves both validation and lossy conversion.
#include "model/files/utf8.h"

namespace entrodraft::model {
namespace {

enum class Sequence { valid, invalid, unfinished };

struct Scan {
    Sequence kind = Sequence::invalid;
    std::size_t n_bytes = 1; // of the sequence, or of the maximal part that is replaced by one U+FFFD
};

unsigned byte_at(std::string_view bytes, std::size_t position) {
    return static_cast<unsigned char>(bytes[position]);
}

Scan scan_sequence(std::string_view bytes, std::size_t position) {
    const unsigned lead = byte_at(bytes, position);
    if (lead < 0x80) return {Sequence::valid, 1};
    if (lead < 0xC2 || lead > 0xF4) return {Sequence::invalid, 1};
    const std::size_t n_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // The second byte's range excludes overlong forms, surrogates and values beyond U+10FFFF.
    unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (std::size_t i = 1; i < n_bytes; ++i) {
        if (position + i == bytes.size()) return {Sequence::unfinished, i};
        const unsigned next = byte_at(bytes, position + i);
        if (next < low || next > high) return {Sequence::invalid, i};
        low = 0x80;
        high = 0xBF;
    }
    return {Sequence::valid, n_bytes};
}

} // namespace

CodePoint code_point_at(std::string_view text, std::size_t position) {
    const unsigned lead = byte_at(text, position);
    if (lead < 0x80) return {lead, 1};
    const std::size_t n_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t value = lead & (0xFFU >> (n_bytes + 1));
    for (std::size_t i = 1; i < n_bytes; ++i)
        value = (value << 6) | (byte_at(text, position + i) & 0x3FU);
    return {value, n_bytes};
}

std::size_t previous_code_point(std::string_view text, std::size_t position) {
    do
        --position;
    while (position > 0 && (byte_at(text, position) & 0xC0U) == 0x80U);
    return position;
}

void append_utf8(char32_t value, std::string& out) {
    const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80U | ((value >> shift) & 0x3FU))); };
    if (value < 0x80) {
        out.push_back(static_cast<char>(value));
    } else if (value < 0x800) {
        out.push_back(static_cast<char>(0xC0U | (value >> 6)));
        tail(0);
    } else if (value < 0x10000) {
        out.push_back(static_cast<char>(0xE0U | (value >> 12)));
        tail(6), tail(0);
    } else {
        out.push_back(static_cast<char>(0xF0U | (value >> 18)));
        tail(12), tail(6), tail(0);
    }
}

std::size_t first_invalid_utf8(std::string_view bytes) {
    for (std::size_t position = 0; position < bytes.size();) {
        const Scan scan = scan_sequence(bytes, position);
        if (scan.kind != Sequence::valid) return position;
        position += scan.n_bytes;
    }
    return std::string_view::npos;
}

std::size_t append_lossy(std::string_view bytes, bool at_end, std::string& out) {
    std::size_t position = 0;
    while (position < bytes.size()) {
        const Scan scan = scan_sequence(bytes, position);
        if (scan.kind == Sequence::unfinished && !at_end) break;
        if (scan.kind == Sequence::valid) {
            out.append(bytes.substr(position, scan.n_bytes));
        } else {
            out.append("\xEF\xBF\xBD");
        }
        position += scan.n_bytes;
    }
    return position;
}

} // namespace entrodraft::model
