// Template text to tokens, with jinja2's rules for white space: see syntax.h.
#include "model/files/utf8.h"
#include "model/text/chat/syntax.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

bool is_name_char(char32_t c) {
    return c == U'_' || is_letter(c) || is_digit(c);
}

// With \n for all line ends, and without the last one.
std::string with_plain_lines(std::string_view source) {
    std::string text;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
        text += source[i] == '\r' ? '\n' : source[i];
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) : source_(with_plain_lines(source)), rest_(source_) {}

    std::vector<Token> run() {
        while (!rest_.empty()) {
            const std::size_t open = find_open();
            if (open == std::string_view::npos) {
                add(TokenKind::text, std::string(rest_));
                take(rest_.size());
                break;
            }
            const char kind = rest_[open + 1];
            add_text(rest_.substr(0, open), kind != '{', open + 2 < rest_.size() ? rest_[open + 2] : ' ');
            take(open);
            if (kind == '#')
                skip_comment();
            else if (!take_raw())
                take_tag(kind);
        }
        add(TokenKind::end, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(const std::string& why) const {
        throw TemplateError(fmt::format("line {}: {}", line_, why));
    }

    std::size_t find_open() const {
        for (std::size_t at = rest_.find('{'); at != std::string_view::npos && at + 1 < rest_.size();
             at = rest_.find('{', at + 1))
            if (rest_[at + 1] == '{' || rest_[at + 1] == '%' || rest_[at + 1] == '#') return at;
        return std::string_view::npos;
    }

    void add(TokenKind kind, std::string text) {
        if (kind != TokenKind::text || !text.empty()) tokens_.push_back({kind, std::move(text), line_});
    }

    // Text in front of a tag whose sign behind its opening is `sign`.
    void add_text(std::string_view text, bool of_block, char sign) {
        if (sign == '-') {
            text = stripped(text, {}, Side::right);
        } else if (of_block && sign != '+') {
            const std::size_t line_begin = text.rfind('\n') + 1; // 0 where there is none
            if ((line_begin > 0 || at_line_begin_) && stripped(text.substr(line_begin)).empty())
                text = text.substr(0, line_begin);
        }
        add(TokenKind::text, std::string(text));
    }

    void take(std::size_t n_bytes) {
        line_ +=
            static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(n_bytes), '\n'));
        if (n_bytes > 0) at_line_begin_ = rest_[n_bytes - 1] == '\n';
        rest_.remove_prefix(n_bytes);
    }

    void take_spaces() { take(rest_.size() - stripped(rest_, {}, Side::left).size()); }

    // The end of a tag whose closing is `close`, at `at`; the white space that goes with it too.
    void take_close(std::size_t at, bool of_block, bool trims = true) {
        const char sign = at > 0 ? rest_[at - 1] : ' ';
        take(at + 2);
        if (sign == '-')
            take_spaces();
        else if (of_block && trims && sign != '+' && rest_.starts_with('\n'))
            take(1);
    }

    void skip_comment() {
        const std::size_t end = rest_.find("#}", 2);
        if (end == std::string_view::npos) fail("the comment {# is not closed by #}");
        take_close(end, true);
    }

    // Behind {% and its sign.
    static std::size_t word_end(std::string_view text, std::size_t at, std::string_view word) {
        if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
        at = text.size() - stripped(text.substr(at), {}, Side::left).size();
        if (!text.substr(at).starts_with(word)) return std::string_view::npos;
        at += word.size();
        at = text.size() - stripped(text.substr(at), {}, Side::left).size();
        if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
        return text.substr(at).starts_with("%}") ? at : std::string_view::npos;
    }

    bool take_raw() {
        const std::size_t close = rest_.starts_with("{%") ? word_end(rest_, 2, "raw") : std::string_view::npos;
        if (close == std::string_view::npos || rest_[close - 1] == '+') return false;
        take_close(close, true, false);
        for (std::size_t at = rest_.find("{%"); at != std::string_view::npos; at = rest_.find("{%", at + 2)) {
            const std::size_t end = word_end(rest_, at + 2, "endraw");
            if (end == std::string_view::npos) continue;
            add_text(rest_.substr(0, at), true, rest_[at + 2]);
            take_close(end, true);
            return true;
        }
        fail("{% raw %} is not closed by {% endraw %}");
    }

    void take_tag(char kind) {
        const bool of_block = kind == '%';
        const std::string_view close = of_block ? "%}" : "}}";
        add(of_block ? TokenKind::begin_block : TokenKind::begin_output, "");
        take(2);
        if (rest_.starts_with('-') || (of_block && rest_.starts_with('+'))) take(1);
        std::string brackets;
        while (true) {
            take_spaces();
            if (rest_.empty()) fail(fmt::format("a tag is not closed by {}", close));
            const bool signed_close = rest_.size() > 2 && rest_.substr(1).starts_with(close) &&
                                      (rest_[0] == '-' || (of_block && rest_[0] == '+'));
            if (brackets.empty() && (signed_close || rest_.starts_with(close))) {
                add(of_block ? TokenKind::end_block : TokenKind::end_output, "");
                return take_close(signed_close ? 1 : 0, of_block);
            }
            take_token(brackets);
        }
    }

    void take_token(std::string& brackets) {
        const char first = rest_[0];
        if (first == '\'' || first == '"') return take_string(first);
        if (first >= '0' && first <= '9') return take_number();
        std::size_t n_bytes = 0;
        while (n_bytes < rest_.size()) {
            const CodePoint point = code_point_at(rest_, n_bytes);
            if (!is_name_char(point.value)) break;
            n_bytes += point.n_bytes;
        }
        if (n_bytes > 0) {
            add(TokenKind::name, std::string(rest_.substr(0, n_bytes)));
            return take(n_bytes);
        }
        for (const std::string_view symbol : {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                              "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","}) {
            if (!rest_.starts_with(symbol)) continue;
            balance(first, brackets);
            add(TokenKind::symbol, std::string(symbol));
            return take(symbol.size());
        }
        fail(fmt::format("unexpected character '{}'", rest_.substr(0, code_point_at(rest_, 0).n_bytes)));
    }

    void balance(char c, std::string& brackets) const {
        if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
        if (c != ')' && c != ']' && c != '}') return;
        if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c));
        brackets.pop_back();
    }

    void take_number() {
        std::string digits;
        bool is_float = false;
        int base = 10;
        std::size_t at = 0;
        if (rest_[0] == '0' && rest_.size() > 1) {
            const char letter = static_cast<char>(rest_[1] | 0x20);
            base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
            if (base != 10) at = 2;
        }
        const auto is_digit_here = [&](std::size_t i) {
            if (i >= rest_.size()) return false;
            const char c = rest_[i];
            return (c >= '0' && c <= '9') || (base == 16 && ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'));
        };
        const auto take_digits = [&] {
            for (; is_digit_here(at) || (at < rest_.size() && rest_[at] == '_' && is_digit_here(at + 1)); ++at)
                if (rest_[at] != '_') digits += rest_[at];
        };
        take_digits();
        const bool after_dot = !tokens_.empty() && tokens_.back().text == "."; // in x.0.1
        if (base == 10 && !after_dot && at < rest_.size() && rest_[at] == '.' && is_digit_here(at + 1)) {
            is_float = true;
            digits += rest_[at++];
            take_digits();
        }
        if (base == 10 && !after_dot && at < rest_.size() && (rest_[at] | 0x20) == 'e') {
            const std::size_t sign = at + 1 < rest_.size() && (rest_[at + 1] == '+' || rest_[at + 1] == '-') ? 1 : 0;
            if (is_digit_here(at + 1 + sign)) {
                is_float = true;
                digits += rest_.substr(at, 1 + sign);
                at += 1 + sign;
                take_digits();
            }
        }
        add_number(digits, is_float, base);
        take(at);
    }

    void add_number(const std::string& digits, bool is_float, int base) {
        const char *begin = digits.data(), *end = begin + digits.size();
        double number = 0;
        std::int64_t whole = 0;
        const auto [stop, error] =
            is_float ? std::from_chars(begin, end, number) : std::from_chars(begin, end, whole, base);
        if (is_float && error == std::errc::result_out_of_range)
            number = std::strtod(begin, nullptr); // 0 or infinity
        else if (stop != end || error != std::errc{})
            fail(fmt::format("the number {} is not one of 64 bits", digits));
        tokens_.push_back({TokenKind::constant, "", line_, is_float ? Value(number) : Value(whole)});
    }

    void take_string(char quote) {
        std::string text;
        std::size_t at = 1;
        while (at < rest_.size() && rest_[at] != quote) {
            if (rest_[at] != '\\')
                text += rest_[at++];
            else if (at + 1 < rest_.size())
                at = take_escape(at + 1, text);
            else
                break;
        }
        if (at >= rest_.size()) fail(fmt::format("a string is not closed by {}", quote));
        tokens_.push_back({TokenKind::constant, "", line_, Value(std::move(text))});
        take(at + 1);
    }

    // The escape whose letter is at `at`; returns what is behind it.
    std::size_t take_escape(std::size_t at, std::string& text) const {
        static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
        const char letter = rest_[at++];
        if (letter == '\n') return at;
        if (const std::size_t known = kLetters.find(letter); known != std::string_view::npos) {
            text += kMeanings[known];
            return at;
        }
        const bool is_octal = letter >= '0' && letter <= '7';
        const std::size_t n_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : is_octal ? 3 : 0;
        if (letter == 'N') fail("characters by name, \\N{..}, are not known here; write \\uXXXX");
        if (n_digits == 0) {
            text.append("\\").append(1, letter);
            return at;
        }
        if (is_octal) --at;
        std::uint32_t c = 0;
        const char* begin = rest_.data() + at;
        const auto [stop, error] =
            std::from_chars(begin, rest_.data() + std::min(at + n_digits, rest_.size()), c, is_octal ? 8 : 16);
        const auto n_read = static_cast<std::size_t>(stop - begin);
        if (error != std::errc{} || (!is_octal && n_read != n_digits) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            fail(fmt::format("\\{} begins no character", letter));
        append_utf8(c, text);
        return at + n_read;
    }

    std::string source_;
    std::string_view rest_;
    std::vector<Token> tokens_;
    int line_ = 1;
    bool at_line_begin_ = true;
};

} // namespace

std::vector<Token> tokenize_template(std::string_view source) {
    return Lexer(source).run();
}

} // namespace entrodraft::model::jinja
