// entrodraft bench load: how fast a rank loads its slice, against reading the same files plainly, and how far its
// memory grows over the slice while it does.
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "launch/load/cores.h"
#include "launch/load/launch_check.h"
#include "launch/load/memory_watch.h"
#include "launch/load/opened_model.h"
#include "launch/machine_load.h"
#include "launch/model_directory.h"
#include "model/buffer.h"
#include "model/checkpoint/bad_file.h"
#include "model/decoder.h"
#include "model/families/names.h"
#include "model/inspection.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <system_error>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// What is loaded, the same on every rank but for the slice.
struct Subject {
    std::string directory;
    model::ModelConfig config;
    bool was_untied = false; // by model::untie_stored_head
    std::optional<model::Checkpoint> checkpoint;
    std::vector<std::string> files;
    std::uint64_t file_bytes = 0;
    model::WeightType type{};
    model::RankNeeds needs;
    double stored_bytes = 0; // of the slice, in the files
};

// A rank's figures: bytes and seconds, the quickest where they are times, largest where they are memory. New memory has
// to be found and cleared by the system, and on virtual machines by their host, which takes as long as it takes.
struct LoadFigures {
    double rank = 0;
    double load_seconds = 0, stored_bytes = 0;
    double median_load_seconds = 0;
    double read_bytes = 0;   // of this rank's share of the files
    double read_seconds = 0; // of reading them into memory of one's own, as a load must
    double drop_seconds = 0; // of reading them over and over into the same small piece
    double slice_bytes = 0, largest_matrix_bytes = 0;
    double before_bytes = 0, grown_bytes = 0;

    double load_rate() const { return stored_bytes / load_seconds; }
    double read_rate() const { return read_bytes / read_seconds; }
    double drop_rate() const { return read_bytes / drop_seconds; }
    double share() const { return load_rate() / read_rate(); }
    double bound_bytes() const { return slice_bytes + largest_matrix_bytes; }
};

Subject open_subject(const LoadOptions& options, int rank, int ranks) {
    Subject subject;
    subject.directory = resolve_checkpoint_directory(options.model, "--model");
    subject.config = model::read_config(subject.directory);
    subject.checkpoint = model::Checkpoint::open(subject.directory);
    subject.was_untied = model::untie_stored_head(subject.config, *subject.checkpoint);
    model::check_shapes(subject.config, *subject.checkpoint);
    subject.type = options.dtype.value_or(subject.config.stored_type);
    model::RunShape run;
    run.ranks = ranks;
    run.type = subject.type;
    subject.needs = needs_of(subject.config, run, rank);
    const model::ModelNames names = names_of(subject.config, *subject.checkpoint);
    std::set<std::string> files;
    double bytes = 0;
    for (const auto& [name, tensor] : subject.checkpoint->tensors()) {
        files.insert(*tensor.file);
        if (!names.ignores(name)) bytes += static_cast<double>(tensor.bytes.size());
    }
    subject.files.assign(files.begin(), files.end());
    for (const std::string& file : files)
        subject.file_bytes += std::filesystem::file_size(file);
    subject.stored_bytes =
        bytes * static_cast<double>(subject.needs.n_weights) / static_cast<double>(parameter_count(subject.config));
    return subject;
}

// Reads bytes `range` of the files, laid end to end, to `to` or, where that is null, drops them. Local, one call a
// thread.
void read_plainly(const std::vector<std::string>& files, dist::Slice range, std::byte* to) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    model::Buffer piece(to ? 0 : kPiece);
    std::int64_t begin_of_file = 0;
    for (const std::string& file : files) {
        const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
        const std::int64_t end = std::min(range.end - begin_of_file, size);
        std::int64_t at = std::max<std::int64_t>(range.begin - begin_of_file, 0);
        begin_of_file += size;
        if (at >= end) continue;
        const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
        while (descriptor >= 0 && at < end) {
            const auto wanted = std::min<std::size_t>(kPiece, static_cast<std::size_t>(end - at));
            const ssize_t got = ::pread(descriptor, to ? static_cast<void*>(to) : piece.data(), wanted, at);
            if (got <= 0) break;
            at += got;
            if (to) to += got;
        }
        const int error = errno;
        if (descriptor >= 0) ::close(descriptor);
        if (at < end) throw model::BadFile(file + ": cannot be read: " + std::system_category().message(error));
    }
}

