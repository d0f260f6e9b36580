// What people see on stderr: see report.h.
#include "entrodraft/launch/generate/report.h"

#include "entrodraft/launch/counted.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

void write_to_stderr(const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (written <= 0) return; // nobody is left to tell
        done += static_cast<std::size_t>(written);
    }
}

// "batch      16 sequences at once, together 1600.0 new tokens a second".
std::string format_batch(const RunSummary& summary) {
    if (summary.batch_size < 2 || summary.wall_seconds <= 0) return "";
    return format("  batch      %d sequences at once, together %.1f new tokens a second\n", summary.batch_size,
                  static_cast<double>(summary.stats.new_tokens) / summary.wall_seconds);
}

// "replicas   2, together 812.0 new tokens a second; busy 99 %, 97 % of the time".
std::string format_replicas(const RunSummary& summary) {
    const std::vector<double>& busy = summary.replicas_busy_seconds;
    if (busy.size() < 2 || summary.wall_seconds <= 0) return "";
    std::string text = format("  replicas   %zu, together %.1f new tokens a second; busy", busy.size(),
                              static_cast<double>(summary.stats.new_tokens) / summary.wall_seconds);
    for (std::size_t replica = 0; replica < busy.size(); ++replica)
        text += format("%s %.0f %%", replica > 0 ? "," : "", 100 * busy[replica] / summary.wall_seconds);
    return text + " of the time\n";
}

// "drafting 21.3 %, entropy 0.2 %, ...": shares of decoding time. Sequences of a batch share its steps out among
// them, while the time of each is that of all.
std::string format_shares(const RunSummary& summary) {
    const spec::StepSeconds& seconds = summary.stats.seconds;
    if (summary.batch_size > 1 && summary.checked > 0) return ""; // it was busy with the texts said again as well
    const double decoding = (summary.batch_size > 1 ? summary.busy_seconds : seconds.total) - seconds.prefill;
    if (decoding <= 0) return "";
    const double named =
        seconds.draft + seconds.entropy + seconds.announce + seconds.score + seconds.gather + seconds.decide;
    const auto share = [&](double part) { return 100 * std::max(0.0, part) / decoding; };
    return format(
        "  time       drafting %.1f %%, entropy %.1f %%, announcing %.1f %%, scoring %.1f %%, gathering %.1f %%, "
        "deciding %.1f %%, other %.1f %%\n",
        share(seconds.draft), share(seconds.entropy), share(seconds.announce), share(seconds.score),
        share(seconds.gather), share(seconds.decide), share(decoding - named));
}

// "0.81 0.74 0.70": how many of the judged stood.
std::string format_acceptances(const std::vector<spec::Acceptances>& all, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), most); ++i)
        text += all[i].judged == 0
                    ? " -"
                    : format(" %.2f", static_cast<double>(all[i].accepted) / static_cast<double>(all[i].judged));
    return text;
}

// Costs of passes that the run saw itself: mean times, whatever stood beside them.
spec::Costs seen_costs(const spec::Stats& stats) {
    spec::Costs costs;
    // A pass of a cascade's middle model brings several tokens.
    const std::int64_t drafting = stats.levels.empty() ? stats.draft_passes : stats.drafted;
    if (drafting > 0) costs.t_draft = stats.seconds.draft / static_cast<double>(drafting);
    costs.t_target = {stats.seconds.score / static_cast<double>(stats.target_passes)};
    return costs;
}

std::string format_textbook(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    if (!stats.alpha() || stats.rounds == 0) return "";
    const spec::TextbookFigures theory = spec::textbook_figures(
        stats, stats.levels.empty() ? summary.costs.value_or(seen_costs(stats)) : seen_costs(stats),
        summary.operations_ratio);
    std::string text =
        format("  textbook   alpha %.3f, c %.3f, %.2f drafted a round: %.2f tokens a pass (seen %.2f), walltime factor "
               "%.2f",
               *stats.alpha(), theory.c, theory.mean_drafted, theory.expected_tokens, stats.tokens_per_target_pass(),
               theory.walltime_factor);
    if (theory.operations_factor > 0)
        text +=
            format(", operations factor %.2f (seen %.2f)", theory.operations_factor, theory.measured_operations_factor);
    return text + "\n";
}

