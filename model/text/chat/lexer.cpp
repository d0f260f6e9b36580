// Turns template text into tokens, with jinja2's rules for white space: see syntax.h.
#include "model/files/utf8.h"
#include "model/text/chat/syntax.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace entrodraft::model::jinja {

namespace {

bool is_digit_char(char c) {
    return c >= '0' && c <= '9';
}

bool is_name_char(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit_char(c);
}

// Returns the text with \n for all line ends, and without the last one.
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
            else
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

    // Adds the text before a tag. `sign` is the character after the tag's opening.
    void add_text(std::string_view text, bool of_block, char sign) {
        if (sign == '-') {
            text = stripped(text, {}, Side::right);
        } else if (of_block && sign != '+') {
            const std::size_t line_begin = text.rfind('\n') + 1; // 0 if there is none
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

    // Takes the end of a tag whose closing is at `at`, and the white space that belongs to it.
    void take_close(std::size_t at, bool of_block) {
        const char sign = at > 0 ? rest_[at - 1] : ' ';
        take(at + 2);
        if (sign == '-')
            take_spaces();
        else if (of_block && sign != '+' && rest_.starts_with('\n'))
            take(1);
    }

    void skip_comment() {
        const std::size_t end = rest_.find("#}", 2);
        if (end == std::string_view::npos) fail("the comment {# is not closed by #}");
        take_close(end, true);
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
        if (is_digit_char(first)) return take_number();
        const auto name_end = std::ranges::find_if_not(rest_, is_name_char);
        if (name_end != rest_.begin()) {
            const auto n_bytes = static_cast<std::size_t>(name_end - rest_.begin());
            add(TokenKind::name, std::string(rest_.substr(0, n_bytes)));
            return take(n_bytes);
        }
        for (const std::string_view symbol : {"//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                              "]",  "(",  ")",  "{",  "}",  ">", "<", "=", ".", ":", "|", ","}) {
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
        static constexpr std::string_view kDigits = "0123456789";
        std::size_t n = std::min(rest_.find_first_not_of(kDigits), rest_.size());
        const bool is_float = n + 1 < rest_.size() && rest_[n] == '.' && is_digit_char(rest_[n + 1]);
        if (is_float) n = std::min(rest_.find_first_not_of(kDigits, n + 1), rest_.size());
        if (n < rest_.size() && is_name_char(rest_[n]))
            fail(fmt::format("numbers have digits only, not '{}'", rest_[n]));
        std::int64_t whole = 0;
        double number = 0;
        const char *begin = rest_.data(), *end = begin + n;
        const auto error = is_float ? std::from_chars(begin, end, number).ec : std::from_chars(begin, end, whole).ec;
        if (error != std::errc{}) fail(fmt::format("the number {} is not one of 64 bits", rest_.substr(0, n)));
        tokens_.push_back({TokenKind::constant, "", line_, is_float ? Value(number) : Value(whole)});
        take(n);
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

    // Reads the escape whose letter is at `at`; returns the position after it.
    std::size_t take_escape(std::size_t at, std::string& text) const {
        static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
        const char letter = rest_[at++];
        if (letter == '\n') return at;
        if (const std::size_t known = kLetters.find(letter); known != std::string_view::npos) {
            text += kMeanings[known];
            return at;
        }
        const std::size_t n_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
        if (letter == 'N' || is_digit_char(letter)) fail(fmt::format("\\{} is not known here; write \\uXXXX", letter));
        if (n_digits == 0) {
            text.append("\\").append(1, letter);
            return at;
        }
        std::uint32_t c = 0;
        const char* begin = rest_.data() + at;
        const auto [stop, error] = std::from_chars(begin, rest_.data() + std::min(at + n_digits, rest_.size()), c, 16);
        const auto n_read = static_cast<std::size_t>(stop - begin);
        if (error != std::errc{} || n_read != n_digits || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
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
