// The program leaves by _exit, behind which nothing is written or looked for any more: builds that count lines write
// their counts first, builds that look for leaks look. Linked with --wrap=_exit into those builds alone.
#include <unistd.h>

extern "C" {
#ifdef ENTRODRAFT_COVERAGE
void __gcov_dump();
#else
void __lsan_do_leak_check();
#endif
[[noreturn]] void __real__exit(int code);

[[noreturn]] void __wrap__exit(int code) {
#ifdef ENTRODRAFT_COVERAGE
    __gcov_dump();
#else
    __lsan_do_leak_check(); // ends the process with a code of its own where there are any
#endif
    __real__exit(code);
}
}
