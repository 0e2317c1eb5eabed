// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What a named operation allocates once its name is known.

#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>

#include <cstddef>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

long allocations_so_far();  // allocations_test.cpp

namespace {

constexpr int warm_up = 100;
constexpr int rounds = 200;

/// All names again and again, each round at once.
class load {
 public:
  load(cohort::coordinator coord, int names)
      : coord_(std::move(coord)), data_(static_cast<std::size_t>(names)) {
    for (int i = 0; i < names; ++i) {
      names_.push_back("a name that no short string holds " + std::to_string(i));
      data_[static_cast<std::size_t>(i)].resize(16);
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
        coord_.all_reduce(names_[i], data_[i], cohort::op::sum, [this](std::exception_ptr failed) {
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
        load work(coord, names);
        const double result = co_await work.measure();
        co_await coord.shutdown();
        co_return result;
      });
  CAPTURE(names);
  CHECK(each < 0.05);  // a pack larger than any before may need more room
}
