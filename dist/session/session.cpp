// Starts MPI, makes communicators and their shared memory, and leaves in order.
//
// Windows belong to the session, not to the communicators that use them. The reason: freeing a window is collective,
// and a destructor that runs while an exception unwinds on one rank must not wait for the others.
#include "dist/session/session.h"

#include "dist/comm/backoff.h"
#include "dist/comm/mpi_comm.h"
#include "dist/comm/node_comm.h"
#include "dist/rank/check.h"
#include "dist/rank/error.h"
#include "dist/rank/launch_environment.h"
#include "dist/rank/rank_board.h"
#include "dist/rank/watchdog.h"

#include <mpi.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace entrodraft::dist {
namespace {

constexpr double kLastBarrierSeconds = 5;
constexpr double kLeaveSeconds = 8; // barrier, windows and MPI_Finalize together

int size_of(MPI_Comm comm) {
    int size = 0;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    return size;
}

int rank_in(MPI_Comm comm) {
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return rank;
}

MPI_Comm split_comm(MPI_Comm parent, int color, int key) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(parent, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split");
    return comm;
}

// The ranks of `comm` that can share memory with this one. Collective over `comm`.
MPI_Comm split_by_host(MPI_Comm comm) {
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank_in(comm), MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    return node;
}

// Returns the world ranks of the members of `comm`, in rank order. Collective over `comm`.
std::vector<int> world_ranks_of(MPI_Comm comm, int world_rank) {
    std::vector<int> ranks(static_cast<std::size_t>(size_of(comm)));
    check_mpi(MPI_Allgather(&world_rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, comm), "MPI_Allgather");
    return ranks;
}

// Returns whether the ranks of `node` outnumber the cores that they may run on. Collective over `node`.
bool is_crowded(MPI_Comm node) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> sets(static_cast<std::size_t>(size_of(node)));
    check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, sets.data(), sizeof mine, MPI_BYTE, node), "MPI_Allgather");
    cpu_set_t together;
    CPU_ZERO(&together);
    for (const cpu_set_t& set : sets)
        CPU_OR(&together, &together, &set);
    return static_cast<int>(sets.size()) > CPU_COUNT(&together);
}

std::byte* align_up(void* address, std::size_t alignment) {
    std::size_t space = alignment;
    return static_cast<std::byte*>(std::align(alignment, 1, address, space));
}

// Open MPI puts shared memory into this directory if it is writable, else into its session directory.
constexpr const char* kSharedMemoryDirectory = "/dev/shm";

// Free bytes in that directory; UINT64_MAX where it is not used or has no limit.
std::uint64_t free_shared_memory() {
    struct statvfs about {};
    if (access(kSharedMemoryDirectory, W_OK) != 0 || statvfs(kSharedMemoryDirectory, &about) != 0 ||
        about.f_blocks == 0)
        return UINT64_MAX;
    return static_cast<std::uint64_t>(about.f_bavail) * about.f_frsize;
}

// The most that MPI_Win_allocate_shared takes for segments of this size: pages, its own state, and the space that it
// wants to stay free.
std::uint64_t window_bytes(std::size_t segment_bytes, int n_ranks) {
    constexpr std::uint64_t kPage = 4096, kOwnState = 65536;
    const std::uint64_t segment = (segment_bytes + NodeComm::kAlignment + 2 * kPage) / kPage * kPage;
    return (segment * static_cast<std::uint64_t>(n_ranks) + kOwnState) * 11 / 10;
}

// Makes a window with one zeroed segment per rank; each rank touches its own segment first. MPI maps the window at page
// boundaries, so aligning up gives all ranks the same place. Collective over `comm`, whose ranks share a host.
std::pair<MPI_Win, std::vector<std::byte*>> make_segments(MPI_Comm comm, std::size_t segment_bytes) {
    MPI_Info info = MPI_INFO_NULL;
    check_mpi(MPI_Info_create(&info), "MPI_Info_create");
    check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
    const auto bytes = static_cast<MPI_Aint>(segment_bytes + NodeComm::kAlignment);
    void* mine = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const int code = MPI_Win_allocate_shared(bytes, 1, info, comm, &mine, &window);
    const bool is_full = code != MPI_SUCCESS && free_shared_memory() < window_bytes(segment_bytes, size_of(comm));
    check_mpi(code, is_full ? "MPI_Win_allocate_shared (/dev/shm is too full: enlarge it)" : "MPI_Win_allocate_shared");
    MPI_Info_free(&info);
    check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
    std::memset(mine, 0, static_cast<std::size_t>(bytes));
    std::vector<std::byte*> segments(static_cast<std::size_t>(size_of(comm)));
    for (std::size_t rank = 0; rank < segments.size(); ++rank) {
        MPI_Aint their_bytes = 0;
        int unit = 0;
        void* theirs = nullptr;
        check_mpi(MPI_Win_shared_query(window, static_cast<int>(rank), &their_bytes, &unit, &theirs),
                  "MPI_Win_shared_query");
        segments[rank] = align_up(theirs, NodeComm::kAlignment);
    }
    check_mpi(MPI_Win_sync(window), "MPI_Win_sync");
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");
    return {window, std::move(segments)};
}