// Seconds of all threads reading this rank's share of the files, kept in new memory or dropped. Local.
double time_reading(const Subject& subject, dist::Slice share, bool keeps, model::ThreadTeam& team,
                    const dist::Clock& clock) {
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(team.size()));
    const double begin = clock.now_seconds();
    model::Buffer memory(keeps ? static_cast<std::size_t>(share.size()) : 0, model::Pages::huge);
    team.run([&](int thread) {
        const dist::Slice mine = dist::even_slice(share.size(), thread, team.size(), 4096);
        try {
            read_plainly(subject.files, {share.begin + mine.begin, share.begin + mine.end},
                         keeps ? memory.as<std::byte>() + mine.begin : nullptr);
        } catch (...) {
            failures[static_cast<std::size_t>(thread)] = std::current_exception();
        }
    });
    const double seconds = clock.now_seconds() - begin;
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
    return seconds;
}

LoadFigures measure(dist::Session& session, const Subject& subject, const LoadOptions& options, dist::Communicator& tp,
                    model::ThreadTeam& team) {
    const dist::SteadyClock clock;
    const double timeout = options.collective_timeout_seconds;
    const auto total = static_cast<std::int64_t>(subject.file_bytes);
    const dist::Slice share = dist::even_slice(total, session.world_rank(), session.world_size(), 4096);
    LoadFigures figures;
    figures.rank = session.world_rank();
    figures.stored_bytes = subject.stored_bytes;
    figures.read_bytes = static_cast<double>(share.size());
    figures.slice_bytes = static_cast<double>(subject.needs.weight_bytes);
    figures.largest_matrix_bytes = static_cast<double>(subject.needs.largest_matrix_bytes);
    std::vector<double> reading, dropping, loading;
    in_agreement(session, timeout, [&] { time_reading(subject, share, false, team, clock); }); // into the page cache
    for (int i = 0; i < options.repetitions; ++i) {
        in_agreement(session, timeout, [&] { dropping.push_back(time_reading(subject, share, false, team, clock)); });
        in_agreement(session, timeout, [&] { reading.push_back(time_reading(subject, share, true, team, clock)); });
        in_agreement(session, timeout, [&] {
            model::DecoderOptions decoder;
            decoder.weight_type = subject.type;
            decoder.capacity = 16; // takes memory only when it is used
            decoder.timeout_seconds = timeout;
            MemoryWatch watch;
            const double begin = clock.now_seconds();
            const model::Decoder loaded = model::Decoder::load(*subject.checkpoint, subject.config, decoder, tp, team);
            loading.push_back(clock.now_seconds() - begin);
            watch.stop();
            figures.before_bytes = std::max(figures.before_bytes, static_cast<double>(watch.before_bytes()));
            figures.grown_bytes =
                std::max(figures.grown_bytes, static_cast<double>(watch.peak_bytes() - watch.before_bytes()));
        });
    }
    figures.drop_seconds = *std::min_element(dropping.begin(), dropping.end());
    figures.read_seconds = *std::min_element(reading.begin(), reading.end());
    figures.load_seconds = *std::min_element(loading.begin(), loading.end());
    figures.median_load_seconds = quantiles_of(loading).median;
    return figures;
}

Json to_json(const LoadFigures& figures) {
    return {{"rank", static_cast<int>(figures.rank)},
            {"load_seconds", figures.load_seconds},
            {"median_load_seconds", figures.median_load_seconds},
            {"stored_bytes", figures.stored_bytes},
            {"load_bytes_per_second", figures.load_rate()},
            {"read_bytes_per_second", figures.read_rate()},
            {"share_of_read_rate", figures.share()},
            {"read_and_drop_bytes_per_second", figures.drop_rate()},
            {"slice_bytes", figures.slice_bytes},
            {"largest_matrix_bytes", figures.largest_matrix_bytes},
            {"memory_before_bytes", figures.before_bytes},
            {"memory_growth_bytes", figures.grown_bytes},
            {"memory_bound_bytes", figures.bound_bytes()},
            {"memory_share_of_bound", figures.grown_bytes / figures.bound_bytes()}};
}

