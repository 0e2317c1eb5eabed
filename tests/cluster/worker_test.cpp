// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A real worker whose manager the test plays itself: what it gets is what no manager sends.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/launch/child_process.hpp>
#include <cohort/cluster/launch/launching.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/progress/deadline.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/scripts.hpp"
#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;
using cluster::message;
using cluster::message_kind;
using bytes = std::vector<std::byte>;

namespace {

int half(int value) { return value / 2; }
std::uint64_t length_of(std::string_view text) { return text.size(); }
std::uint64_t sum_of(std::span<const std::uint32_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}
void speaks_at_exit() {
  std::atexit([] { std::printf("exits\n"); });
}
void computes() { std::this_thread::sleep_for(1s); }
void says_and_computes() {
  std::puts("here");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::minutes(5));
}
asio::awaitable<void> waits_long(cluster::call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}

/// As the manager would send it: one frame, or several.
bytes framed(message_kind kind, std::uint64_t id, std::span<const std::byte> body) {
  bytes all;
  do {
    const auto part = body.first(std::min(body.size(), cluster::frame_limit));
    body = body.subspan(part.size());
    const auto head = cluster::encode_frame_head(
        {static_cast<std::uint32_t>(part.size()), kind, body.empty(), id});
    all.insert(all.end(), head.begin(), head.end());
    all.insert(all.end(), part.begin(), part.end());
  } while (!body.empty());
  return all;
}

bytes call_of(std::uint32_t function, bytes arguments) {
  cluster::call_tail tail;
  tail.function = function;
  tail.append_to(arguments);
  return arguments;
}
template <auto F>
bytes call_of(bytes arguments) {
  return call_of(static_cast<std::uint32_t>(cluster::remote<F>::index()), std::move(arguments));
}

/// The manager of one worker, up to where calls can be made.
class played_manager {
 public:
  explicit played_manager(asio::io_context& io)
      : io_(io),
        door_(io, {asio::ip::address_v4::loopback(), 0}),
        out(io),
        err(io),
        life(io),
        control_(io) {}

  /// What becomes of the worker's connection for heartbeats.
  enum class life_line { unwanted, accepted, refused, unanswered };

  asio::awaitable<void> meet(cluster::welcome said = {}, life_line how = life_line::unwanted) {
    auto greeting = greet(cohort::wire::encode(said));
    co_await std::move(greeting);
    if (how == life_line::accepted) {
      auto accepting = accept(life, cluster::purpose::heartbeat);
      co_await std::move(accepting);
    }
    // Who is refused tries every address four times.
    for (int i = 0; how == life_line::refused && i < 4; ++i) {
      auto refusing =
          accept(life, cluster::purpose::heartbeat, cluster::handshake_result::not_expected);
      co_await std::move(refusing);
    }
    if (how == life_line::refused && said.heartbeat_patience == 0) co_return;
    if (how == life_line::unanswered) life = co_await door_.async_accept(asio::use_awaitable);
    auto second = accept(out, cluster::purpose::standard_output);
    co_await std::move(second);
    auto third = accept(err, cluster::purpose::standard_error);
    co_await std::move(third);
    auto begun = next(message_kind::started);
    co_await std::move(begun);
    auto ready = send(message_kind::ready, 0);
    co_await std::move(ready);
  }
  /// Up to the answer to who it is.
  asio::awaitable<void> greet(bytes answer) {
    auto options = quiet(1).environment(cluster::token_variable, cluster::to_text(token_));
    options.environment(cluster::manager_variable,
                        wrong_addresses + cluster::to_text(door_.local_endpoint()));
    options.program(program);
    auto preparing = cluster::prepare_launch(options);
    const cluster::launch_command command = co_await std::move(preparing);
    process.emplace(io_.get_executor(), command);
    auto first = accept(control_, cluster::purpose::control);
    co_await std::move(first);
    auto identity = next(message_kind::identity);
    co_await std::move(identity);
    auto welcome = send(message_kind::welcome, 0, std::move(answer));
    co_await std::move(welcome);
  }

