// main of the multi-rank tests: one Session for all of them. All ranks run the same tests in the same order; only
// the first prints what passes, and all leave with one code.
#include "tests/dist/session_of_tests.h"

#include <gtest/gtest.h>

#include <exception>
#include <iostream>

namespace {
entrodraft::dist::Session* the_session = nullptr;
}

entrodraft::dist::Session& session_of_tests() {
    return *the_session;
}

int main(int argc, char** argv) {
    using namespace entrodraft::dist;
    Session session = Session::start();
    the_session = &session;
    testing::InitGoogleTest(&argc, argv);
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (session.world_rank() != 0) {
        delete listeners.Release(listeners.default_result_printer());
        class Failures final : public testing::EmptyTestEventListener {
            void OnTestPartResult(const testing::TestPartResult& part) override {
                if (part.failed()) std::cerr << part.file_name() << ":" << part.line_number() << ": " << part.message();
            }
        };
        listeners.Append(new Failures);
    }
    float failed = RUN_ALL_TESTS() == 0 ? 0.0F : 1.0F;
    try {
        session.world().all_reduce_sum(&failed, 1, Deadline::after_seconds(60));
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        session.abort(1);
    }
    session.leave(failed > 0 ? 1 : 0);
}
