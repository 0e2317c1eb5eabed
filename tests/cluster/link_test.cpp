// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Links, and the two sides of calls on them, within one process.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/calls/call_server.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/link/link.hpp>
#include <cohort/cluster/worker/way_to_manager.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/future.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/patience.hpp"
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
asio::awaitable<int> adds_later(int a, int b) {
  co_await asio::post(asio::use_awaitable);
  co_return a + b;
}
void nothing() {}
void fails() { throw std::out_of_range("no such shelf"); }
asio::awaitable<void> waits(cluster::call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}

/// Where a callee's frames lie: how much stack those below it take.
struct stack_marks {
  std::uintptr_t low = std::numeric_limits<std::uintptr_t>::max();
  std::uintptr_t high = 0;
  int calls = 0;
  [[nodiscard]] std::uintptr_t extent() const { return high - low; }
};
stack_marks marks;
void marks_its_stack() {
  // Not the address of a variable, which a sanitizer may put elsewhere.
  const auto at = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));  // NOLINT
  marks.low = std::min(marks.low, at);
  marks.high = std::max(marks.high, at);
  ++marks.calls;
}

asio::awaitable<void> marks_and_awaits() {
  marks_its_stack();
  co_return;
}

int told_that_it_is_over = 0;
void asks_whether_it_is_over(cluster::call_context& call) {
  if (call.cancelled()) ++told_that_it_is_over;
}
asio::awaitable<void> awaits_something(cluster::call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  try {
    co_await timer.async_wait(asio::use_awaitable);
  } catch (const std::system_error& stopped) {
    if (stopped.code() == asio::error::operation_aborted) ++told_that_it_is_over;
    throw;
  }
}

std::string order_of_callees;
void runs_in_order() { order_of_callees += '.'; }
asio::awaitable<void> awaits_in_order() {
  order_of_callees += 'a';
  co_return;
}

/// Calls the function inside a lap of the engine, as what MPI has received is.
void call_in_lap(asio::io_context& io, std::function<void()> function) {
  class once final : public cohort::progress::operation {
   public:
    explicit once(std::function<void()> what) : operation(&run), what_(std::move(what)) {}

   private:
    static void run(operation* base, action how) {
      const std::unique_ptr<once> self(static_cast<once*>(base));
      if (how == action::deliver) self->what_();
    }
    std::function<void()> what_;
  };
  cohort::use_engine(io).complete(new once(std::move(function)));
}

template <auto F>
message call_message(std::uint64_t id, std::uint32_t flags = 0, std::uint64_t order = 0) {
  cluster::call_tail tail;
  tail.function = static_cast<std::uint32_t>(cluster::remote<F>::index());
  tail.flags = flags;
  tail.order = order;
  message made;
  made.kind = message_kind::call;
  made.id = id;
  tail.append_to(made.bytes);
  return made;
}