  asio::awaitable<void> send_raw(bytes stream) {
    co_await asio::async_write(control_, asio::buffer(stream), asio::use_awaitable);
  }
  asio::awaitable<void> send(message_kind kind, std::uint64_t id, bytes body = {}) {
    ++sent_;
    return send_raw(framed(kind, id, body));
  }
  /// The next message, which must be of that kind.
  asio::awaitable<message> next(message_kind kind) {
    bytes buffer(std::size_t{64} << 10U);
    while (got_.empty()) {
      const std::size_t size =
          co_await control_.async_read_some(asio::buffer(buffer), asio::use_awaitable);
      const bool fine = reader_.feed(std::span(buffer).first(size), [&](message&& each) {
        got_.push_back(std::move(each));
        return true;
      });
      if (!fine) throw std::runtime_error("no frame");
    }
    message first = std::move(got_.front());
    got_.pop_front();
    if (first.kind != kind) throw std::runtime_error("a message of another kind");
    ++received_;
    co_return first;
  }
  /// The error that such a call ends with.
  asio::awaitable<std::error_code> failure_of(bytes call) {
    const std::uint64_t id = ++last_id_;
    auto sending = send(message_kind::call, id, std::move(call));
    co_await std::move(sending);
    auto failing = failure(id);
    co_return co_await std::move(failing);
  }
  asio::awaitable<std::error_code> failure(std::uint64_t id) {
    auto answering = next(message_kind::failure);
    const message answer = co_await std::move(answering);
    CHECK(answer.id == id);
    cohort::wire::reader in(answer.bytes);
    try {
      std::rethrow_exception(cluster::decode_exception(in));
    } catch (const std::system_error& failed) {
      INFO(failed.what());
      CHECK(in.ok());
      co_return failed.code();
    }
  }
  /// Tells the worker that no more comes. `apart`: MPI stays as it is.
  asio::awaitable<void> send_finish(bool apart) {
    bytes count;
    cohort::wire::writer out_of(count);
    out_of.varint(sent_);
    out_of.put(apart);
    return send(message_kind::finish, 0, std::move(count));
  }
  void hang_up() { control_.close(); }
  /// What the worker still prints as errors.
  asio::awaitable<std::string> last_words() {
    std::string said;
    std::error_code end;
    co_await asio::async_read(err, asio::dynamic_buffer(said),
                              asio::redirect_error(asio::use_awaitable, end));
    co_return said;
  }
  /// Tells the worker that no more comes; it must have counted as we have, and end well.
  asio::awaitable<void> finish() {
    auto finishing = send_finish(false);
    co_await std::move(finishing);
    auto answering = next(message_kind::finished);
    const message answer = co_await std::move(answering);
    cohort::wire::reader in(answer.bytes);
    const bool complete = in.get<bool>();
    const std::uint64_t count_there = in.varint();
    CHECK(complete);
    CHECK(count_there == received_ - 1);
    const auto status = co_await process->wait();
    CHECK(status.success());
  }

 private:
  asio::io_context& io_;
  asio::ip::tcp::acceptor door_;
  cluster::launch_token token_ = cohort::random_bytes<16>();

 public:
  std::string wrong_addresses;  // each with a comma, before the right one
  std::string program;          // that runs this one; empty: this one
  std::optional<cluster::child_process> process;
  asio::ip::tcp::socket out;
  asio::ip::tcp::socket err;
  asio::ip::tcp::socket life;

 private:
  asio::awaitable<void> accept(
      asio::ip::tcp::socket& to, cluster::purpose expected,
      cluster::handshake_result result = cluster::handshake_result::accepted) {
    to = co_await door_.async_accept(asio::use_awaitable);
    cluster::accepting_side side;
    cluster::greeting_bytes hello{};
    co_await asio::async_read(to, asio::buffer(hello), asio::use_awaitable);
    CHECK(side.understands(hello));
    CHECK(side.hello().purpose == expected);
    const cluster::reply_bytes reply = side.reply(token_);
    co_await asio::async_write(to, asio::buffer(reply), asio::use_awaitable);
    cluster::proof_bytes proof{};
    co_await asio::async_read(to, asio::buffer(proof), asio::use_awaitable);
    CHECK(side.trusts(token_, proof));
    const std::array<std::byte, 1> last{static_cast<std::byte>(result)};
    co_await asio::async_write(to, asio::buffer(last), asio::use_awaitable);
  }

  asio::ip::tcp::socket control_;
  cluster::frame_reader reader_{std::size_t{1} << 30U};
  std::deque<message> got_;
  std::uint64_t last_id_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

/// A worker that has begun, what is done with it, and its end.
using with_worker_body = std::function<asio::awaitable<void>(played_manager&)>;
void with_worker(const with_worker_body& body) {
  asio::io_context io;
  played_manager here(io);
  auto work = [&]() -> asio::awaitable<void> {
    auto meeting = here.meet();
    co_await std::move(meeting);
    auto working = body(here);
    co_await std::move(working);
    auto finishing = here.finish();
    co_await std::move(finishing);
  };
  run(io, work());
}

}  // namespace

