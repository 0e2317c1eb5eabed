// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Links, and the two sides of calls on them, within one process.

#include <cohort/cluster/call_client.hpp>
#include <cohort/cluster/call_server.hpp>
#include <cohort/cluster/call_verbs.hpp>
#include <cohort/cluster/link.hpp>
#include <cohort/cluster/local_link.hpp>
#include <cohort/cluster/watch.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/future.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/run.hpp"

using namespace std::chrono_literals;
using namespace cohort_test;
using cohort::errc;
namespace cluster = cohort::cluster;
using cluster::message;
using cluster::message_kind;

namespace {

/// Both ends, and what has come to each.
struct ends {
  explicit ends(asio::io_context& io) {
    std::tie(near, far) = cluster::local_link::pair(io, std::size_t{1} << 30U);
    near->start([this](message&& each) { at_near.push_back(std::move(each)); },
                [](std::error_code) {});
    far->start([this](message&& each) { at_far.push_back(std::move(each)); },
               [](std::error_code) {});
  }
  std::shared_ptr<cluster::local_link> near;
  std::shared_ptr<cluster::local_link> far;
  std::vector<message> at_near;
  std::vector<message> at_far;
};

std::vector<std::byte> bytes_of(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 257);
  return bytes;
}

int add(int a, int b) { return a + b; }
void fails() { throw std::out_of_range("no such shelf"); }
asio::awaitable<void> waits(cluster::call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}

/// A caller and a callee of this process, joined by two links.
class caller : public cluster::call_verbs<caller> {
 public:
  explicit caller(asio::io_context& io) : server(std::make_shared<cluster::call_server>(io)) {
    std::tie(near, far) = cluster::local_link::pair(io, std::size_t{1} << 20U);
    calls = std::make_shared<cluster::call_client>(io, std::size_t{1} << 20U,
                                                   [near = near](int, const std::string&) {
                                                     return cluster::callee_process{near, nullptr};
                                                   });
    near->start(
        [this](message&& each) { good = calls->answered(answering, std::move(each)) && good; },
        [](std::error_code) {});
    far->start(
        [this](message&& each) {
          if (each.kind == message_kind::cancel) return server->cancel(far, each.id);
          server->called(far, std::move(each));
        },
        [](std::error_code) {});
  }
  [[nodiscard]] std::shared_ptr<cluster::call_client> client() const { return calls; }

  std::shared_ptr<cluster::call_server> server;
  std::shared_ptr<cluster::call_client> calls;
  std::shared_ptr<cluster::local_link> near;
  std::shared_ptr<cluster::local_link> far;
  int answering = 3;  // the rank that answers are said to come from
  bool good = true;   // no answer has broken the protocol
};

}  // namespace

TEST_CASE("messages of a process to itself arrive whole, small ones before large ones") {
  asio::io_context io;
  ends both(io);
  const auto large = bytes_of(5'000'001);
  const auto small = bytes_of(1000);
  both.near->send(message_kind::result, 1, large);
  both.near->send(message_kind::result, 2, large);
  both.near->send(message_kind::result, 3, small);
  both.far->send(message_kind::failure, 4);
  io.run();
  REQUIRE(both.at_far.size() == 3);
  CHECK(both.at_far[0].id == 3);
  CHECK(both.at_far[0].bytes == small);
  CHECK(both.at_far[1].bytes == large);
  CHECK(both.at_far[2].bytes == large);
  CHECK(both.far->received() == both.near->sent());
  REQUIRE(both.at_near.size() == 1);
  CHECK(both.at_near[0].kind == message_kind::failure);
  CHECK(both.near->received() == 1);
}

TEST_CASE("cancellations of a call that is still on its way are one message, and counted once") {
  asio::io_context io;
  ends both(io);
  both.near->send(message_kind::call, 1, bytes_of(3'000'000));
  both.near->send(message_kind::call, 2, bytes_of(3'000'000));
  for (int i = 0; i < 3; ++i) both.near->send(message_kind::cancel, 2);
  io.run();
  REQUIRE(both.at_far.size() == 3);
  CHECK(both.at_far.back().kind == message_kind::cancel);
  CHECK(both.at_far.back().id == 2);
  CHECK(both.near->sent() == 3);
  CHECK(both.far->received() == 3);
}