/// A caller and a callee of this process, joined by two links.
class caller : public cluster::call_verbs<caller> {
 public:
  explicit caller(asio::io_context& io) : server(std::make_shared<cluster::call_server>(io)) {
    std::tie(near, far) = cluster::local_link::pair(io, std::size_t{1} << 20U);
    calls = std::make_shared<cluster::call_client>(
        io, std::size_t{1} << 20U,
        [near = near](int, const std::string&) { return cluster::callee_process{near, nullptr}; });
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

std::size_t length_seen = 0;
void length_there(const std::vector<std::byte>& bytes) { length_seen = bytes.size(); }

/// Waits for a call of which nothing is wanted any more.
struct given_up final : cluster::waiting_call {
  void complete(std::exception_ptr error, cluster::payload&&) override { failed = error; }
  std::exception_ptr failed;
};

std::unique_ptr<caller> owner;
void drops_the_owner() { owner.reset(); }

template <auto F>
cluster::call_request request_of() {
  cluster::call_request made;
  made.rank = 3;
  made.function = cluster::remote<F>::index();
  made.name = cluster::callee<F>::name();
  return made;
}

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

TEST_CASE("attachments arrive as they were, and are kept until they have been sent") {
  asio::io_context io;
  ends both(io);
  cluster::payload what(bytes_of(20));
  for (const std::size_t size : {std::size_t{100'000}, std::size_t{3'000'000}}) {
    what.attachments.push_back(
        cluster::attachment_of<std::vector<std::byte>>::sent(bytes_of(size)));
  }
  cluster::payload small = what;
  small.attachments.pop_back();
  const std::size_t count = 2 * cluster::interleaved_limit;
  for (std::uint64_t id = 1; id <= count; ++id) both.near->send(message_kind::call, id, what);
  io.run_one();  // the first ones are on their way, small ones go between them
  for (std::uint64_t id = 1; id <= count; ++id) both.near->send(message_kind::result, id, small);
  const std::weak_ptr<cluster::attachment> first = what.attachments[0];
  what = small = cluster::payload();
  CHECK_FALSE(first.expired());
  io.run();
  CHECK(first.expired());
  REQUIRE(both.at_far.size() == 2 * count);
  CHECK(both.at_far[0].kind == message_kind::result);
  for (const message& each : both.at_far) {
    CHECK(each.bytes == bytes_of(20));
    REQUIRE(each.attachments.size() == (each.kind == message_kind::call ? 2 : 1));
    CHECK(std::ranges::equal(each.attachments[0]->bytes(), bytes_of(100'000)));
    if (each.kind == message_kind::call) {
      CHECK(std::ranges::equal(each.attachments[1]->bytes(), bytes_of(3'000'000)));
    }
  }
}

TEST_CASE("a call that is given up while its arguments are sent keeps them until they have been") {
  asio::io_context io;
  caller self(io);
  std::weak_ptr<cluster::attachment> kept;
  {
    auto request = request_of<&length_there>();
    request.arguments = cluster::encode_arguments<&length_there>(bytes_of(900'000));
    kept = request.arguments.attachments.at(0);
    auto waits = std::make_shared<given_up>();
    self.calls->start(1, std::move(request), waits);
    self.calls->give_up(1, std::make_exception_ptr(std::runtime_error("enough")));
    CHECK(waits->failed);
  }
  CHECK(self.calls->pending() == 0);
  CHECK_FALSE(kept.expired());
  io.run();
  CHECK(kept.expired());
  CHECK(self.server->idle());
  CHECK(length_seen == 900'000);  // what was sent is whole
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

TEST_CASE("functions on a thread return, throw and are awaited") {
  asio::io_context io;
  caller self(io);
  const auto on_thread = self.with(cluster::call_options{}.on_thread(true));
  run(io, [&]() -> asio::awaitable<void> {
    const int five = co_await on_thread.call<&add>(3, 2, 3);
    CHECK(five == 5);
    const int six = co_await on_thread.call<&adds_later>(3, 2, 4);
    CHECK(six == 6);
    auto failing = caught<std::out_of_range>(on_thread.call<&fails>(3));
    const auto failed = co_await std::move(failing);
    CHECK(failed.has_value());
  }());
  CHECK(self.server->idle());
  self.server->end();
}

TEMPLATE_TEST_CASE_SIG(
    "calls that wait for one before them run one after the other, not inside each other", "",
    ((auto Function), Function), &marks_its_stack, &marks_and_awaits) {
  const bool in_lap = GENERATE(false, true);
  constexpr int count = 100'000;
  asio::io_context io;
  caller self(io);
  marks = stack_marks();
  const auto all = [&] {
    for (int i = count - 1; i >= 0; --i) {
      const auto order = static_cast<std::uint64_t>(i);
      self.server->called(self.far,
                          call_message<Function>(order + 1, cluster::call_tail::ordered, order));
    }
  };
  if (in_lap) {
    call_in_lap(io, all);
  } else {
    asio::post(io, all);
  }
  io.run();
  CHECK(marks.calls == count);
  CHECK(marks.extent() < 65536);
  CHECK(self.server->idle());
  CHECK(self.far->sent() == count);
}

TEST_CASE("callees that are given up, or whose caller is lost, before they begin learn of it") {
  const bool in_lap = GENERATE(false, true);
  asio::io_context io;
  caller self(io);
  told_that_it_is_over = 0;
  const auto all = [&] {
    self.server->called(self.far, call_message<&asks_whether_it_is_over>(1));
    self.server->called(self.far, call_message<&awaits_something>(2));
    self.server->cancel(self.far, 1);
    self.server->cancel(self.far, 2);
    CHECK_FALSE(self.server->idle());
    self.server->called(self.near, call_message<&asks_whether_it_is_over>(3));
    self.server->called(self.near, call_message<&awaits_something>(4));
    self.server->lose(self.near);
  };
  if (in_lap) {
    call_in_lap(io, all);
  } else {
    asio::post(io, all);
  }
  io.run();
  CHECK(told_that_it_is_over == 4);
  CHECK(self.server->idle());
  CHECK(self.far->sent() == 2);
  CHECK(self.near->sent() == 0);
}

TEST_CASE("calls begin in the order in which they come, and end outside what has brought them") {
  const bool in_lap = GENERATE(false, true);
  asio::io_context io;
  caller self(io);
  order_of_callees.clear();
  const auto all = [&] {
    self.server->called(self.far, call_message<&awaits_in_order>(1));
    self.server->called(self.far, call_message<&runs_in_order>(2));
    self.server->called(self.far, call_message<&awaits_in_order>(3));
    self.server->called(self.far, call_message<&runs_in_order>(4));
    CHECK(order_of_callees.empty());
    CHECK(self.far->sent() == 0);
  };
  if (in_lap) {
    call_in_lap(io, all);
  } else {
    asio::post(io, all);
  }
  io.run();
  CHECK(order_of_callees == "a.a.");
  CHECK(self.far->sent() == 4);
}

TEST_CASE("an ordered call that is given up before its turn does not run") {
  asio::io_context io;
  caller self(io);
  marks = stack_marks();
  constexpr auto ordered = cluster::call_tail::ordered;
  self.server->called(self.far, call_message<&marks_its_stack>(3, ordered, 2));
  self.server->called(self.far, call_message<&marks_its_stack>(2, ordered, 1));
  self.server->cancel(self.far, 2);
  self.server->called(self.far, call_message<&marks_its_stack>(1, ordered, 0));
  io.run();
  CHECK(marks.calls == 2);
  CHECK(self.server->idle());
  CHECK(self.far->sent() == 3);
}

TEST_CASE("a callee may drop all that has to do with its call") {
  const bool in_lap = GENERATE(false, true);
  asio::io_context io;
  owner = std::make_unique<caller>(io);
  const auto all = [&] { owner->server->called(owner->far, call_message<&drops_the_owner>(1)); };
  if (in_lap) {
    call_in_lap(io, all);
  } else {
    owner->calls->start(1, request_of<&drops_the_owner>(), nullptr);
  }
  io.run();
  CHECK_FALSE(owner);
}

TEST_CASE("a handler runs after what has set it off, on its executor") {
  const bool in_lap = GENERATE(false, true);
  asio::io_context io;
  asio::io_context elsewhere;
  caller self(io);
  std::vector<std::string> said;
  const auto complete = [&](std::uint64_t id) {
    message answer;
    answer.kind = message_kind::result;
    answer.id = id;
    static_cast<void>(self.calls->answered(3, std::move(answer)));
  };
  const auto all = [&] {
    self.call<&nothing>(3, [&](const std::exception_ptr& failed) {
      CHECK_FALSE(failed);
      CHECK(io.get_executor().running_in_this_thread());
      said.push_back("here");
    });
    self.call<&nothing>(3, asio::bind_executor(elsewhere, [&](const std::exception_ptr& failed) {
                          CHECK_FALSE(failed);
                          CHECK(elsewhere.get_executor().running_in_this_thread());
                          said.push_back("elsewhere");
                        }));
    complete(1);
    complete(2);
    said.push_back("set off");
  };
  if (in_lap) {
    call_in_lap(io, all);
  } else {
    asio::post(io, all);
  }
  io.run();
  CHECK(said == std::vector<std::string>{"set off", "here"});
  elsewhere.run();
  CHECK(said == std::vector<std::string>{"set off", "here", "elsewhere"});
}

TEST_CASE("handlers that are on their way when the loop is destroyed are destroyed with it") {
  const bool in_lap = GENERATE(false, true);
  const auto alive = std::make_shared<int>(0);
  {
    asio::io_context io;
    caller self(io);
    const auto all = [&] {
      self.call<&nothing>(3, [alive](const std::exception_ptr&) { FAIL("it is called"); });
      self.call<&nothing>(3, [alive](const std::exception_ptr&) { FAIL("it is called"); });
      self.server->called(self.far, call_message<&nothing>(1));
      message answer;
      answer.kind = message_kind::result;
      answer.id = 1;
      static_cast<void>(self.calls->answered(3, std::move(answer)));
      io.stop();
    };
    if (in_lap) {
      call_in_lap(io, [&] {
        all();
        throw std::runtime_error("the lap ends here");
      });
      CHECK_THROWS_AS(io.run(), std::runtime_error);
    } else {
      asio::post(io, all);
      io.run();
    }
    CHECK(alive.use_count() > 1);
    self.calls->drop();
  }
  CHECK(alive.use_count() == 1);
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
    const cluster::manager_watch none(both[0], 0ns, [&](bool) { called = true; });
    REQUIRE(::write(both[1], "x", 1) == 1);  // it is not for the watch
    CHECK_FALSE(called);
  }
  std::promise<void> lost;
  {
    const cluster::manager_watch watch(both[0], 0ns, [&](bool) { lost.set_value(); });
    ::close(both[1]);
    CHECK(lost.get_future().wait_for(cohort_test::patient(10s)) == std::future_status::ready);
  }
  ::close(both[0]);
}