TEST_CASE("calls that make no sense are answered with an error", "[cluster][worker]") {
  with_worker([](played_manager& here) -> asio::awaitable<void> {
    const auto functions = static_cast<std::uint32_t>(cohort::function_table::instance().size());
    for (const std::uint32_t unknown : {functions, functions + 1, 0xffffffffU}) {
      auto failing = here.failure_of(call_of(unknown, cluster::encode_arguments<&half>(1).bytes));
      const std::error_code code = co_await std::move(failing);
      CHECK(code == errc::unknown_function);
    }
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, cluster::call_tail::size - 1}) {
      auto failing = here.failure_of(bytes(size));
      const std::error_code code = co_await std::move(failing);
      CHECK(code == errc::unknown_function);
    }
    // Each beginning of good arguments but the whole.
    const bytes whole = cluster::encode_arguments<&length_of>("what was said").bytes;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto part = std::span(whole).first(size);
      auto failing = here.failure_of(call_of<&length_of>(bytes(part.begin(), part.end())));
      const std::error_code code = co_await std::move(failing);
      using cohort::wire_errc;
      CHECK(code == (size == 0 ? wire_errc::truncated : wire_errc::too_long));
    }
    // More elements announced than there are bytes.
    bytes greedy;
    cohort::wire::writer(greedy).varint(~std::uint64_t{0});
    auto failing = here.failure_of(call_of<&sum_of>(std::move(greedy)));
    const std::error_code too_many = co_await std::move(failing);
    CHECK(too_many == cohort::wire_errc::too_long);
    // One byte more than the arguments, and many.
    for (const std::size_t more : {std::size_t{1}, std::size_t{5} << 20U}) {
      bytes longer = cluster::encode_arguments<&half>(8).bytes;
      longer.resize(longer.size() + more);
      auto answering = here.failure_of(call_of<&half>(std::move(longer)));
      const std::error_code code = co_await std::move(answering);
      CHECK(code == cohort::wire_errc::trailing);
    }
  });
}

TEST_CASE("numbers of calls that make no sense harm no other call", "[cluster][worker]") {
  with_worker([](played_manager& here) -> asio::awaitable<void> {
    constexpr std::uint64_t id = 700;
    for (int i = 0; i < 2; ++i) {  // the same number twice
      auto calling = here.send(message_kind::call, id, call_of<&waits_long>({}));
      co_await std::move(calling);
    }
    auto failing = here.failure(id);
    const std::error_code twice = co_await std::move(failing);
    CHECK(twice == errc::invalid_argument);
    // Nobody's call, and what only a manager gets.
    for (const auto kind : {message_kind::cancel, message_kind::result, message_kind::failure,
                            message_kind::started, message_kind::identity}) {
      auto sending = here.send(kind, 701, bytes(10));
      co_await std::move(sending);
    }
    auto calling = here.send(message_kind::call, 702,
                             call_of<&half>(cluster::encode_arguments<&half>(10).bytes));
    co_await std::move(calling);
    auto answering = here.next(message_kind::result);
    const message answer = co_await std::move(answering);
    CHECK(answer.id == 702);
    CHECK(cluster::decode_result<int>(answer.bytes) == 5);
    auto cancelling = here.send(message_kind::cancel, id);
    co_await std::move(cancelling);
    auto ending = here.failure(id);
    const std::error_code ended = co_await std::move(ending);
    CHECK(ended == asio::error::operation_aborted);
  });
}

TEST_CASE("a worker whose manager sends no frames says so and leaves", "[cluster][worker]") {
  const auto head = [](std::uint32_t size, int kind, bool last) {
    const auto all = cluster::encode_frame_head({size, static_cast<message_kind>(kind), last, 1});
    return bytes(all.begin(), all.end());
  };
  bytes endless;  // messages that are begun and not ended
  for (std::uint64_t id = 0; id <= cluster::interleaved_limit; ++id) {
    const auto one = cluster::encode_frame_head({1, message_kind::call, false, id});
    endless.insert(endless.end(), one.begin(), one.end());
    endless.push_back(std::byte{0});
  }
  const auto call = static_cast<int>(message_kind::call);
  const std::vector<bytes> streams{head(cluster::frame_limit + 1, call, true), head(0, 99, true),
                                   endless};
  for (std::size_t which = 0; which < streams.size(); ++which) {
    INFO(which);
    asio::io_context io;
    played_manager here(io);
    auto work = [&]() -> asio::awaitable<void> {
      auto meeting = here.meet();
      co_await std::move(meeting);
      auto sending = here.send_raw(streams[which]);
      co_await std::move(sending);
      auto speaking = here.last_words();
      const std::string said = co_await std::move(speaking);
      CHECK(has(said, "the manager is gone, so this process leaves"));
      const auto status = co_await here.process->wait();
      CHECK(status.text() == "exited with status 1");
    };
    run(io, work());
  }
}

