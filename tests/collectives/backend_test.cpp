// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A communicator's backend is asked first, sees what the verb was given, and may leave it to MPI.

#include <cohort/collectives.hpp>
#include <cohort/comm/backend.hpp>
#include <cohort/core/log.hpp>

#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort::op_kind;
using cohort::comm::collective_call;
using cohort_test::on_world;
namespace op = cohort::op;

/// Takes what it is told to take, fills the result with 7 and completes from another thread.
class recorder {
 public:
  struct record {
    std::vector<collective_call> seen;
    bool take = false;
    std::jthread worker;
  };
  explicit recorder(std::shared_ptr<record> to) : to_(std::move(to)) {}

  bool takes(const collective_call& call) noexcept {
    to_->seen.push_back(call);
    return to_->take;
  }
  void start(const collective_call& call, cohort::comm::backend_completion done) {
    if (call.out != nullptr && call.out != MPI_IN_PLACE && call.count != 0) {
      *static_cast<int*>(call.out) = 7;
    }
    to_->worker = std::jthread([done] { done(std::error_code()); });
  }

 private:
  std::shared_ptr<record> to_;
};

}  // namespace

TEST_CASE("a backend takes collectives, and sees blocks, roots and places") {
  on_world([](communicator world) -> task {
    auto record = std::make_shared<recorder::record>();
    world.set_backend(recorder(record));
    record->take = true;
    const auto ranks = static_cast<std::size_t>(world.size());
    std::vector<int> one(2, world.rank());
    std::vector<int> result(2);
    std::vector<int> many(2 * ranks, 1);
    std::vector<int> results(2 * ranks);

    co_await cohort::all_reduce(world, one, result, op::sum);
    CHECK(result[0] == 7);
    co_await cohort::reduce(world, one, result, op::sum, 0);
    co_await cohort::broadcast(world, one, 0);
    co_await cohort::all_gather(world, one, results);
    co_await cohort::gather(world, one, results, 0);
    co_await cohort::scatter(world, many, result, 0);
    co_await cohort::reduce_scatter(world, many, result, op::max);
    co_await cohort::all_to_all(world, many, results);
    co_await cohort::barrier(world);
    const std::vector<op_kind> expected{
        op_kind::all_reduce,     op_kind::reduce,     op_kind::broadcast,
        op_kind::all_gather,     op_kind::gather,     op_kind::scatter,
        op_kind::reduce_scatter, op_kind::all_to_all, op_kind::barrier};
    REQUIRE(record->seen.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const collective_call& call = record->seen[i];
      CHECK(call.kind == expected[i]);
      CHECK(call.count == (call.kind == op_kind::barrier ? 0 : 2));
      CHECK(call.root == 0);
    }
    CHECK(record->seen[3].out == results.data());
    CHECK(record->seen[4].out == (world.rank() == 0 ? results.data() : nullptr));
    CHECK(record->seen[5].in == (world.rank() == 0 ? many.data() : nullptr));

    record->seen.clear();
    co_await cohort::all_reduce(world, one, op::sum);
    co_await cohort::all_gather(world, many);
    co_await cohort::reduce_scatter(world, many, op::sum);
    for (const collective_call& call : record->seen) CHECK(call.in == MPI_IN_PLACE);

    // A backend sees elements side by side; afterwards they are where the caller wants them.
    std::vector<int> matrix(6, -1);
    co_await cohort::all_reduce(world, cohort::strided_view<int>(matrix.data(), 2, 1, 3), op::sum);
    CHECK(matrix == std::vector<int>{7, -1, -1, -1, -1, -1});
    world.reset_backend();
  });
}

TEST_CASE("what a backend does not take goes to MPI, strided views too") {
  on_world([](communicator world) -> task {
    auto record = std::make_shared<recorder::record>();
    world.set_backend(recorder(record));
    const auto ranks = static_cast<std::size_t>(world.size());
    std::vector<int> matrix(6, -1);
    matrix[0] = world.rank();
    matrix[3] = world.rank() + 1;
    const cohort::strided_view<int> column(matrix.data(), 2, 1, 3);
    std::vector<int> all(2 * ranks);
    co_await cohort::all_gather(world, column, all);
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(all[2 * std::size_t(rank)] == rank);
      CHECK(all[2 * std::size_t(rank) + 1] == rank + 1);
    }
    co_await cohort::scatter(world, all, column, world.size() - 1);
    CHECK(matrix == std::vector<int>{world.rank(), -1, -1, world.rank() + 1, -1, -1});
    co_await cohort::broadcast(world, column, 0);
    CHECK(matrix == std::vector<int>{0, -1, -1, 1, -1, -1});
    co_await cohort::all_reduce(world, column, op::sum);
    CHECK(matrix[3] == world.size());
    const std::vector<int> counts(ranks, 2);
    std::size_t asked = record->seen.size();
    CHECK(asked == 4);
    co_await cohort::all_gather_v(world, column, all, counts);  // not asked: counts may differ
    CHECK(record->seen.size() == asked);
    world.reset_backend();
  });
}

TEST_CASE("an operation of a backend keeps the communicator, and its failure is told there") {
  struct slow {
    bool takes(const collective_call&) noexcept { return true; }
    void start(const collective_call&, cohort::comm::backend_completion done) { *to = done; }
    std::shared_ptr<std::optional<cohort::comm::backend_completion>> to;
  };
  const cohort::log::capture log;
  asio::io_context io;
  auto completion = std::make_shared<std::optional<cohort::comm::backend_completion>>();
  const std::weak_ptr backend = completion;
  double number = 1;
  std::error_code error;
  const bool handle_stays = GENERATE(true, false);
  std::optional<communicator> comm(std::in_place, io, MPI_COMM_SELF);
  comm->set_backend(slow{std::move(completion)});
  cohort::all_reduce(*comm, number, op::sum, [&](std::error_code why) { error = why; });
  if (!handle_stays) comm.reset();
  REQUIRE_FALSE(backend.expired());
  (**backend.lock())(make_error_code(std::errc::io_error));
  io.run();
  CHECK(error == std::errc::io_error);
  CHECK(log.text().find("all_reduce #1: count=1") != std::string::npos);
  if (handle_stays) CHECK(comm->last_failure().code == std::errc::io_error);
  comm.reset();
  CHECK(backend.expired());
}
