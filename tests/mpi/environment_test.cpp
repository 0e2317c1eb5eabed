// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The environment, thread levels, the lock, errors, and what happens at finalization.

#include <cohort/core/process.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace mpi = cohort::mpi;

namespace {

void nothing(void*) noexcept {}

}  // namespace

TEST_CASE("an environment inside another one adopts the MPI that is up") {
  {
    const cohort::environment inner;
    CHECK_FALSE(inner.owns_mpi());
    CHECK(inner.level() == mpi::level());
  }
  CHECK(mpi::running());
  CHECK(mpi::initialized());
  CHECK_FALSE(mpi::finalized());
}

TEST_CASE("recovering takes the mark of failure away") {
  cohort::environment inner;
  cohort::process::failed.store(true);
  inner.recovered();
  CHECK_FALSE(cohort::process::failed.load());
}

TEST_CASE("the level is what MPI says") {
  int provided = -1;
  MPI_Query_thread(&provided);
  CHECK((provided == MPI_THREAD_SINGLE) == (mpi::level() == mpi::thread_level::single));
  CHECK((provided == MPI_THREAD_SERIALIZED) == (mpi::level() == mpi::thread_level::serialized));
  CHECK((provided == MPI_THREAD_MULTIPLE) == (mpi::level() == mpi::thread_level::multiple));
}

TEST_CASE("the main thread is told from the others") {
  CHECK(mpi::is_main_thread());
  bool elsewhere = true;
  std::thread([&] { elsewhere = mpi::is_main_thread(); }).join();
  CHECK_FALSE(elsewhere);
  CHECK(mpi::is_allowed_thread());
}

TEST_CASE("the rank is known to the log") {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(cohort::process::rank.load() == rank);
}

TEST_CASE("the lock excludes other threads at the level that needs it") {
  const bool needed = mpi::level() == mpi::thread_level::serialized;
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        const mpi::lock calls;
        if (inside.fetch_add(1) != 0) overlapped = true;
        inside.fetch_sub(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (needed) {
    CHECK_FALSE(overlapped);
  }
}

TEST_CASE("one thread may take the lock twice, and only the outer one gives it back") {
  const bool needed = mpi::level() == mpi::thread_level::serialized;
  CHECK_FALSE(mpi::lock::held());
  {
    const mpi::lock outer;
    {
      const mpi::lock inner;
      CHECK(mpi::lock::held() == needed);
    }
    CHECK(mpi::lock::held() == needed);
  }
  CHECK_FALSE(mpi::lock::held());
  const mpi::lock none(false);
  CHECK_FALSE(mpi::lock::held());
}

TEST_CASE("codes of MPI have MPI's text, also while the lock is held") {
  const mpi::lock calls;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
  const std::error_code code = mpi::make_error(MPI_ERR_TRUNCATE);
  CHECK(code.message() == std::string(text, static_cast<std::size_t>(length)));
  CHECK(std::string(code.category().name()) == "mpi");
  CHECK(mpi::error_class(code) == MPI_ERR_TRUNCATE);
}

TEST_CASE("success is no error, and other categories have no class of MPI") {
  CHECK_FALSE(mpi::make_error(MPI_SUCCESS));
  CHECK(mpi::error_class({}) == MPI_SUCCESS);
  CHECK(mpi::error_class(cohort::errc::bad_root) == MPI_ERR_UNKNOWN);
  CHECK_NOTHROW(mpi::check(MPI_SUCCESS, "MPI_Call"));
}

TEST_CASE("a failed call throws with its name and its class") {
  const int result = MPI_Bcast(nullptr, 1, MPI_INT, 1 << 20, MPI_COMM_WORLD);
  REQUIRE(result != MPI_SUCCESS);
  try {
    mpi::check(result, "MPI_Bcast");
    FAIL("nothing was thrown");
  } catch (const std::system_error& problem) {
    CHECK_THAT(problem.what(), Catch::Matchers::StartsWith("MPI_Bcast: "));
    CHECK(mpi::error_class(problem.code()) == MPI_ERR_ROOT);
  }
}

TEST_CASE("a registration for the end can be taken back") {
  int context = 0;
  mpi::at_finalize(&nothing, &context);
  const auto registered = [&] {
    int found = 0;
    for (const auto& entry : mpi::detail::finalizers().entries) {
      found += entry.context == &context ? 1 : 0;
    }
    return found;
  };
  CHECK(registered() == 1);
  mpi::cancel_at_finalize(&nothing, &context);
  CHECK(registered() == 0);
  mpi::cancel_at_finalize(&nothing, &context);
}
