// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What a named operation allocates once its name is known, and how it ends where that is refused.

#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

// allocations_test.cpp
long allocations_so_far();
void refuse_next_block_of(std::size_t bytes);
bool has_refused_block();

namespace {

constexpr int warm_up = 100;
constexpr int rounds = 200;

/// All names again and again, each round at once.
class load {
 public:
  load(cohort::coordinator coord, int names, std::size_t elements,
       const cohort::call_options& options)
      : coord_(std::move(coord)), options_(options), data_(static_cast<std::size_t>(names)) {
    for (int i = 0; i < names; ++i) {
      names_.push_back("a name that no short string holds " + std::to_string(i));
      data_[static_cast<std::size_t>(i)].resize(elements);
    }
  }

  asio::awaitable<double> measure() {
    const auto executor = co_await asio::this_coro::executor;
    long before = 0;
    for (int round = 0; round < warm_up + rounds; ++round) {
      // Another order on each rank.
      if (round == warm_up) before = allocations_so_far();
      left_ = names_.size();
      for (std::size_t k = 0; k < names_.size(); ++k) {
        const std::size_t i = (k + static_cast<std::size_t>(coord_.rank()) * 7) % names_.size();
        coord_.all_reduce(names_[i], data_[i], cohort::op::sum, options_,
                          [this](std::exception_ptr failed) {
                            if (failed) std::rethrow_exception(failed);
                            --left_;
                          });
      }
      while (left_ != 0) co_await asio::post(executor, asio::use_awaitable);
    }
    const auto operations = static_cast<double>(rounds) * static_cast<double>(names_.size());
    co_return static_cast<double>(allocations_so_far() - before) / operations;
  }

 private:
  cohort::coordinator coord_;
  cohort::call_options options_;
  std::vector<std::vector<float>> data_;
  std::vector<std::string> names_;
  std::size_t left_ = 0;
};

}  // namespace

TEST_CASE("a named operation allocates nothing in the steady state") {
  const int names = GENERATE(1, 16, 200);
  const double each =
      cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<double> {
        cohort::coordinator coord(world);
        load work(coord, names, 16, {});
        const double result = co_await work.measure();
        co_await coord.shutdown();
        co_return result;
      });
  CAPTURE(names);
  CHECK(each < 0.05);  // a pack larger than any before may need more room
}

// Packed, and in pieces: of several parts, each operation takes a note of who has which slot.
TEST_CASE("a compressed operation allocates no more than others in the steady state") {
  const bool pieces = GENERATE(false, true);
  const auto measure = [&](cohort::compression how) {
    return cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<double> {
      cohort::coordinator_options options;
      options.fusion_threshold = 4096;
      options.fusion_buffer = 16384;
      options.piece = 1 << 17;  // longer than buffers are
      cohort::coordinator coord(world, options);
      cohort::call_options compressed;
      compressed.compression = how;
      load work(coord, pieces ? 2 : 16, pieces ? 60'000 : 16, compressed);
      const double result = co_await work.measure();
      co_await coord.shutdown();
      co_return result;
    });
  };
  CAPTURE(pieces);
  CHECK(measure(cohort::compression::bf16) < measure(cohort::compression::none) + 0.05);
}

// The rank that has joined brings neutral elements, for which there is no memory. Nothing has been
// put into the pack by then, which is the first: no room of an earlier one hides that.
TEST_CASE("a rank without memory for neutral elements closes") {
  asio::io_context io;
  cohort::use_engine(io, {.drain = std::chrono::milliseconds(500)});
  // Shared memory needs no pack.
  cohort::communicator world(io, {.backend = cohort::backend_choice::mpi});
  if (world.size() < 2) return;
  const cohort::log::capture lines;
  const auto body = [&]() -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    std::string ended;
    try {
      if (world.rank() == 1) {
        refuse_next_block_of(200'000);
        co_await coord.join();
      } else {
        // Together they are a pack: MPI works on no memory of this rank's.
        std::vector<float> a(30'000);
        std::vector<float> b(30'000);
        co_await coord.grouped_all_reduce(cohort::bundle("it").add("a", a).add("b", b),
                                          cohort::op::sum);
      }
    } catch (const std::bad_alloc&) {
      ended = "no memory";
    } catch (const cohort::peer_lost_error& problem) {
      CHECK(problem.ranks() == std::vector<int>{1});
      ended = "lost";
    }
    CHECK(ended == (world.rank() == 1 ? "no memory" : "lost"));
    CHECK((world.rank() != 1 || has_refused_block()));
    co_await coord.shutdown();
  };
  asio::co_spawn(io, body(), cohort::rethrow);
  io.run();
}