std::string format_ahead(const spec::DraftedAhead& ahead) {
    if (ahead.rounds == 0) return "";
    const auto share = [](std::int64_t part, std::int64_t whole) {
        return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
    };
    return "  ahead      " + counted(ahead.rounds, "round") +
           format(", hit rate %.3f; a round %.1f outcomes in %.1f hidden passes, %.3f ms; ", ahead.hit_rate(),
                  share(ahead.outcomes, ahead.rounds), share(ahead.passes, ahead.rounds),
                  1000 * ahead.seconds / static_cast<double>(ahead.rounds)) +
           counted(ahead.tokens, "token") +
           format(" drafted, %.1f %% of them used\n", 100 * share(ahead.used, ahead.tokens));
}

std::string format_speculation(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const SpeculationOptions& speculation = summary.speculation;
    const auto count = [](std::int64_t number) { return std::to_string(number); };
    std::string text = "  rule       ";
    for (std::size_t level = 0; level < speculation.stop_rules.size(); ++level)
        text += (level > 0 ? " / " : "") + describe(speculation.stop_rules[level], speculation.entropy_unit);
    text += "; drafter " + describe(speculation.drafter) + ", acceptance " + to_string(speculation.acceptance.kind);
    if (speculation.acceptance.lenience < 1) text += format(", lenience %g", speculation.acceptance.lenience);
    if (speculation.acceptance.is_lossy()) text += ": LOSSY, not the target's own text";
    text += "\n  drafting   " + counted(stats.rounds, "round") + ", " + count(stats.drafted) + " drafted, " +
            count(stats.accepted) + " accepted " +
            format("(draft acceptance rate %.3f), mean acceptance length %.2f\n", stats.draft_acceptance_rate(),
                   stats.mean_acceptance_length());
    for (const spec::Stats& level : stats.levels)
        text += "  level      " + counted(level.rounds, "round") + ", " + count(level.drafted) + " drafted, " +
                format("draft acceptance rate %.3f, mean acceptance length %.2f\n", level.draft_acceptance_rate(),
                       level.mean_acceptance_length());
    text += format_ahead(stats.ahead);
    constexpr std::size_t kPositions = 8, kBins = 10;
    if (!stats.by_position.empty())
        text += "  stood      by position" + format_acceptances(stats.by_position, kPositions) + "\n";
    if (!stats.by_entropy.empty())
        text += "  stood      by entropy, bins of 0.5 nats" + format_acceptances(stats.by_entropy, kBins) + "\n";
    return text + format_textbook(summary);
}

} // namespace

Tally& Tally::operator+=(const Tally& other) {
    stats += other.stats;
    served += other.served;
    with_error += other.with_error;
    checked += other.checked;
    check_differs += other.check_differs;
    busy_seconds += other.busy_seconds;
    return *this;
}

void say(const std::string& line) {
    write_to_stderr(line + "\n");
}

