// The program leaves by _exit, behind which nothing is written or looked for any more: builds that count lines write
// their counts first, builds that look for leaks look. Linked with --wrap=_exit into those builds alone.
//
// Where leaks are looked for, libraries that MPI has loaded stay loaded, so that what they keep has a name that
// leaks.supp knows.
#include <unistd.h>

extern "C" {
#ifdef ENTRODRAFT_COVERAGE
void __gcov_dump();
#else
void __lsan_do_leak_check();
#endif
[[noreturn]] void __real__exit(int code);

#ifndef ENTRODRAFT_COVERAGE
__attribute__((visibility("default"))) int dlclose(void*) {
    return 0;
}
#endif

[[noreturn]] void __wrap__exit(int code) {
#ifdef ENTRODRAFT_COVERAGE
    __gcov_dump();
#else
    __lsan_do_leak_check(); // ends the process with a code of its own where there are any
#endif
    __real__exit(code);
}
}