// Returns false when not all ranks came in time. Collective over the world.
bool last_barrier() {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
    Backoff backoff(Deadline::after_seconds(kLastBarrierSeconds), Backoff::kCrowdedSpins);
    for (;;) {
        int done = 0;
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (done != 0) return true;
        if (!backoff.step()) return false;
    }
}

void ignore_stop_signals() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGALRM})
        sigaction(signal, &ignore, nullptr);
}

void flush_streams() {
    std::cout.flush();
    std::clog.flush();
    std::fflush(nullptr);
}

// Returns the host of every rank of the world. Collective over the world.
std::vector<std::string> all_hosts(const std::string& mine, int world_size) {
    constexpr std::size_t kBytes = 64;
    std::string padded = mine.substr(0, kBytes - 1);
    padded.resize(kBytes, '\0');
    std::string all(kBytes * static_cast<std::size_t>(world_size), '\0');
    check_mpi(MPI_Allgather(padded.data(), kBytes, MPI_CHAR, all.data(), kBytes, MPI_CHAR, MPI_COMM_WORLD),
              "MPI_Allgather");
    std::vector<std::string> hosts;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_size); ++rank)
        hosts.emplace_back(all.data() + rank * kBytes);
    return hosts;
}

// Tells the board, then the observer.
class Watches final : public StepWatch {
  public:
    Watches(RankBoard& board, StepWatch* observer) : board_(board), observer_(observer) {}
    void enter(std::uint64_t round, const char* step) override {
        board_.enter(round, step);
        if (observer_) observer_->enter(round, step);
    }

  private:
    RankBoard& board_;
    StepWatch* observer_;
};

// Ends the process when the start takes too long: MPI's own calls have no deadline.
class StartDeadline {
  public:
    StartDeadline(const StartOptions& options, const std::string& place) {
        if (!options.on_stuck) return;
        thread_ = std::thread([this, options, place] {
            std::unique_lock lock(mutex_);
            if (told_.wait_for(lock, std::chrono::duration<double>(options.timeout_seconds), [this] { return ends_; }))
                return;
            options.on_stuck(place,
                             "the ranks have not found each other: one is dead or stopped, or the network between "
                             "their hosts does not work");
        });
    }
    ~StartDeadline() {
        if (!thread_.joinable()) return;
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        told_.notify_one();
        thread_.join();
    }
    StartDeadline(const StartDeadline&) = delete;
    StartDeadline& operator=(const StartDeadline&) = delete;

  private:
    std::mutex mutex_;
    std::condition_variable told_;
    bool ends_ = false;
    std::thread thread_;
};

// Ends the process when the orderly end takes too long.
void exit_after(double seconds, int exit_code) {
    std::thread([=] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        _exit(exit_code);
    }).detach();
}

} // namespace

struct Session::State {
    bool uses_mpi = false;
    int world_rank = 0;
    int world_size = 1;
    int node_local_rank = 0;
    int node_local_size = 1;
    bool crowded = false;
    double timeout_seconds = 0;
    std::string host_name;
    MPI_Comm host_comm = MPI_COMM_NULL; // the ranks of this host; lives as long as MPI
    std::optional<SharedMemoryShortage> shortage;
    std::vector<MPI_Win> windows;     // in order of creation, the same on all their ranks
    std::vector<std::byte> own_place; // for the board, where memory is not shared
    std::optional<RankBoard> board;
    std::optional<Watches> watches;
    std::optional<Watchdog> watchdog;
    std::function<void(const std::string& place, const std::string& reason)> on_stuck; // may be empty
    std::unique_ptr<Communicator> world;

