// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Looking for messages: probe leaves them, matched_probe takes them, and nothing stays in MPI.

#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress.hpp>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "p2p/support.hpp"

namespace {

using namespace p2p_test;
using cohort::errc;
using cohort::send_mode;

/// A synchronous send says by completing that its message has not stayed anywhere.
auto send_synchronously(const communicator& world, const std::vector<int>& what, int tag) {
  return cohort::send<send_mode::synchronous>(world, what, right_of(world), tag, cohort::as_future);
}

}  // namespace

TEST_CASE("a probe waits for a message, describes it and leaves it") {
  on_world([](communicator world) -> task {
    auto looked = cohort::probe(world, left_of(world), 3, cohort::as_future);
    CHECK_FALSE(looked.is_ready());
    co_await meet(world);
    const std::vector<int> mine(static_cast<std::size_t>(world.rank()) + 1, world.rank());
    auto sent = cohort::send(world, mine, right_of(world), 3, cohort::as_future);
    const auto seen = co_await std::move(looked);
    CHECK(seen.source() == left_of(world));
    CHECK(seen.tag() == 3);
    CHECK(seen.count<int>() == static_cast<std::size_t>(left_of(world)) + 1);
    const auto again = co_await cohort::probe(world, cohort::any_source, cohort::any_tag);
    CHECK(again.source() == seen.source());
    std::vector<int> received(seen.count<int>());
    co_await cohort::recv(world, received, seen.source(), seen.tag());
    CHECK(received == std::vector<int>(received.size(), left_of(world)));
    co_await std::move(sent);
  });
}

TEST_CASE("a matched message belongs to who holds it") {
  on_world([](communicator world) -> task {
    const std::vector<int> first{1, 1};
    const std::vector<int> second{2};
    auto sent_first = cohort::send(world, first, right_of(world), 4, cohort::as_future);
    auto sent_second = cohort::send(world, second, right_of(world), 4, cohort::as_future);
    cohort::p2p::message message = co_await cohort::matched_probe(world, cohort::any_source, 4);
    CHECK(message);
    CHECK(message.source() == left_of(world));
    CHECK(message.count<int>() == 2);
    // Another receive gets the message after it.
    std::array<int, 4> other{};
    co_await cohort::recv(world, other, left_of(world), 4);
    CHECK(other[0] == 2);
    std::array<int, 4> buffer{-1, -1, -1, -1};
    const auto st = co_await cohort::recv(world, std::move(message), buffer);
    CHECK_FALSE(message);
    CHECK(st.count<int>() == 2);
    CHECK(st.tag() == 4);
    CHECK(buffer == std::array<int, 4>{1, 1, -1, -1});
    co_await std::move(sent_first);
    co_await std::move(sent_second);
  });
}

TEST_CASE("a matched message makes a container of its size") {
  on_world([](communicator world) -> task {
    const std::string text = "a text from rank " + std::to_string(world.rank());
    auto sent = cohort::send(world, text, right_of(world), 5, cohort::as_future);
    auto message = co_await cohort::matched_probe(world, left_of(world), 5);
    auto [got, st] = co_await cohort::recv<std::string>(world, std::move(message));
    CHECK(got == "a text from rank " + std::to_string(left_of(world)));
    CHECK(st.source() == left_of(world));
    co_await std::move(sent);
    auto again = cohort::send(world, text, right_of(world), 5, cohort::as_future);
    message = co_await cohort::matched_probe(world, left_of(world), 5);
    auto [st2, owned] = co_await cohort::recv(world, std::move(message), std::vector<char>(100));
    CHECK(st2.count<char>() == got.size());
    CHECK(owned.size() == 100);
    co_await std::move(again);
  });
}

TEST_CASE("a matched message that is too long is refused by its size, whatever the checks") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::vector<int> mine(20000, 1);
    auto sent = send_synchronously(world, mine, 6);
    auto message = co_await cohort::matched_probe(world, left_of(world), 6);
    std::array<int, 2> buffer{-1, -1};
    const auto code = co_await code_of(cohort::recv(world, std::move(message), buffer));
    CHECK(code == errc::message_too_long);
    CHECK(buffer[0] == -1);
    CHECK(logged.contains("message.bytes=80000"));
    co_await std::move(sent);
  });
}

TEST_CASE("a message is received once, and on its own communicator") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    int value = 0;
    cohort::p2p::message none;
    CHECK_FALSE(none);
    auto code = co_await code_of(cohort::recv(world, std::move(none), value));
    CHECK(code == errc::invalid_argument);
    auto other = co_await world.dup();
    const std::vector<int> mine(20000, 1);
    auto sent = send_synchronously(world, mine, 7);
    auto message = co_await cohort::matched_probe(world, left_of(world), 7);
    code = co_await code_of(cohort::recv<std::vector<int>>(other, std::move(message)));
    CHECK(code == errc::invalid_argument);
    co_await std::move(sent);  // what was refused has been thrown away
  });
}

