// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Handlers that have no executor, by the rules of Asio 1.37 (see CMakeLists.txt): where no loop can
// call them, a thread of Asio's pool does.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/coordinator/coordinator.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/rendezvous.hpp>

#include <exception>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/foreign_handler.hpp"
#include "support/world.hpp"

namespace {

using cohort::errc;
using cohort_test::foreign_handler;

/// Whether a verb that is given handlers of both kinds calls each with this code, elsewhere.
template <class Start>
void ends_elsewhere(errc expected, Start start) {
  const auto make = [](std::promise<std::error_code>& ended) {
    auto kept = std::make_shared<std::promise<std::error_code>>(std::move(ended));
    return [kept, here = std::this_thread::get_id()](auto why, auto&&...) {
      std::error_code code;
      if constexpr (std::same_as<decltype(why), std::error_code>) {
        code = why;
      } else {
        try {
          std::rethrow_exception(why);
        } catch (const std::system_error& problem) {
          code = problem.code();
        }
      }
      kept->set_value(std::this_thread::get_id() == here ? std::error_code() : code);
    };
  };
  std::promise<std::error_code> plain, foreign;
  auto plain_code = plain.get_future();
  auto foreign_code = foreign.get_future();
  start(make(plain));
  start(foreign_handler{make(foreign)});
  CHECK(plain_code.get() == expected);
  CHECK(foreign_code.get() == expected);
}

}  // namespace

TEST_CASE("verbs of empty handles call handlers that have no executor on Asio's pool") {
  int value = 0;
  ends_elsewhere(errc::invalid_communicator, [&](auto handler) {
    cohort::send(cohort::communicator(), value, 0, 0, std::move(handler));
  });
  ends_elsewhere(errc::invalid_communicator, [&](auto handler) {
    cohort::all_reduce(cohort::communicator(), value, cohort::op::sum, std::move(handler));
  });
  ends_elsewhere(errc::invalid_communicator,
                 [](auto handler) { cohort::coordinator().barrier("name", std::move(handler)); });
  ends_elsewhere(errc::invalid_argument, [](auto handler) {
    cohort::rendezvous_step().recv<int>(cohort::rendezvous_key(), std::move(handler));
  });
}

TEST_CASE("verbs call handlers that have no executor on the communicator's loop") {
  asio::io_context io;
  const cohort::communicator world(io);
  int value = 1;
  int other = 1;
  int called = 0;
  const auto count = [&](std::error_code failed) { called += failed ? 0 : 1; };
  cohort::all_reduce(world, value, cohort::op::sum, count);
  cohort::all_reduce(world, other, cohort::op::sum, foreign_handler{count});
  io.run();
  CHECK(called == 2);
  CHECK(value == world.size());
  CHECK(other == world.size());
}