    void start_mpi(const Environment& environment);
    void start_watching(const StartOptions& options);
    std::vector<RankBoard::Member> board_members();
    bool fits_shared_memory(MPI_Comm comm, std::size_t segment_bytes);
    std::unique_ptr<Communicator> make_group(int color, bool over_mpi);
};

void Session::State::start_mpi(const Environment& environment) {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); // communicators made from it inherit this
    uses_mpi = true;
    if (provided < MPI_THREAD_FUNNELED) {
        throw Error("this MPI does not allow threads beside it (MPI_THREAD_FUNNELED): use one built with threads");
    }
    world_rank = rank_in(MPI_COMM_WORLD);
    world_size = size_of(MPI_COMM_WORLD);
    if (const std::string why = why_not_alone(environment); world_size == 1 && !why.empty()) throw Error(why);
    if (const std::string why = why_unreachable(environment, network_interfaces()); !why.empty())
        throw Error("host " + host_name + ": " + why);
    host_comm = split_by_host(MPI_COMM_WORLD);
    node_local_rank = rank_in(host_comm);
    node_local_size = size_of(host_comm);
    crowded = is_crowded(host_comm);
}

// Returns whether all windows that the groups of this host are about to make fit together. `comm`: this rank's group,
// MPI_COMM_NULL where it makes none. Where MPI cannot make a window, it leaves the other ranks waiting in the call. So
// one rank looks for all, once all ranks have made and filled their earlier windows. Collective over the world.
bool Session::State::fits_shared_memory(MPI_Comm comm, std::size_t segment_bytes) {
    std::uint64_t wanted = 0;
    if (comm != MPI_COMM_NULL && rank_in(comm) == 0) wanted = window_bytes(segment_bytes, size_of(comm));
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_UINT64_T, MPI_SUM, host_comm), "MPI_Allreduce");
    std::uint64_t free_bytes = free_shared_memory();
    check_mpi(MPI_Bcast(&free_bytes, 1, MPI_UINT64_T, 0, host_comm), "MPI_Bcast");
    if (free_bytes >= wanted) return true;
    if (!shortage) shortage = {free_bytes, 0};
    shortage->wanted_bytes += wanted;
    return false;
}

// Makes a place for each rank of this host in memory that all of them map. Where that memory is short, makes one for
// this rank only. Collective over the world.
std::vector<RankBoard::Member> Session::State::board_members() {
    own_place.resize(2 * RankBoard::kPlaceBytes);
    std::byte* const own = align_up(own_place.data(), RankBoard::kPlaceBytes);
    if (!uses_mpi) return {{host_name, own}};
    std::vector<RankBoard::Member> members;
    for (std::string& host : all_hosts(host_name, world_size))
        members.push_back({std::move(host), nullptr});
    const std::vector<int> neighbours = world_ranks_of(host_comm, world_rank);
    if (!fits_shared_memory(host_comm, RankBoard::kPlaceBytes)) {
        members[world_rank].place = own;
        return members;
    }
    const auto [window, places] = make_segments(host_comm, RankBoard::kPlaceBytes);
    windows.push_back(window);
    for (std::size_t i = 0; i < neighbours.size(); ++i)
        members[neighbours[i]].place = places[i];
    return members;
}

void Session::State::start_watching(const StartOptions& options) {
    board.emplace(world_rank, board_members());
    watches.emplace(*board, options.observer);
    on_stuck = options.on_stuck;
    Watchdog::OnStuck tell;
    if (on_stuck) tell = [this](const std::string& reason) { on_stuck(board->position(), reason); };
    watchdog.emplace(*board, std::move(tell));
}