TEST_CASE("a result of the same number does not take a call's cancellation") {
  asio::io_context io;
  ends both(io);
  both.near->send(message_kind::result, 7, bytes_of(3'000'000));
  both.near->send(message_kind::cancel, 7);  // of a call that was sent long ago
  io.run();
  REQUIRE(both.at_far.size() == 2);
  CHECK(both.at_far[0].kind == message_kind::cancel);
  CHECK(both.at_far[1].kind == message_kind::result);
}

TEST_CASE("what is sent last replaces what has not begun to be sent") {
  asio::io_context io;
  ends both(io);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    both.near->send(message_kind::result, id, bytes_of(3'000'000));
  }
  both.near->send_last(message_kind::refused, bytes_of(10));
  io.run();
  REQUIRE(both.at_far.size() == 1);
  CHECK(both.at_far[0].kind == message_kind::refused);
}

TEST_CASE("a client's calls are run by a server, and answered") {
  asio::io_context io;
  caller self(io);
  run(io, [&]() -> asio::awaitable<void> {
    const int five = co_await self.call<&add>(3, 2, 3);
    CHECK(five == 5);
    auto failing = caught<std::out_of_range>(self.call<&fails>(3));
    const auto failed = co_await std::move(failing);
    CHECK(failed.has_value());
    auto waiting = caught<cohort::deadline_error>(
        self.with(cluster::call_options{}.deadline(10ms)).call<&waits>(3));
    const auto late = co_await std::move(waiting);
    CHECK(late.has_value());
  }());
  CHECK(self.good);
  CHECK(self.calls->pending() == 0);
  CHECK(self.server->idle());  // the callee was cancelled
}

TEST_CASE("an answer of a rank that was not asked is not taken") {
  asio::io_context io;
  caller self(io);
  self.answering = 4;
  auto pending = self.call<&add>(3, 2, 3, cohort::as_future);
  while (self.good && io.run_one() != 0) {
  }
  CHECK_FALSE(self.good);
  CHECK(self.calls->pending() == 1);
  self.calls->lose(3, "rank 3", "it is over");
  auto failing = caught<cohort::peer_lost_error>(std::move(pending));
  const auto lost = run(io, std::move(failing));
  REQUIRE(lost.has_value());
  CHECK(lost->ranks() == std::vector<int>{3});
}

TEST_CASE("what a caller that is gone has called is cancelled, and nobody is answered") {
  asio::io_context io;
  caller self(io);
  auto pending = self.call<&waits>(3, cohort::as_future);
  io.poll();
  REQUIRE_FALSE(self.server->idle());
  const auto sent = self.far->sent();
  self.server->lose(self.far);
  self.calls->lose(3, "rank 3", "it is over");
  auto failing = caught<cohort::peer_lost_error>(std::move(pending));
  CHECK(run(io, std::move(failing)).has_value());
  CHECK(self.server->idle());
  CHECK(self.far->sent() == sent);
}

TEST_CASE("a client that has retired refuses calls") {
  asio::io_context io;
  caller self(io);
  self.calls->retire();
  auto failing = caught<cohort::error>(self.call<&add>(3, 2, 3));
  const auto failed = run(io, std::move(failing));
  REQUIRE(failed.has_value());
  CHECK(failed->code() == errc::manager_reused);
}

TEST_CASE("a watch notices the end of a connection, and only that") {
  int both[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
  {
    bool called = false;
    const cluster::manager_watch none(both[0], [&] { called = true; });
    REQUIRE(::write(both[1], "x", 1) == 1);  // it is not for the watch
    CHECK_FALSE(called);
  }
  std::promise<void> lost;
  {
    const cluster::manager_watch watch(both[0], [&] { lost.set_value(); });
    ::close(both[1]);
    CHECK(lost.get_future().wait_for(10s) == std::future_status::ready);
  }
  ::close(both[0]);
}
