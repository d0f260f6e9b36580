#include "model/files/json_file.h"

#include "model/files/bad_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <system_error>
#include <utility>
#include <vector>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

std::string place_in(std::string_view text, std::size_t offset) {
    const auto before = text.substr(0, std::min(offset, text.size()));
    return fmt::format("line {}, byte {}", std::count(before.begin(), before.end(), '\n') + 1, before.size());
}

// Returns nlohmann's message without its number and place: "[json.exception.parse_error.101] parse error at line 1,
// column 2: syntax error ..." becomes "syntax error ...".
std::string reason_of(const Json::exception& error) {
    std::string message = error.what();
    for (const std::string_view mark : {"syntax error", "number overflow"}) {
        const auto begin = message.find(mark);
        if (begin != std::string::npos) return message.substr(begin);
    }
    return message;
}

// Sits between the parser and a handler: limits the depth and turns the parser's errors into BadFile.
class Guard final : public nlohmann::json_sax<Json> {
  public:
    Guard(nlohmann::json_sax<Json>& handler, std::string_view text, const std::string& what, LargeNumbers large)
        : handler_(handler), text_(text), what_(what), large_(large) {}

    bool null() override { return handler_.null(); }
    bool boolean(bool value) override { return handler_.boolean(value); }
    bool number_integer(std::int64_t value) override { return handler_.number_integer(value); }
    bool number_unsigned(std::uint64_t value) override { return handler_.number_unsigned(value); }
    bool number_float(double value, const std::string& digits) override {
        // If a whole number fits 64 bits neither signed nor unsigned, the parser gives it as floating point.
        if (large_ == LargeNumbers::refused && digits.find_first_of(".eE") == std::string::npos) {
            throw BadFile(what_ + ": the whole number " + digits.substr(0, 40) + " does not fit 64 bits");
        }
        return handler_.number_float(value, digits);
    }
    bool string(std::string& value) override { return handler_.string(value); }
    bool binary(Json::binary_t& value) override { return handler_.binary(value); }
    bool start_object(std::size_t size) override {
        enter();
        return handler_.start_object(size);
    }
    bool key(std::string& value) override { return handler_.key(value); }
    bool end_object() override {
        --depth_;
        return handler_.end_object();
    }
    bool start_array(std::size_t size) override {
        enter();
        return handler_.start_array(size);
    }
    bool end_array() override {
        --depth_;
        return handler_.end_array();
    }
    bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
        throw BadFile(what_ + ": " + place_in(text_, position) + ": no valid JSON: " + reason_of(error));
    }

  private:
    void enter() {
        if (++depth_ > kMaxJsonDepth) {
            throw BadFile(fmt::format("{}: objects or arrays nested deeper than {}", what_, kMaxJsonDepth));
        }
    }

    nlohmann::json_sax<Json>& handler_;
    std::string_view text_;
    const std::string& what_;
    LargeNumbers large_;
    std::size_t depth_ = 0;
};

// Builds the value. nlohmann's own builder silently keeps the last of two equal keys.
class Builder final : public nlohmann::json_sax<Json> {
  public:
    explicit Builder(const std::string& what) : what_(what) {}

    Json take() { return std::move(root_); }

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(std::int64_t value) override { return add(value); }
    bool number_unsigned(std::uint64_t value) override { return add(value); }
    bool number_float(double value, const std::string&) override { return add(value); }
    bool string(std::string& value) override { return add(std::move(value)); }
    bool binary(Json::binary_t& value) override { return add(std::move(value)); }
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& value) override {
        auto& object = open_.back()->get_ref<Json::object_t&>();
        const auto [at, is_new] = object.try_emplace(std::move(value));
        if (!is_new) throw BadFile(what_ + ": the key " + in_quotes(at->first) + " appears twice in one object");
        member_ = &at->second;
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

  private:
    // Puts the value into its place. The result is valid until the enclosing array grows, that is, until it is closed.
    Json* place(Json value) {
        if (open_.empty()) {
            root_ = std::move(value);
            return &root_;
        }
        if (open_.back()->is_array()) {
            open_.back()->get_ref<Json::array_t&>().push_back(std::move(value));
            return &open_.back()->get_ref<Json::array_t&>().back();
        }
        *member_ = std::move(value);
        return member_;
    }
    bool add(Json value) {
        place(std::move(value));
        return true;
    }
    bool open(Json value) {
        open_.push_back(place(std::move(value)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const std::string& what_;
    Json root_;
    std::vector<Json*> open_;
    Json* member_ = nullptr;
};

} // namespace

std::string read_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
    // Opening a pipe that nobody writes to would wait for ever without O_NONBLOCK.
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) throw BadFile(file.string() + ": cannot be opened: " + system_reason());
    const struct Closer {
        int descriptor;
        ~Closer() { ::close(descriptor); }
    } closer{descriptor};

    struct stat about {};
    if (::fstat(descriptor, &about) != 0) throw BadFile(file.string() + ": " + system_reason());
    if (!S_ISREG(about.st_mode)) throw BadFile(file.string() + ": not a regular file");
    const auto size = static_cast<std::uint64_t>(about.st_size);
    if (size > max_bytes) {
        throw BadFile(
            fmt::format("{}: {} bytes are more than the {} that such a file may have", file.string(), size, max_bytes));
    }
    std::string text(static_cast<std::size_t>(size), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t n = ::read(descriptor, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw BadFile(file.string() + ": cannot be read: " + system_reason());
        if (n == 0) throw BadFile(file.string() + ": became shorter while it was read");
        done += static_cast<std::size_t>(n);
    }
    return text;
}

void scan_json(std::string_view text, const std::string& what, nlohmann::json_sax<Json>& handler, LargeNumbers large) {
    // The parser would skip a byte order mark, and would take a NUL for the end of the text.
    if (text.starts_with("\xef\xbb\xbf")) throw BadFile(what + ": begins with a byte order mark; remove it");
    const auto nul = text.find('\0');
    if (nul != std::string_view::npos) throw BadFile(what + ": " + place_in(text, nul) + ": a NUL byte in JSON");
    Guard guard(handler, text, what, large);
    if (!Json::sax_parse(text.begin(), text.end(), &guard)) throw BadFile(what + ": no valid JSON");
}

Json parse_json(std::string_view text, const std::string& what, LargeNumbers large) {
    Builder builder(what);
    scan_json(text, what, builder, large);
    return builder.take();
}

Json read_json_file(const std::filesystem::path& file, std::size_t max_bytes, LargeNumbers large) {
    return parse_json(read_text_file(file, max_bytes), file.string(), large);
}

bool file_exists(const std::filesystem::path& file) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(file, ignored));
}

Json read_object(const std::filesystem::path& file) {
    Json value = read_json_file(file, kMaxConfigBytes, LargeNumbers::as_floating_point);
    if (!value.is_object()) throw BadFile(file.string() + ": not a JSON object");
    return value;
}

Json read_optional_object(const std::filesystem::path& file) {
    return file_exists(file) ? read_object(file) : Json::object();
}

} // namespace entrodraft::model