std::unique_ptr<Communicator> Session::State::make_group(int color, bool over_mpi) {
    if (!uses_mpi) return color < 0 ? nullptr : std::make_unique<SelfComm>();
    MPI_Comm comm = split_comm(MPI_COMM_WORLD, color, world_rank);
    const int size = comm == MPI_COMM_NULL ? 0 : size_of(comm);
    bool shares_memory = !over_mpi && size > 1; // the same on all ranks of the group
    if (shares_memory) {
        MPI_Comm node = split_by_host(comm);
        shares_memory = size_of(node) == size;
        MPI_Comm_free(&node);
    }
    const bool fits = fits_shared_memory(shares_memory ? comm : MPI_COMM_NULL, NodeComm::kSegmentBytes);
    if (size == 0) return nullptr;
    if (size == 1) {
        MPI_Comm_free(&comm);
        return std::make_unique<SelfComm>();
    }
    auto world_ranks = world_ranks_of(comm, world_rank);
    if (!shares_memory || !fits) return make_mpi_comm(&comm, std::move(world_ranks), &*board);
    auto [window, segments] = make_segments(comm, NodeComm::kSegmentBytes);
    windows.push_back(window);
    return std::make_unique<NodeComm>(NodeComm::Group{.rank = rank_in(comm),
                                                      .world_ranks = std::move(world_ranks),
                                                      .segments = std::move(segments),
                                                      .crowded = crowded,
                                                      .board = &*board});
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session Session::start(const StartOptions& options) {
    auto state = std::make_unique<State>();
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    state->host_name = host;
    state->timeout_seconds = options.timeout_seconds;
    const Environment environment = process_environment();
    const StartDeadline deadline(options, starting_place(environment));
    if (started_by_launcher(environment)) {
        if (!options.is_alone) state->start_mpi(environment);
    } else if (const std::string why = why_not_alone(environment); !why.empty()) {
        throw Error(why);
    }
    state->start_watching(options);
    state->world = state->make_group(0, false);
    state->watches->enter(kNoRound, "start");
    return Session(std::move(state));
}

int Session::world_rank() const {
    return state_->world_rank;
}
int Session::world_size() const {
    return state_->world_size;
}
int Session::node_local_rank() const {
    return state_->node_local_rank;
}
int Session::node_local_size() const {
    return state_->node_local_size;
}
const std::string& Session::host_name() const {
    return state_->host_name;
}
const std::optional<SharedMemoryShortage>& Session::shared_memory_shortage() const {
    return state_->shortage;
}
double Session::timeout_seconds() const {
    return state_->timeout_seconds;
}

void Session::set_timeout(double seconds) {
    state_->timeout_seconds = seconds;
}
Communicator& Session::world() {
    return *state_->world;
}
std::unique_ptr<Communicator> Session::split(int color) {
    return state_->make_group(color, false);
}
std::unique_ptr<Communicator> Session::split_over_mpi(int color) {
    return state_->make_group(color, true);
}

std::unique_ptr<Channel> Session::channel(const RankLayout& layout, const Clock& clock, double timeout_seconds) {
    if (layout.replicas == 1) return nullptr;
    MPI_Comm comm = split_comm(MPI_COMM_WORLD, layout.is_coordinator() ? 0 : -1, state_->world_rank);
    return comm == MPI_COMM_NULL ? nullptr : make_mpi_channel(&comm, layout, clock, timeout_seconds);
}

StepWatch& Session::watch() {
    return *state_->watches;
}
std::string Session::position() const {
    return state_->board->position();
}
bool Session::claim_failure(int exit_code) {
    return state_->board->claim_failure(exit_code);
}
const std::atomic<int>& Session::failure() const {
    return state_->board->failure();
}

Session::BoundedSteps::BoundedSteps(Session& session, double seconds) : session_(session) {
    session_.state_->watchdog->bound_steps(seconds);
}

Session::BoundedSteps::~BoundedSteps() {
    session_.state_->watchdog->bound_steps(0);
}

void Session::abort(int exit_code) {
    if (state_->uses_mpi) {
        exit_after(kLeaveSeconds, exit_code);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    _exit(exit_code);
}

void Session::leave(int exit_code) {
    ignore_stop_signals();
    flush_streams();
    if (state_->uses_mpi) {
        const int code_when_alone = exit_code == 0 ? 1 : exit_code;
        exit_after(kLeaveSeconds, code_when_alone);
        if (!last_barrier()) {
            if (exit_code == 0 && state_->on_stuck)
                state_->on_stuck(position(), "all is done, but the other ranks did not come to the end");
            _exit(code_when_alone);
        }
        state_->watchdog.reset(); // the memory that it uses is freed next
        for (MPI_Win& window : state_->windows) {
            MPI_Win_unlock_all(window);
            MPI_Win_free(&window);
        }
        MPI_Finalize();
    }
    flush_streams();
    _exit(exit_code);
}

} // namespace entrodraft::dist
