// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Who comes in at the door of a launch, and where stdout and stderr go.

#include <cohort/cluster/link/reception.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/cluster/worker/way_to_manager.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/run.hpp"

using namespace cohort_test;
using cohort::errc;
namespace cluster = cohort::cluster;
using cluster::purpose;

namespace {

/// A reception, with those that it has let in.
struct door {
  explicit door(asio::io_context& context, std::size_t most = 16) : io(context) {
    self = std::make_shared<cluster::reception>(
        io, token, most, [this](const cluster::greeting& hello) { return hello.purpose == wanted; },
        [this](const cluster::greeting& hello, cluster::tcp_socket&& socket) {
          sessions.push_back(hello.session);
          inside.push_back(std::move(socket));
        });
    self->listen("127.0.0.1");
    self->open();
  }
  ~door() { self->close(); }
  door(const door&) = delete;
  door& operator=(const door&) = delete;

  [[nodiscard]] std::vector<asio::ip::tcp::endpoint> where() const {
    return cluster::parse_endpoints(self->addresses());
  }
  /// One attempt; says what was wrong.
  asio::awaitable<std::string> attempt(cluster::launch_token with, purpose what) {
    cluster::greeting hello;
    hello.purpose = what;
    hello.session = session;
    const auto socket = std::make_shared<cluster::tcp_socket>(io);
    auto trying = cluster::detail::attempt(socket, where().front(), with, hello);
    co_return co_await std::move(trying);
  }

  asio::io_context& io;
  cluster::launch_token token = cohort::random_bytes<16>();
  std::array<std::byte, cluster::session_size> session =
      cohort::random_bytes<cluster::session_size>();
  purpose wanted = purpose::control;
  std::vector<std::array<std::byte, cluster::session_size>> sessions;
  std::vector<cluster::tcp_socket> inside;
  std::shared_ptr<cluster::reception> self;
};

/// Runs what visitors do, then closes the door: while it is open the context has work.
void visit(door& here, asio::awaitable<void> visitors) {
  auto all = [&here, &visitors]() -> asio::awaitable<void> {
    co_await std::move(visitors);
    here.self->close();
  };
  run(here.io, all());
}

/// Two ends of a connection; what is written to `in` is read from `out`.
struct ends {
  ends() {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0);
    in = both[0];
    out = both[1];
  }
  ~ends() {
    ::close(in);
    ::close(out);
  }
  ends(const ends&) = delete;
  ends& operator=(const ends&) = delete;

  /// What there is now.
  [[nodiscard]] std::string text() const {
    char room[256];
    const auto got = ::recv(out, room, sizeof(room), MSG_DONTWAIT);
    return {room, got < 0 ? 0 : static_cast<std::size_t>(got)};
  }
  int in = -1;
  int out = -1;
};

}  // namespace

TEST_CASE("who knows the token and is expected comes in", "[cluster][reception]") {
  asio::io_context io;
  door here(io);
  visit(here, [&]() -> asio::awaitable<void> {
    auto trying = here.attempt(here.token, purpose::control);
    const std::string problem = co_await std::move(trying);
    CHECK(problem.empty());
  }());
  REQUIRE(here.inside.size() == 1);
  CHECK(here.inside[0].is_open());
  CHECK(here.sessions[0] == here.session);
  CHECK(here.self->refused() == 0);
}

TEST_CASE("others are told why they do not come in, and are counted", "[cluster][reception]") {
  asio::io_context io;
  door here(io);
  visit(here, [&]() -> asio::awaitable<void> {
    auto unexpected = here.attempt(here.token, purpose::standard_output);
    std::string problem = co_await std::move(unexpected);
    CHECK_THAT(problem, Catch::Matchers::ContainsSubstring("expects no such connection"));
    auto stranger = here.attempt(cohort::random_bytes<16>(), purpose::control);
    problem = co_await std::move(stranger);
    CHECK_THAT(problem, Catch::Matchers::ContainsSubstring("token"));
    cluster::tcp_socket junk(io);
    junk.connect(here.where().front());
    asio::write(junk, asio::buffer(std::string(64, 'x')));
    char none = 0;
    std::error_code end;
    co_await asio::async_read(junk, asio::buffer(&none, 1),
                              asio::redirect_error(asio::use_awaitable, end));
    CHECK(end);
  }());
  CHECK(here.inside.empty());
  CHECK(here.self->refused() == 3);
}

TEST_CASE("the oldest visitor makes room, and a genuine one tries again", "[cluster][reception]") {
  asio::io_context io;
  door here(io, 2);
  visit(here, [&]() -> asio::awaitable<void> {
    std::vector<cluster::tcp_socket> silent;
    for (int i = 0; i < 3; ++i) {
      silent.emplace_back(io);
      silent.back().connect(here.where().front());
    }
    char none = 0;
    std::error_code end;
    co_await asio::async_read(silent[0], asio::buffer(&none, 1),
                              asio::redirect_error(asio::use_awaitable, end));
    CHECK(end);
    cluster::greeting hello;
    hello.purpose = purpose::control;
    auto connecting = cluster::connect(io, here.where(), here.token, hello);
    const cluster::tcp_socket mine = co_await std::move(connecting);
    CHECK(mine.is_open());
  }());
  CHECK(here.inside.size() == 1);
}

