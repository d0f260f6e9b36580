// Results as JSON lines: see results.h.
#include "launch/io/results.h"

#include "launch/io/openai_batch.h"
#include "launch/start/failure.h"
#include "launch/start/signals.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdexcept>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

const char* const kNeedsOurs = "--resume needs a file this program wrote";
constexpr std::string_view kLineBegin = "{\"id\":";

double rounded(double value) {
    return std::round(value * 1e6) / 1e6;
}

bool is_result(const Json& object) {
    return object.contains("id") &&
           (object.contains("text") || object.contains("token_ids") || object.contains("error"));
}

// Returns whether an unterminated line may be one of our lines, cut off. Any other text must stay, even with --resume.
// After a power failure, a file system may have zeros in place of the end.
bool is_torn_result(std::string text) {
    text.erase(text.find_last_not_of('\0') + 1);
    if (text.compare(0, kLineBegin.size(), kLineBegin, 0, text.size()) != 0) return false;
    const Json whole = Json::parse(text, nullptr, false);
    return whole.is_discarded() || is_result(whole);
}

// Opens a pipe or device for writing alone: only then is it noticed when the reader leaves.
int open_for_writing_alone(const std::string& file, bool is_pipe) {
    constexpr int kLookMilliseconds = 20;
    for (;;) {
        const int descriptor = open(file.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (descriptor >= 0) fcntl(descriptor, F_SETFL, 0);
        if (descriptor >= 0 || !is_pipe || errno != ENXIO) return descriptor;
        if (stop_signal() != 0)
            throw OrderlyFailure(kStopped, file + ": stopped by a signal before anything read this pipe");
        poll(nullptr, 0, kLookMilliseconds);
    }
}

int open_output(const std::string& file, bool& is_new) {
    struct stat info {};
    if (stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return open_for_writing_alone(file, S_ISFIFO(info.st_mode));
    int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    is_new = descriptor >= 0;
    if (descriptor < 0) descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return descriptor;
}

Json ahead_json(const spec::DraftedAhead& ahead) {
    return {{"rounds", ahead.rounds},
            {"hits", ahead.hits},
            {"hit_rate", rounded(ahead.hit_rate())},
            {"outcomes", ahead.outcomes},
            {"hidden_passes", ahead.passes},
            {"hidden_seconds", rounded(ahead.seconds)},
            {"drafted", ahead.tokens},
            {"used", ahead.used}};
}

} // namespace

Json counts_json(const spec::Stats& stats) {
    Json counts = {{"new_tokens", stats.new_tokens},
                   {"rounds", stats.rounds},
                   {"drafted", stats.drafted},
                   {"accepted", stats.accepted},
                   {"target_passes", stats.target_passes},
                   {"draft_passes", stats.draft_passes},
                   {"further_draft_rows", stats.further_draft_rows},
                   {"draft_acceptance_rate", rounded(stats.draft_acceptance_rate())},
                   {"mean_acceptance_length", rounded(stats.mean_acceptance_length())},
                   {"alpha", stats.alpha() ? Json(rounded(*stats.alpha())) : Json()}};
    if (stats.ahead.rounds > 0) counts["ahead"] = ahead_json(stats.ahead);
    return counts;
}

std::vector<std::pair<const char*, double>> phase_seconds(const spec::StepSeconds& steps, double decoding) {
    const double named = steps.draft + steps.entropy + steps.broadcast + steps.score + steps.gather + steps.verify;
    return {{"draft", steps.draft},     {"entropy", steps.entropy}, {"broadcast", steps.broadcast},
            {"score", steps.score},     {"gather", steps.gather},   {"verify", steps.verify},
            {"other", decoding - named}};
}

namespace {

Json token_json(const spec::TokenLogProb& token) {
    return {{"token_id", token.token}, {"logprob", rounded(static_cast<double>(token.log_prob))}};
}

Json logprobs_json(const std::vector<spec::TokenLogProbs>& logprobs) {
    Json tokens = Json::array();
    for (const spec::TokenLogProbs& of_token : logprobs) {
        Json top = Json::array();
        for (const spec::TokenLogProb& token : of_token.top)
            top.push_back(token_json(token));
        tokens.push_back(token_json(of_token.emitted));
        tokens.back()["top_logprobs"] = std::move(top);
    }
    return tokens;
}

// Lists the best text of a beam search first; lists samples in the order of their seeds.
Json sequences_json(const spec::Request& request, const spec::Completion& completion) {
    Json sequences = Json::array();
    for (const spec::FoundText& found : completion.found) {
        Json& one = sequences.emplace_back(Json::object());
        if (completion.has_text) one["text"] = found.text;
        one["token_ids"] = found.tokens;
        one["finish_reason"] = spec::to_string(found.finish_reason);
        if (request.logprobs) one["logprobs"] = logprobs_json(found.logprobs);
        if (request.beams.is_on()) one["score"] = rounded(static_cast<double>(found.score));
    }
    return sequences;
}

} // namespace

std::string result_line(const spec::Request& request, const spec::Completion& completion) {
    const spec::Stats& stats = completion.stats;
    const std::string metadata = request.metadata.empty() ? "" : "\"metadata\":" + request.metadata + ",";
    Json rest;
    if (completion.has_text) rest["text"] = completion.text;
    rest["token_ids"] = completion.tokens;
    rest["finish_reason"] = spec::to_string(completion.finish_reason);
    if (request.logprobs) rest["logprobs"] = logprobs_json(completion.logprobs);
    if (!completion.found.empty()) rest["sequences"] = sequences_json(request, completion);
    if (!request.stop_rule.empty()) rest["stop_rule"] = request.stop_rule;
    rest["stats"] = {{"prompt_tokens", stats.prompt_tokens}};
    rest["stats"].update(counts_json(stats));
    rest["stats"]["seconds"] = rounded(stats.seconds.total);
    rest["stats"]["ms_per_token"] = rounded(stats.ms_per_token());
    rest["stats"]["ttft_ms"] = rounded(stats.seconds.first_token * 1e3);
    rest["stats"]["tpot_ms"] = stats.tpot_ms() ? Json(rounded(*stats.tpot_ms())) : Json();
    return std::string(kLineBegin) + request.id + "," + metadata + compact(rest).substr(1);
}

std::string trace_line(const spec::Request& request, const spec::RoundTrace& trace) {
    const spec::Draft& draft = *trace.draft;
    const auto numbers = [](const std::vector<float>& values) {
        Json list = Json::array();
        for (const float value : values)
            list.push_back(std::isfinite(value) ? Json(rounded(static_cast<double>(value))) : Json());
        return list;
    };
    Json rest;
    if (request.num_samples > 1) rest["sample"] = request.sample;
    rest["round"] = trace.number;
    rest["position"] = trace.position;
    rest["drafted"] = draft.tokens;
    if (!spec::is_chain(draft.parents)) rest["parents"] = draft.parents;
    rest["entropies_nats"] = numbers(draft.entropies_nats);
    rest["probabilities"] = numbers(draft.probabilities);
    rest["margins"] = numbers(draft.margins);
    rest["draft_end"] = spec::to_string(draft.end);
    rest["accepted"] = trace.verification.accepted;
    rest["next_token"] = trace.verification.next_token;
    rest["draft_passes"] = draft.passes;
    if (draft.ahead.rounds > 0) rest["ahead_hit"] = draft.ahead.hits > 0;
    rest["draft_ms"] = rounded(trace.draft_seconds * 1e3);
    rest["target_ms"] = rounded(trace.target_seconds * 1e3);
    if (request.plain) rest["plain"] = true;
    return std::string(kLineBegin) + request.id + "," + compact(rest).substr(1);
}

std::string error_line(const BadLine& bad) {
    if (bad.is_openai) return openai_error_line(bad);
    Json rest;
    if (bad.line) rest["line"] = *bad.line;
    rest["error"] = bad.error;
    return std::string(kLineBegin) + bad.id + "," + compact(rest).substr(1);
}

ResultWriter::ResultWriter(const std::string& file, Existing existing, const std::string& option)
    : file_(file == "-" ? "stdout" : file) {
    if (file == "-") {
        descriptor_ = STDOUT_FILENO;
        return;
    }
    struct stat info {};
    // This check comes before the opening, which waits for a pipe's reader.
    if (existing == Existing::resume && stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
        throw BadOption(fmt::format("--resume needs --output to be a plain file, and {} is not", file_));
    descriptor_ = open_output(file, is_new_);
    if (descriptor_ < 0) throw std::runtime_error(file_ + ": cannot be opened for writing: " + std::strerror(errno));
    const bool regular = fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode);
    try {
        if (regular && flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            throw std::runtime_error(file_ + ": another run is writing it; wait for its end");
        has_name_ = regular && info.st_nlink > 0;
        if (existing == Existing::resume) read_existing();
        if (existing == Existing::refuse && regular && info.st_size > 0)
            throw BadOption(fmt::format("{} {} holds {}", option, file_,
                                        option == "--output" ? "results already: go on with --resume, or remove it"
                                                             : "something already: remove it or name another file"));
        if (has_name_ && fstat(descriptor_, &info) == 0) expected_bytes_ = static_cast<std::uint64_t>(info.st_size);
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

// Returns whether the file is still the empty one that this object made.
bool ResultWriter::is_left_empty() const {
    struct stat mine {};
    struct stat there {};
    return is_new_ && fstat(descriptor_, &mine) == 0 && mine.st_size == 0 && stat(file_.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

ResultWriter::~ResultWriter() {
    if (is_left_empty()) unlink(file_.c_str());
    if (descriptor_ > STDERR_FILENO) close(descriptor_);
}

void ResultWriter::read_existing() {
    LineReader lines(file_, SIZE_MAX);
    std::uint64_t whole_bytes = 0;
    while (const auto line = lines.next()) {
        const std::string place = fmt::format("{} line {}", file_, served_.size() + 1);
        if (!line->terminated && is_torn_result(line->text)) break; // the writer of this line died
        Json object;
        try {
            object = parse_json_line(line->text, kMaxDepth + 1); // `metadata` holds fields of an input line
        } catch (const std::exception& error) {
            throw std::runtime_error(place + ": " + error.what() + "; " + kNeedsOurs);
        }
        if (!line->terminated || !is_result(object))
            throw std::runtime_error(place + " is not a result; " + kNeedsOurs);
        const bool is_openai = object.contains("custom_id");
        if (object.contains("error") && !object["error"].is_null()) ++served_with_error_;
        served_.push_back(hash_of_id(compact_field(line->text, object, is_openai ? "custom_id" : "id")));
        whole_bytes = lines.bytes_read();
    }
    if (lines.interrupted()) throw std::runtime_error(file_ + ": reading was interrupted");
    if (whole_bytes < lines.file_bytes()) cut_to(whole_bytes);
    next_ = static_cast<std::int64_t>(served_.size());
}

void ResultWriter::put(std::int64_t order, const std::string& line) {
    waiting_.emplace(order, line);
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_; first = waiting_.begin()) {
        if (before_line_) before_line_();
        write_text(first->second + "\n");
        waiting_.erase(first);
        ++next_;
    }
}

void ResultWriter::write_text(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(descriptor_, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw std::runtime_error(file_ + ": cannot be written: " + std::strerror(errno));
        text.remove_prefix(static_cast<std::size_t>(written));
        expected_bytes_ += static_cast<std::uint64_t>(written);
    }
    require_intact();
}

void ResultWriter::require_intact() const {
    struct stat now {};
    if (!has_name_ || fstat(descriptor_, &now) != 0) return;
    if (now.st_nlink == 0) throw std::runtime_error(file_ + ": was removed during the run; what it held is lost");
    if (static_cast<std::uint64_t>(now.st_size) < expected_bytes_)
        throw std::runtime_error(fmt::format("{}: was cut to {} of {} bytes during the run; what it held is lost",
                                             file_, now.st_size, expected_bytes_));
}

void ResultWriter::cut_to(std::uint64_t bytes) {
    if (has_name_ && ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0)
        throw std::runtime_error(file_ + ": what is torn at its end cannot be cut off: " + std::strerror(errno));
    expected_bytes_ = bytes;
}

std::vector<std::uint64_t> skip_served(RequestReader& reader, const ResultWriter& writer, const std::string& output,
                                       const std::vector<std::uint64_t>& known) {
    std::vector<std::uint64_t> lines;
    for (std::size_t i = 0; i < writer.served().size(); ++i) {
        const auto item = reader.next();
        const std::string& file = reader.lines().file();
        if (!item)
            throw std::runtime_error(fmt::format("{} line {}: {} has no line for it; resume with the input of that run",
                                                 output, i + 1, file));
        if (hash_of_id(id_of(*item)) != writer.served()[i])
            throw std::runtime_error(
                fmt::format("{} line {} has another id than {} in {}; resume with the input of that run", output, i + 1,
                            id_of(*item).substr(0, 200), file));
        lines.push_back(reader.last_hash());
        if (i < known.size() && lines[i] != known[i])
            throw std::runtime_error(fmt::format("{} line {} (id {}) has changed since {} line {} was made of it; name "
                                                 "another --output, or give --resume-anyway too",
                                                 file, reader.last_number(), id_of(*item).substr(0, 200), output,
                                                 i + 1));
    }
    return lines;
}

void print(dist::Session& session, std::string_view text) {
    if (session.world_rank() == 0) ResultWriter("-", Existing::refuse).write_text(text);
}

} // namespace entrodraft::launch