TEST_CASE("a worker that has said its last word does not mind that the manager is gone",
          "[cluster][worker]") {
  const auto how =
      GENERATE(played_manager::life_line::unwanted, played_manager::life_line::accepted);
  asio::io_context io;
  played_manager here(io);
  auto work = [&]() -> asio::awaitable<void> {
    cluster::welcome said;
    if (how == played_manager::life_line::accepted) {
      said.heartbeat = std::chrono::nanoseconds(10ms).count();
    }
    auto meeting = here.meet(said, how);
    co_await std::move(meeting);
    auto calling = here.send(message_kind::call, 1, call_of<&speaks_at_exit>({}));
    co_await std::move(calling);
    auto answering = here.next(message_kind::result);
    co_await std::move(answering);
    auto finishing = here.send_finish(true);
    co_await std::move(finishing);
    auto last = here.next(message_kind::finished);
    co_await std::move(last);
    here.hang_up();
    here.life.close();
    std::string said_last;
    std::error_code end;
    co_await asio::async_read(here.out, asio::dynamic_buffer(said_last),
                              asio::redirect_error(asio::use_awaitable, end));
    auto speaking = here.last_words();
    const std::string complaints = co_await std::move(speaking);
    CHECK(said_last == "exits\n");  // from main, not by _exit
    CHECK_FALSE(has(complaints, "the manager is gone"));
    co_await here.process->wait();
  };
  run(io, work());
}

namespace {

/// A worker that is asked for a sign of life every 10 ms, and goes without if it must not show any.
void with_pulse(played_manager::life_line how, bool must, const with_worker_body& body) {
  asio::io_context io;
  played_manager here(io);
  auto work = [&]() -> asio::awaitable<void> {
    cluster::welcome said;
    said.heartbeat = std::chrono::nanoseconds(10ms).count();
    if (!must) said.heartbeat_patience = std::chrono::nanoseconds(2s).count();
    auto meeting = here.meet(said, how);
    co_await std::move(meeting);
    auto working = body(here);
    co_await std::move(working);
  };
  run(io, work());
}

}  // namespace

TEST_CASE("a worker shows its life while it computes, and says when it leaves",
          "[cluster][worker]") {
  const auto how = played_manager::life_line::accepted;
  with_pulse(how, true, [](played_manager& here) -> asio::awaitable<void> {
    std::string signs(here.life.available(), 'x');  // until now
    co_await asio::async_read(here.life, asio::buffer(signs), asio::use_awaitable);
    auto calling = here.send(message_kind::call, 1, call_of<&computes>({}));
    co_await std::move(calling);
    auto answering = here.next(message_kind::result);
    co_await std::move(answering);
    signs.assign(here.life.available(), 'x');  // in the second that its loop has stood
    co_await asio::async_read(here.life, asio::buffer(signs), asio::use_awaitable);
    CHECK(signs.size() >= 33);
    CHECK(signs == std::string(signs.size(), '\0'));
    auto finishing = here.finish();
    co_await std::move(finishing);
    std::error_code end;
    signs.clear();
    co_await asio::async_read(here.life, asio::dynamic_buffer(signs),
                              asio::redirect_error(asio::use_awaitable, end));
    CHECK(end == asio::error::eof);
    REQUIRE_FALSE(signs.empty());
    CHECK(signs.find('\1') == signs.size() - 1);
  });
}

TEST_CASE("a worker whose connection for heartbeats is closed leaves", "[cluster][worker]") {
  const auto how = played_manager::life_line::accepted;
  const bool announced = GENERATE(false, true);
  CAPTURE(announced);
  with_pulse(how, true, [announced](played_manager& here) -> asio::awaitable<void> {
    const auto leaves = cluster::life_sign::leaves;
    if (announced) asio::write(here.life, asio::buffer(&leaves, sizeof leaves));
    here.life.close();
    auto speaking = here.last_words();
    const std::string said = co_await std::move(speaking);
    CHECK(has(said, announced ? ": the manager has let this worker go, so this process leaves"
                              : ": the manager is gone, so this process leaves"));
    const auto status = co_await here.process->wait();
    CHECK(status.text() == "exited with status 1");
  });
}