TEST_CASE("behind a closed door nobody is answered", "[cluster][reception]") {
  asio::io_context io;
  door here(io);
  const auto where = here.where();
  visit(here, [&]() -> asio::awaitable<void> {
    cluster::tcp_socket waiting(io);  // inside, and has proved nothing
    waiting.connect(where.front());
    auto trying = here.attempt(here.token, purpose::standard_error);
    co_await std::move(trying);
    here.self->close();
    char none = 0;
    std::error_code end;
    co_await asio::async_read(waiting, asio::buffer(&none, 1),
                              asio::redirect_error(asio::use_awaitable, end));
    CHECK(end);
    auto failing = caught<cohort::error>(
        cluster::connect(io, where, here.token, cluster::greeting{purpose::control, {}}));
    const auto failed = co_await std::move(failing);
    REQUIRE(failed);
    CHECK(failed->code() == errc::refused);
    CHECK_THAT(failed->what(), Catch::Matchers::ContainsSubstring(cluster::to_text(where.front())));
  }());
  CHECK(here.inside.empty());
}

TEST_CASE("what is no address, or not ours, cannot be listened on", "[cluster][reception]") {
  asio::io_context io;
  const auto made =
      std::make_shared<cluster::reception>(io, cluster::launch_token{}, 1, nullptr, nullptr);
  try {
    made->listen("nowhere");
    FAIL_CHECK("listens");
  } catch (const cohort::error& failed) {
    CHECK(failed.code() == errc::invalid_argument);
    CHECK_THAT(failed.what(), Catch::Matchers::ContainsSubstring("nowhere"));
  }
  try {
    made->listen("192.0.2.1");  // of the addresses for documents
    FAIL_CHECK("listens");
  } catch (const cohort::error& failed) {
    CHECK(failed.code() == errc::launch_failed);
    CHECK_THAT(failed.what(), Catch::Matchers::ContainsSubstring("192.0.2.1"));
  }
}

TEST_CASE("without an address all are listened on, and named", "[cluster][reception]") {
  asio::io_context io;
  const auto made =
      std::make_shared<cluster::reception>(io, cluster::launch_token{}, 1, nullptr, nullptr);
  made->listen("");
  const auto all = cluster::parse_endpoints(made->addresses());
  REQUIRE_FALSE(all.empty());
  bool loopback = false;
  for (const auto& each : all) {
    loopback |= each.address() == asio::ip::address_v4::loopback();
    CHECK(each.port() == all[0].port());
  }
  CHECK(loopback);
  made->close();
}

TEST_CASE("stdout and stderr go where they are led, and back", "[cluster][redirection]") {
  const ends output;
  const ends errors;
  cluster::redirection led;
  std::fflush(stdout);
  led.redirect(STDOUT_FILENO, output.in, true);
  led.redirect(STDERR_FILENO, errors.in, true);
  std::printf("a line\nand a part");
  std::fprintf(stderr, "a complaint");
  const std::string at_once = output.text();
  const std::string complaint = errors.text();
  led.restore();
  const std::string rest = output.text();
  std::fprintf(stderr, "%s", "");
  std::printf("%s", "");
  std::fflush(stdout);
  led.restore();  // nothing is left to do
  CHECK(at_once == "a line\n");
  CHECK(complaint == "a complaint");
  CHECK(rest == "and a part");
  CHECK(output.text().empty());
}

TEST_CASE("a connection that is none is refused", "[cluster][redirection]") {
  const int before = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  REQUIRE(before >= 0);
  ::close(before);
  cluster::redirection led;
  CHECK_THROWS_AS(led.redirect(STDOUT_FILENO, -1, true), std::system_error);
  led.restore();
  CHECK(::fcntl(STDOUT_FILENO, F_GETFD) >= 0);
}

TEST_CASE("a connection whose other side has vanished does not stay for ever", "[cluster]") {
  asio::io_context io;
  asio::ip::tcp::acceptor entry(io, {asio::ip::address_v4::loopback(), 0});
  cluster::tcp_socket near(io);
  near.connect(entry.local_endpoint());
  const auto far = entry.accept();
  cluster::bound_silence(near, std::chrono::microseconds(1500));
  const auto link = std::make_shared<cluster::tcp_link>(std::move(near), std::size_t{1} << 20U);
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    REQUIRE(::getsockopt(link->native_handle(), level, name, &value, &size) == 0);
    return value;
  };
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 2);
  // Half a minute for one on which nothing is under way.
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) != 0);
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) +
            option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) ==
        30);
}

TEST_CASE("a worker has shown that it lives before it does anything else", "[cluster]") {
  for (int i = 0; i < 100; ++i) {  // its thread could be quick once
    int both[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
    {
      const cluster::manager_watch watch(both[0], std::chrono::hours(1), nullptr);
      cluster::life_sign sign{};
      REQUIRE(::recv(both[1], &sign, 1, MSG_DONTWAIT) == 1);
      REQUIRE((sign == cluster::life_sign::beat));
    }
    ::close(both[0]);
    ::close(both[1]);
  }
}