std::string format_summary(const RunSummary& summary) {
    const spec::Stats& stats = summary.stats;
    const auto count = [](std::int64_t number) { return std::to_string(number); };
    std::string text = summary.interrupted ? "stopped by a signal" : "";
    if (summary.interrupted) text += summary.resumable ? "; run again with --resume to serve the rest\n" : "\n";
    text += "  served     " + counted(summary.served, "prompt");
    if (summary.with_error > 0) text += ", " + count(summary.with_error) + " not served (see their error lines)";
    if (summary.resumed > 0) text += ", " + count(summary.resumed) + " found in the output already";
    text += format(", in %.2f s on ", summary.wall_seconds) + counted(summary.ranks, "rank") + " of " +
            counted(summary.threads, "thread") + "\n";
    if (stats.new_tokens == 0) return text;
    const double ms = stats.ms_per_token();
    text += "  tokens     " + count(stats.prompt_tokens) + " prompt, " + count(stats.new_tokens) + " new; " +
            (summary.batch_size > 1
                 ? format("%.3f ms a new token of a sequence, prefill %.3f s\n", ms, stats.seconds.prefill)
                 : format("%.3f ms a new token (%.1f a second), prefill %.3f s\n", ms, ms > 0 ? 1000 / ms : 0,
                          stats.seconds.prefill));
    text += format_batch(summary) + format_replicas(summary);
    if (!summary.speculation.drafter.kinds.empty()) text += format_speculation(summary);
    text += "  passes     " + count(stats.target_passes) + " target, " + count(stats.draft_passes) + " draft; " +
            format("%.2f tokens a target pass%s\n", stats.tokens_per_target_pass(),
                   summary.batch_size > 1 ? ", each counted for every sequence in it" : "");
    text += format_shares(summary);
    if (!summary.slowest_rank.empty()) text += "  slowest    " + summary.slowest_rank + "\n";
    if (summary.checked > 0) {
        text += "  check      " + count(summary.checked - summary.check_differs) + " of " + count(summary.checked) +
                " texts equal decoding without a draft\n";
    }
    return text;
}

std::string format_bar(double fraction, int width) {
    const double held = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
    std::string bar(static_cast<std::size_t>(width) + 2, '-');
    bar.front() = '[';
    bar.back() = ']';
    std::fill_n(bar.begin() + 1, std::lround(held * width), '#');
    return bar;
}

std::string format_duration(double seconds) {
    const long whole = std::lround(std::max(0.0, seconds));
    if (whole >= 3600) return format("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return format("%ld:%02ld", whole / 60, whole % 60);
}

StatusLine::StatusLine(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()), last_(start_) {
    const char* no_colour = std::getenv("NO_COLOR");
    colour_ = no_colour == nullptr || *no_colour == '\0';
}

StatusLine::~StatusLine() {
    clear();
}

bool StatusLine::is_due() {
    if (quiet_) return false;
    const Time now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since_last = now - last_;
    if (since_last.count() < (terminal_ ? 0.1 : 30.0)) return false;
    last_ = now;
    return true;
}

double StatusLine::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void StatusLine::draw(double fraction, const std::string& text) {
    if (!terminal_) return say(text);
    const std::string bar = fraction < 0 ? "" : format_bar(fraction, 24) + " ";
    write_to_stderr("\r\033[K" + (colour_ && !bar.empty() ? "\033[32m" + bar + "\033[0m" : bar) + text);
    drawn_ = true;
}

void StatusLine::clear() {
    if (drawn_) write_to_stderr("\r\033[K");
    drawn_ = false;
}

void Progress::update(double fraction, std::int64_t lines, std::int64_t new_tokens) {
    if (!line_.is_due()) return;
    const double seconds = line_.seconds();
    std::string text = counted(lines, "prompt") + ", " + counted(new_tokens, "token") + ", " +
                       format("%.0f tokens/s, ", static_cast<double>(new_tokens) / seconds) + format_duration(seconds);
    if (fraction > 0.01) text += ", " + format_duration(seconds / fraction - seconds) + " to go";
    line_.draw(fraction, text);
}

void LoadingBar::update(std::size_t done_bytes, std::size_t total_bytes) {
    if (total_bytes == 0 || !line_.is_due()) return;
    const double done = static_cast<double>(done_bytes), total = static_cast<double>(total_bytes);
    const double seconds = line_.seconds(), fraction = done / total;
    std::string text = "loading the " + what_ + format(", %.2f of %.2f GB, ", done / 1e9, total / 1e9) +
                       format("%.2f GB/s", done / 1e9 / seconds);
    if (fraction > 0.01) text += ", " + format_duration(seconds / fraction - seconds) + " to go";
    line_.draw(fraction, text);
}

} // namespace entrodraft::launch