TEST_CASE("a worker that is let go says why, and once", "[cluster][worker]") {
  const bool idle = GENERATE(true, false);
  CAPTURE(idle);
  asio::io_context io;
  played_manager here(io);
  auto work = [&]() -> asio::awaitable<void> {
    auto meeting = here.meet();
    co_await std::move(meeting);
    if (idle) {
      bytes text;
      cohort::wire::writer(text).text("it is too slow");
      auto refusing = here.send(message_kind::refused, 0, std::move(text));
      co_await std::move(refusing);
    } else {
      auto calling = here.send(message_kind::call, 1, call_of<&says_and_computes>({}));
      co_await std::move(calling);
      std::array<char, 1> begun{};
      co_await asio::async_read(here.out, asio::buffer(begun), asio::use_awaitable);
      here.hang_up();
    }
    auto speaking = here.last_words();
    const std::string said = co_await std::move(speaking);
    INFO(said);
    CHECK(has(said, idle ? ": the manager has let this worker go: it is too slow, so this"
                         : ": the manager is gone, or has let this worker go, so this"));
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    const auto status = co_await here.process->wait();
    CHECK(status.text() == "exited with status 1");
  };
  run(io, work());
}

TEST_CASE("a worker leaves though nobody reads its last words", "[cluster][worker]") {
  const folder files;
  const std::string err = files.path("err");
  REQUIRE(::mkfifo(err.c_str(), 0600) == 0);
  const int full = ::open(err.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(full >= 0);
  const std::string page(4096, 'x');
  while (::write(full, page.data(), page.size()) > 0) {
  }
  asio::io_context io;
  played_manager here(io);
  here.program = files.script(
      "worker", "exec " + std::filesystem::read_symlink("/proc/self/exe").string() + " 2> " + err);
  auto work = [&]() -> asio::awaitable<void> {
    auto greeting = here.greet(cohort::wire::encode(cluster::welcome()));
    co_await std::move(greeting);
    here.hang_up();  // while it waits for the connections that take its output
    bool has_left = false;
    try {
      auto waiting = cohort::with_deadline(here.process->wait(), patient(20s));
      const auto status = co_await std::move(waiting);
      has_left = !status.success();
    } catch (const cohort::deadline_error&) {
    }
    CHECK(has_left);
    ::close(full);  // which ends one that waits for room
  };
  run(io, work());
}

TEST_CASE("a worker that cannot connect for heartbeats goes without, or not at all",
          "[cluster][worker]") {
  const auto how =
      GENERATE(played_manager::life_line::refused, played_manager::life_line::unanswered);
  const bool must = how == played_manager::life_line::refused && GENERATE(false, true);
  with_pulse(how, must, [must](played_manager& here) -> asio::awaitable<void> {
    if (must) {
      const auto status = co_await here.process->wait();
      CHECK_FALSE(status.success());
      CHECK(has(here.process->output(), "expects no such connection"));
    } else {
      auto finishing = here.finish();
      co_await std::move(finishing);
      CHECK(has(here.process->output(), "no heartbeat, so only the end of its connection tells"));
    }
  });
}

TEST_CASE("a worker tries the address first that has worked", "[cluster][worker]") {
  asio::io_context io;
  asio::ip::tcp::acceptor wrong(io, {asio::ip::address_v4::loopback(), 0});
  int tried = 0;
  std::function<void()> turn_away = [&] {
    wrong.async_accept([&](std::error_code failed, const asio::ip::tcp::socket&) {
      if (failed) return;
      ++tried;
      turn_away();
    });
  };
  turn_away();
  played_manager here(io);
  here.wrong_addresses = cluster::to_text(wrong.local_endpoint()) + ",";
  auto work = [&]() -> asio::awaitable<void> {
    auto meeting = here.meet();
    co_await std::move(meeting);
    auto finishing = here.finish();
    co_await std::move(finishing);
    wrong.close();
  };
  run(io, work());
  CHECK(tried == 1);
}

TEST_CASE("a worker that does not understand its welcome says so", "[cluster][worker]") {
  asio::io_context io;
  played_manager here(io);
  auto work = [&]() -> asio::awaitable<void> {
    auto greeting = here.greet(bytes(3));
    co_await std::move(greeting);
    const auto status = co_await here.process->wait();
    CHECK_FALSE(status.success());
    INFO("it " << status.text() << " and printed: " << here.process->output());
    CHECK(has(here.process->output(), "the manager's welcome makes no sense"));
  };
  run(io, work());
}