TEST_CASE("a dropped message is thrown away, so that its sender completes") {
  for (const std::size_t count : {0U, 1U, 100000U}) {
    on_world([count](communicator world) -> task {
      const std::vector<int> mine(count, 1);
      {
        auto sent = send_synchronously(world, mine, 8);
        {
          const auto dropped = co_await cohort::matched_probe(world, left_of(world), 8);
          CHECK(dropped.count<int>() == count);
        }
        co_await std::move(sent);
      }
      auto sent = send_synchronously(world, mine, 8);
      auto message = co_await cohort::matched_probe(world, left_of(world), 8);
      message = cohort::p2p::message();  // assigned over
      co_await std::move(sent);
      sent = send_synchronously(world, mine, 8);
      message = co_await cohort::matched_probe(world, left_of(world), 8);
      std::array<int, 1> buffer{};
      {
        const auto never_awaited = cohort::recv(world, std::move(message), buffer);
      }
      message = cohort::p2p::message();
      co_await std::move(sent);
    });
  }
}

TEST_CASE("a message that dies with the context is thrown away in place") {
  std::vector<int> mine(100000, 1);
  MPI_Request sent = MPI_REQUEST_NULL;
  {
    std::optional<asio::io_context> io(std::in_place);
    const auto holder = [&]() -> task {
      communicator world(*io);
      {
        const cohort::mpi::lock calls;
        MPI_Issend(mine.data(), static_cast<int>(mine.size()), MPI_INT, right_of(world), 9,
                   world.native(), &sent);
      }
      const auto message = co_await cohort::matched_probe(world, left_of(world), 9);
      CHECK(message);
      io->stop();
      int never = 0;
      co_await cohort::recv(world, never, left_of(world), 10);
      FAIL("nobody sent that");
    };
    asio::co_spawn(*io, holder(), asio::detached);
    io->run();
    io.reset();
  }
  int done = 0;
  while (done == 0) MPI_Test(&sent, &done, MPI_STATUS_IGNORE);
}

TEST_CASE("probes end when they are cancelled, and leave what comes later alone") {
  on_world([](communicator world) -> task {
    auto code =
        co_await code_of(cohort::with_deadline(cohort::probe(world, cohort::any_source, 11), 3ms));
    CHECK(code == errc::deadline_exceeded);
    code = co_await code_of(
        cohort::with_deadline(cohort::matched_probe(world, cohort::any_source, 11), 3ms));
    CHECK(code == errc::deadline_exceeded);
    co_await meet(world);
    const int mine = world.rank();
    auto sent = cohort::send(world, mine, right_of(world), 11, cohort::as_future);
    int received = -1;
    co_await cohort::recv(world, received, left_of(world), 11);
    CHECK(received == left_of(world));
    co_await std::move(sent);
  });
}

TEST_CASE("many probes at once each find their own message") {
  on_world([](communicator world) -> task {
    constexpr int count = 50;
    std::vector<cohort::future<cohort::p2p::message>> found;
    for (int i = 0; i < count; ++i) {
      found.push_back(cohort::matched_probe(world, left_of(world), i, cohort::as_future));
    }
    std::vector<int> mine(count);
    std::vector<cohort::future<>> sent;
    for (int i = count - 1; i >= 0; --i) {
      auto& value = mine[static_cast<std::size_t>(i)];
      value = 10 * i;
      sent.push_back(cohort::send(world, value, right_of(world), i, cohort::as_future));
    }
    for (int i = 0; i < count; ++i) {
      auto message = co_await std::move(found[static_cast<std::size_t>(i)]);
      CHECK(message.tag() == i);
      int value = -1;
      co_await cohort::recv(world, std::move(message), value);
      CHECK(value == 10 * i);
    }
    co_await cohort::when_all(std::move(sent));
  });
}

TEST_CASE("a probe for nobody finds nothing at once") {
  on_world([](communicator world) -> task {
    const auto st = co_await cohort::probe(world, cohort::no_rank, 1);
    CHECK(st.source() == cohort::no_rank);
    auto message = co_await cohort::matched_probe(world, cohort::no_rank, 1);
    int value = 5;
    const auto st2 = co_await cohort::recv(world, std::move(message), value);
    CHECK(st2.source() == cohort::no_rank);
    CHECK(value == 5);
  });
}