Json to_json(const std::vector<LoadFigures>& ranks, const Json& machine, const Subject& subject, int repetitions) {
    Json json = {{"schema_version", 1},           {"environment", machine},
                 {"model", subject.directory},    {"dtype", to_string(subject.type)},
                 {"files", subject.files.size()}, {"file_bytes", subject.file_bytes},
                 {"repetitions", repetitions},    {"ranks", Json::array()}};
    for (const LoadFigures& rank : ranks)
        json["ranks"].push_back(to_json(rank));
    return json;
}

std::string to_text(const std::vector<LoadFigures>& ranks, const Json& machine, const Subject& subject) {
    const auto gb = [](double bytes) { return format_number(bytes / 1e9, 3); };
    const auto mb = [](double bytes) { return format_number(bytes / 1e6, 1); };
    const auto of = [](double share) { return format_number(share, 3); };
    std::string text = machine["cpu"].get<std::string>() + ", " + counted(machine["ranks"].get<int>(), "rank") +
                       " of " + counted(machine["threads_per_rank"].get<int>(), "thread") + "; weights in " +
                       to_string(subject.type) + "\n" + "loading of what a rank needs of " +
                       counted(static_cast<std::int64_t>(subject.files.size()), "file") + " (" +
                       gb(static_cast<double>(subject.file_bytes)) +
                       " GB), against reading as much of them into new memory, warm; the quickest of each\n\n";
    std::vector<std::vector<std::string>> table = {
        {"rank", "seconds", "median", "GB", "GB/s", "read GB/s", "share", "read and drop GB/s"}};
    for (const LoadFigures& rank : ranks)
        table.push_back({format_number(rank.rank, 0), of(rank.load_seconds), of(rank.median_load_seconds),
                         gb(rank.stored_bytes), of(rank.load_rate() / 1e9), of(rank.read_rate() / 1e9),
                         of(rank.share()), of(rank.drop_rate() / 1e9)});
    text += format_table(table) + "\nmemory of its own (RssAnon + RssShmem) over that before, at its peak\n\n";
    table = {{"rank", "before MB", "growth MB", "slice MB", "largest matrix MB", "growth / (slice + matrix)"}};
    for (const LoadFigures& rank : ranks)
        table.push_back({format_number(rank.rank, 0), mb(rank.before_bytes), mb(rank.grown_bytes), mb(rank.slice_bytes),
                         mb(rank.largest_matrix_bytes), of(rank.grown_bytes / rank.bound_bytes())});
    return text + format_table(table);
}

} // namespace

int run_bench_load(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, page_of("bench load"), load_options);
    if (!options) return kAllServed;
    const double timeout = options->collective_timeout_seconds;
    Subject subject;
    in_agreement(session, timeout,
                 [&] { subject = open_subject(*options, session.world_rank(), session.world_size()); });
    if (session.world_rank() == 0 && subject.was_untied) say(stored_head_warning("--model " + options->model));
    require_same(session, timeout, "the checkpoint", subject.directory + " " + std::to_string(subject.file_bytes));
    const auto tp = session.split(0);
    model::ThreadTeam team(options->threads > 0 ? options->threads : default_threads(session, timeout));
    check_launch(session, timeout, team.size(), options->json);
    const MachineWatch watch(session, timeout);
    const LoadFigures mine = measure(session, subject, *options, *tp, team);
    const MachineLoad load = watch.stop();
    std::vector<LoadFigures> ranks(static_cast<std::size_t>(session.world_size()));
    session.world().gather(&mine, ranks.data(), sizeof mine, 0, dist::Deadline::after_seconds(timeout));
    in_agreement(session, timeout, [&] {
        if (session.world_rank() != 0) return;
        std::sort(ranks.begin(), ranks.end(),
                  [](const LoadFigures& a, const LoadFigures& b) { return a.share() < b.share(); }); // worst first
        const Json environment = machine_of(session, team.size());
        if (!options->json) return print(session, to_text(ranks, environment, subject) + load.warning_line());
        Json json = to_json(ranks, environment, subject, options->repetitions);
        json["machine"] = to_json(load);
        print(session, indented(json));
        warn_of(load);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
