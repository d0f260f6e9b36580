// A library to be loaded before the program (LD_PRELOAD): the n-th call of one kind fails, once. For
// tests/faults/nth_failure.py only, which says what the variables are.
//
//   NTH_KIND   new, read, open, map, write, sync, rename (of build-table and others that replace files), mpi
//   NTH        which call fails, from 1; 0: none
//   NTH_RANK   the rank that it fails on, as the launcher numbers it
//   NTH_COUNT  a file that takes, at the end, how many calls of that kind the rank has made
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#define OMPI_SKIP_MPICXX 1 // the C++ bindings would have to be linked
#include <mpi.h>
#include <new>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

enum Kind { none, allocation, reading, opening, mapping, writing, syncing, renaming, messages };

struct Plan {
    Kind kind = none;
    long n = 0;
    const char* count_file = nullptr;
};

Plan plan_of_environment() {
    constexpr const char* kNames[] = {"", "new", "read", "open", "map", "write", "sync", "rename", "mpi"};
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    const char* wanted = std::getenv("NTH_RANK");
    const char* name = std::getenv("NTH_KIND");
    Plan plan;
    if (name == nullptr || (rank != nullptr && wanted != nullptr && std::strcmp(rank, wanted) != 0)) return plan;
    for (int kind = allocation; kind <= messages; ++kind)
        if (std::strcmp(name, kNames[kind]) == 0) plan.kind = static_cast<Kind>(kind);
    if (const char* n = std::getenv("NTH")) plan.n = std::atol(n);
    plan.count_file = std::getenv("NTH_COUNT");
    return plan;
}

// Only calls behind main's beginning count: before it the libraries and the constants set themselves up.
bool has_begun = false;
Plan plan;
std::atomic<long> calls{0};

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

int counted_main(int argc, char** argv, char** environment) {
    plan = plan_of_environment();
    has_begun = true;
    return program_main(argc, argv, environment);
}

void write_count() {
    if (plan.count_file == nullptr) return;
    const char* file = plan.count_file;
    plan.kind = none;
    if (std::FILE* out = std::fopen(file, "w")) {
        std::fprintf(out, "%ld\n", calls.load());
        std::fclose(out);
    }
}

// Whether this call of `kind` is the one that fails.
bool fails(Kind kind) {
    return has_begun && kind == plan.kind && ++calls == plan.n;
}

template <typename Function> Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

} // namespace

void* operator new(std::size_t bytes) {
    if (fails(allocation)) { // as the library's own: the handler first
        if (const std::new_handler handler = std::get_new_handler()) handler();
        throw std::bad_alloc();
    }
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack) {
    program_main = main;
    using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
    return next<Start>("__libc_start_main")(counted_main, argc, argv, init, fini, rtld_fini, stack);
}

// The program leaves by _exit, behind which no destructor runs.
[[noreturn]] void _exit(int code) {
    write_count();
    next<void (*)(int)>("_exit")(code);
    __builtin_unreachable();
}

ssize_t read(int file, void* to, size_t bytes) {
    if (file > 2 && fails(reading)) return errno = EIO, -1;
    return next<ssize_t (*)(int, void*, size_t)>("read")(file, to, bytes);
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
    if (fails(reading)) return errno = EIO, -1;
    return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, to, bytes, at);
}

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (std::strncmp(path, "/proc", 5) != 0 && std::strncmp(path, "/sys", 4) != 0 &&
        std::strncmp(path, "/dev", 4) != 0 && fails(opening))
        return errno = EMFILE, -1;
    return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t at) noexcept {
    if (fails(mapping)) return errno = ENOMEM, MAP_FAILED;
    return next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap")(address, bytes, protection, flags, file, at);
}

ssize_t write(int file, const void* from, size_t bytes) {
    // Messages on stderr must come through, or nobody could tell how it ended.
    if (file != 2 && fails(writing)) return errno = ENOSPC, -1;
    return next<ssize_t (*)(int, const void*, size_t)>("write")(file, from, bytes);
}

int fsync(int file) {
    if (fails(syncing)) return errno = EIO, -1;
    return next<int (*)(int)>("fsync")(file);
}

int rename(const char* from, const char* to) noexcept {
    if (fails(renaming)) return errno = EACCES, -1;
    return next<int (*)(const char*, const char*)>("rename")(from, to);
}

// The collectives and messages of dist; each has its twin PMPI_.
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Comm_split(comm, color, key, made);
}
int MPI_Allgather(const void* from, int n, MPI_Datatype type, void* to, int each, MPI_Datatype to_type, MPI_Comm comm) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Allgather(from, n, type, to, each, to_type, comm);
}
int MPI_Iallgather(const void* from, int n, MPI_Datatype type, void* to, int each, MPI_Datatype to_type, MPI_Comm comm,
                   MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Iallgather(from, n, type, to, each, to_type, comm, request);
}
int MPI_Ibcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Ibcast(data, n, type, root, comm, request);
}
int MPI_Igather(const void* from, int n, MPI_Datatype type, void* to, int each, MPI_Datatype to_type, int root,
                MPI_Comm comm, MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Igather(from, n, type, to, each, to_type, root, comm, request);
}
int MPI_Ialltoall(const void* from, int n, MPI_Datatype type, void* to, int each, MPI_Datatype to_type, MPI_Comm comm,
                  MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Ialltoall(from, n, type, to, each, to_type, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Ibarrier(comm, request);
}
int MPI_Isend(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Isend(from, n, type, to, tag, comm, request);
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Test(request, done, status);
}
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* window) {
    return fails(messages) ? MPI_ERR_OTHER : PMPI_Win_allocate_shared(bytes, unit, info, comm, base, window);
}

} // extern "C"
