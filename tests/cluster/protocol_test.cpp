// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A manager whose workers the test plays itself: their messages come in orders and at moments that
// real ones hardly ever choose, or never.

#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/manager.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/future.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cluster/actors.hpp"

using namespace cohort_test;

namespace {

int never_run(int value) { return value; }

/// A launch of so many, which all begin as they should; then the body; then the end by force.
void with_actors(int ranks, const std::function<asio::awaitable<void>(workers, actors&)>& body) {
  asio::io_context io;
  actors cast;
  const stage here(ranks);
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = launched(io, here, cast);
    const workers all = co_await std::move(launching);
    auto playing = body(all, cast);
    co_await std::move(playing);
    all.terminate();
    for (actor& each : cast) each.line->close();
  };
  run(io, work());
  CHECK(ends(here.launcher()));
}

/// How a launch fails when one plays like this.
cohort::error failed_launch(
    int ranks, const std::function<asio::awaitable<void>(asio::io_context&, told, actors&)>& play) {
  asio::io_context io;
  actors cast;
  const stage here(ranks);
  std::optional<cohort::error> problem;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = asio::co_spawn(io, cluster::launch(io, here.options()), cohort::as_future);
    auto looking = here.facts(io);
    const told facts = co_await std::move(looking);
    auto playing = play(io, facts, cast);
    co_await std::move(playing);
    auto failing = caught<cohort::error>(std::move(launching));
    problem = co_await std::move(failing);
  };
  run(io, work());
  REQUIRE(problem);
  CHECK(ends(here.launcher()));
  return *problem;
}

/// Whether the manager lets it in.
asio::awaitable<bool> is_let_in(actor& one) {
  auto connecting = one.attempt();
  const std::string problem = co_await std::move(connecting);
  if (problem.empty()) co_return true;
  CHECK(problem == "expects no such connection");
  co_return false;
}

}  // namespace

TEST_CASE("actors can be workers", "[cluster][protocol]") {
  with_actors(2, [](workers all, actors& cast) -> asio::awaitable<void> {
    auto pending = all.call<&never_run>(1, 5, cohort::as_future);
    auto receiving = cast[1].next(message_kind::call);
    const message call = co_await std::move(receiving);
    cast[1].line->send(message_kind::result, call.id, cohort::wire::encode(6));
    const int value = co_await std::move(pending);
    CHECK(value == 6);
    auto ending = asio::co_spawn(all.context(), all.shutdown(5s), cohort::as_future);
    for (actor& each : cast) {
      auto finishing = each.finish();
      co_await std::move(finishing);
    }
    co_await std::move(ending);
    CHECK(all.state(0) == worker_state::gone);
    CHECK(all.state(1) == worker_state::gone);
  });
}

TEST_CASE("a rank that is lost before the last one begins fails the launch",
          "[cluster][protocol]") {
  const auto problem =
      failed_launch(2, [](asio::io_context& io, told facts, actors& cast) -> asio::awaitable<void> {
        for (int rank = 0; rank < 2; ++rank) {
          cast.emplace_back(io, facts);
          auto beginning = cast.back().begin(rank, 2);
          co_await std::move(beginning);
          if (rank == 0) {
            auto pause = sleep(io, 50ms);  // its message first
            co_await std::move(pause);
            cast[0].line->close();
            auto second = sleep(io, 50ms);
            co_await std::move(second);
          }
        }
      });
  CHECK(problem.code() == errc::launch_failed);
  CHECK(has(problem.what(), "rank 0"));
  CHECK(has(problem.what(), "was lost before"));
}

TEST_CASE("a session has one control connection, and outputs need a session",
          "[cluster][protocol]") {
  asio::io_context io;
  actors cast;
  const stage here(2);
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = asio::co_spawn(io, cluster::launch(io, here.options()), cohort::as_future);
    auto looking = here.facts(io);
    const told facts = co_await std::move(looking);
    for (int i = 0; i < 2; ++i) cast.emplace_back(io, facts);
    const auto let_in = [&](actor& one) { return is_let_in(one); };
    actor output(io, facts);  // nobody has come yet
    output.hello.purpose = cluster::purpose::standard_output;
    auto first_trial = let_in(output);
    const bool early = co_await std::move(first_trial);
    CHECK_FALSE(early);
    cast[0].machine = cohort::process::host_id();  // it is asked for no heartbeats
    auto beginning = cast[0].begin(0, 2);
    co_await std::move(beginning);
    actor twin(io, facts);
    twin.hello.session = cast[0].hello.session;
    auto second_trial = let_in(twin);
    const bool again = co_await std::move(second_trial);
    CHECK_FALSE(again);
    twin.hello.purpose = cluster::purpose::heartbeat;
    auto third_trial = let_in(twin);
    const bool peer = co_await std::move(third_trial);
    CHECK_FALSE(peer);
    auto last = cast[1].begin(1, 2);
    co_await std::move(last);
    const workers all = co_await std::move(launching);
    CHECK(all.state(0) == worker_state::ready);
    CHECK(all.refused() == 3);
    all.terminate();
    for (actor& each : cast) each.line->close();
  };
  run(io, work());
}

TEST_CASE("a manager is reached by IPv4, and by IPv6 where there is any", "[cluster][protocol]") {
  asio::io_context io;
  actors cast;
  auto work = [&]() -> asio::awaitable<void> {
    std::string addresses;
    told facts;
    const auto by_hand = [&](const std::string& where, const std::string& token) {
      addresses = where;
      CHECK(cluster::parse_token(token, facts.token));
    };
    auto launching =
        asio::co_spawn(io, cluster::launch(io, quiet(1).by_hand(by_hand)), cohort::as_future);
    while (addresses.empty()) {
      auto pause = sleep(io, 1ms);
      co_await std::move(pause);
    }
    CAPTURE(addresses);
    std::error_code none;
    asio::ip::tcp::acceptor trial(io);
    trial.open(asio::ip::tcp::v6(), none);
    if (!none) trial.bind({asio::ip::address_v6::loopback(), 0}, none);
    CHECK(has(addresses, "[::1]:") == !none);
    CHECK(has(addresses, "127.0.0.1:"));
    for (const auto& where : cluster::parse_endpoints(addresses)) {
      if (!where.address().is_loopback()) continue;
      facts.where = where;
      actor guest(io, facts);
      guest.hello.purpose = cluster::purpose::heartbeat;
      auto trying = guest.attempt();
      const std::string answer = co_await std::move(trying);
      CHECK(answer == "expects no such connection");  // so it knows the token
    }
    cast.emplace_back(io, facts);  // over the last of them
    auto beginning = cast[0].begin(0, 1);
    co_await std::move(beginning);
    const workers all = co_await std::move(launching);
    CHECK(all.state(0) == worker_state::ready);
    all.terminate();
  };
  run(io, work());
}

TEST_CASE("a handshake that was recorded does not open the door again", "[cluster][protocol]") {
  const cohort::log::capture lines;
  asio::io_context io;
  actors cast;
  const stage here(1);
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = asio::co_spawn(io, cluster::launch(io, here.options()), cohort::as_future);
    auto looking = here.facts(io);
    const told facts = co_await std::move(looking);
    cast.emplace_back(io, facts);
    const cluster::connecting_side side(facts.token, cast[0].hello);
    // The genuine one, as it was seen on the network, cut off before its result.
    cluster::proof_bytes proof;
    {
      asio::ip::tcp::socket genuine(io);
      co_await genuine.async_connect(facts.where, asio::use_awaitable);
      co_await asio::async_write(genuine, asio::buffer(side.greeting()), asio::use_awaitable);
      cluster::reply_bytes reply{};
      co_await asio::async_read(genuine, asio::buffer(reply), asio::use_awaitable);
      CHECK(side.trusts(reply));
      proof = side.proof(reply);
    }
    for (int i = 0; i < 3; ++i) {
      asio::ip::tcp::socket replay(io);
      co_await replay.async_connect(facts.where, asio::use_awaitable);
      co_await asio::async_write(replay, asio::buffer(side.greeting()), asio::use_awaitable);
      co_await asio::async_write(replay, asio::buffer(proof), asio::use_awaitable);
      std::array<std::byte, 65> answer{};
      co_await asio::async_read(replay, asio::buffer(answer), asio::use_awaitable);
      CHECK(answer[64] == static_cast<std::byte>(cluster::handshake_result::wrong_token));
    }
    auto beginning = cast[0].begin(0, 1);
    co_await std::move(beginning);
    const workers all = co_await std::move(launching);
    CHECK(all.refused() == 4);
    all.terminate();
    cast[0].line->close();
  };
  run(io, work());
  CHECK(lines.contains("does not know the launch's token"));
}

TEST_CASE("messages that no worker sends at that moment fail the launch", "[cluster][protocol]") {
  const auto said = [](message_kind kind, bool known, bytes text = {}, std::uint64_t id = 1) {
    const auto problem = failed_launch(
        1, [&](asio::io_context& io, told facts, actors& cast) -> asio::awaitable<void> {
          cast.emplace_back(io, facts);
          auto connecting = cast[0].connect();
          co_await std::move(connecting);
          if (known) cast[0].identify(0);
          cast[0].line->send(kind, id, text);
          auto closing = cast[0].until_closed();
          co_await std::move(closing);
        });
    INFO(static_cast<int>(kind));
    INFO(problem.what());
    CHECK(problem.code() == errc::launch_failed);
    CHECK(has(problem.what(), "broke the protocol"));
  };
  said(message_kind::result, false);
  said(message_kind::failure, true, {}, cluster::one_way_bit);
  said(message_kind::call, true, bytes(40));
  said(message_kind::started, false, cohort::wire::encode(cluster::started{0, 1}));
  said(message_kind::identity, true, bytes(3));
  said(message_kind::table, true, bytes(1));
  said(message_kind::finished, true, actor::finished(1));
}

TEST_CASE("a manager that serves no calls says so to a worker that makes one") {
  with_actors(1, [](workers, actors& cast) -> asio::awaitable<void> {
    cast[0].line->send(message_kind::call, 7, bytes(30));
    auto answering = cast[0].next(message_kind::failure);
    const message answer = co_await std::move(answering);
    CHECK(answer.id == 7);
    cohort::wire::reader in(answer.bytes);
    std::string text;
    try {
      std::rethrow_exception(cohort::cluster::decode_exception(in));
    } catch (const cohort::error& failed) {
      CHECK(failed.code() == errc::refused);
      text = failed.what();
    }
    CHECK(has(text, "serve_calls"));
  });
}

TEST_CASE("a worker that breaks the protocol is lost, and its calls with it",
          "[cluster][protocol]") {
  for (const int how : {0, 1, 2, 3}) {
    INFO(how);
    with_actors(2, [how](workers all, actors& cast) -> asio::awaitable<void> {
      auto pending = all.call<&never_run>(0, 5, cohort::as_future);
      auto others = all.call<&never_run>(1, 5, cohort::as_future);
      auto receiving = cast[0].next(message_kind::call);
      const message call = co_await std::move(receiving);
      auto too = cast[1].next(message_kind::call);
      const message other = co_await std::move(too);
      if (how == 0) cast[1].line->send(message_kind::result, call.id, cohort::wire::encode(1));
      if (how == 1) cast[1].line->send(message_kind::ready, 1, bytes(30));
      if (how == 2) cast[1].line->send(static_cast<message_kind>(99), 1);
      if (how == 3) cast[1].line->send(message_kind::finished, 1, actor::finished(2));
      auto failing = caught<cohort::peer_lost_error>(std::move(others));
      const auto lost = co_await std::move(failing);
      REQUIRE(lost);
      CHECK(lost->ranks() == std::vector<int>{1});
      CHECK(has(all.cause(1), "broke the protocol"));
      // The other one's call is as it was.
      CHECK_FALSE(pending.is_ready());
      cast[0].line->send(message_kind::result, call.id, cohort::wire::encode(6));
      const int value = co_await std::move(pending);
      CHECK(value == 6);
    });
  }
}

TEST_CASE("the end of a worker may pass a large answer that nobody awaits", "[cluster][protocol]") {
  with_actors(1, [](workers all, actors& cast) -> asio::awaitable<void> {
    auto failing = caught<cohort::deadline_error>(
        all.with(call_options{}.deadline(10ms)).call<&never_run>(0, 5));
    const auto late = co_await std::move(failing);
    CHECK(late);
    auto receiving = cast[0].next(message_kind::call);
    const message call = co_await std::move(receiving);
    auto ending = asio::co_spawn(all.context(), all.shutdown(5s), cohort::as_future);
    auto finishing = cast[0].next(message_kind::finish);
    co_await std::move(finishing);
    cast[0].line->send(message_kind::result, call.id, bytes(std::size_t{5} << 20U));
    cast[0].line->send(message_kind::finished, 0, actor::finished(cast[0].line->sent()));
    cast[0].leave();
    co_await std::move(ending);
    CHECK(all.state(0) == worker_state::gone);
    CHECK(all.cause(0).empty());
  });
}

TEST_CASE("a worker that leaves before all its messages are there is lost", "[cluster][protocol]") {
  with_actors(1, [](workers all, actors& cast) -> asio::awaitable<void> {
    auto ending = asio::co_spawn(all.context(), all.shutdown(5s), cohort::as_future);
    auto finishing = cast[0].next(message_kind::finish);
    co_await std::move(finishing);
    cast[0].line->send(message_kind::finished, 0, actor::finished(cast[0].line->sent() + 1));
    cast[0].leave();
    co_await std::move(ending);
    CHECK(all.state(0) == worker_state::lost);
    CHECK(has(all.cause(0), "messages were lost"));
  });
}

TEST_CASE("what a rank has printed before its MPI began is not lost with it",
          "[cluster][protocol]") {
  for (const int how : {0, 1}) {
    INFO(how);
    asio::io_context io;
    actors cast;
    const stage here(1);
    const auto lines = std::make_shared<std::string>();
    const auto sink = [lines](const cluster::output_line& line) {
      *lines += cluster::rank_name(line.rank) + ": " + std::string(line.text) + "\n";
    };
    auto work = [&]() -> asio::awaitable<void> {
      auto options = here.options().sink(sink);
      if (how == 1) options.timeout(5s);
      auto launching = asio::co_spawn(io, cluster::launch(io, options), cohort::as_future);
      auto looking = here.facts(io);
      const told facts = co_await std::move(looking);
      cast.emplace_back(io, facts);
      auto joining = cast[0].join(-1);  // its launcher does not say which rank it is
      co_await std::move(joining);
      auto hello = cast[0].hello;
      hello.purpose = cluster::purpose::standard_error;
      auto redirecting = cluster::connect(io, {facts.where}, facts.token, hello);
      auto output = co_await std::move(redirecting);
      const std::string text("MPI cannot begin\nbecause");
      co_await asio::async_write(output, asio::buffer(text), asio::use_awaitable);
      if (how == 0) {
        output.close();
        cast[0].line->close();
      }
      auto failing = caught<cohort::error>(std::move(launching));
      const auto problem = co_await std::move(failing);
      REQUIRE(problem);
    };
    run(io, work());
    CHECK(*lines == "launcher: MPI cannot begin\nlauncher: because\n");
  }
}

TEST_CASE("two shutdowns at once end together", "[cluster][protocol]") {
  with_actors(1, [](workers all, actors& cast) -> asio::awaitable<void> {
    std::vector<cohort::future<void>> both;
    for (int i = 0; i < 2; ++i) {
      both.push_back(asio::co_spawn(all.context(), all.shutdown(5s), cohort::as_future));
    }
    auto finishing = cast[0].finish();
    co_await std::move(finishing);
    for (auto& each : both) co_await std::move(each);
    CHECK(all.state(0) == worker_state::gone);
    CHECK(cast[0].got.empty());  // it was told once
  });
}

TEST_CASE("a shutdown goes on when the handle is dropped that it came from",
          "[cluster][protocol]") {
  asio::io_context io;
  actors cast;
  const stage here(1);
  const cohort::log::capture lines;
  std::error_code ended = asio::error::would_block;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = launched(io, here, cast);
    {
      const workers all = co_await std::move(launching);
      asio::co_spawn(io, code_of(all.shutdown(5s)),
                     [&](std::exception_ptr, std::error_code code) { ended = code; });
    }
    auto finishing = cast[0].finish();
    co_await std::move(finishing);
    ::kill(here.launcher(), SIGTERM);
  };
  run(io, work());
  CHECK(ended == std::error_code());
  CHECK_FALSE(lines.contains("without shutdown"));
  CHECK(ends(here.launcher()));
}

TEST_CASE("limits as long as there is may be given", "[cluster][protocol]") {
  constexpr auto longest = std::chrono::nanoseconds::max();
  with_actors(1, [=](workers all, actors& cast) -> asio::awaitable<void> {
    auto pending =
        all.with(call_options{}.deadline(longest)).call<&never_run>(0, 5, cohort::as_future);
    auto receiving = cast[0].next(message_kind::call);
    const message call = co_await std::move(receiving);
    auto ending = asio::co_spawn(all.context(), all.shutdown(longest), cohort::as_future);
    auto pause = sleep(all.context(), 50ms);
    co_await std::move(pause);
    CHECK_FALSE(pending.is_ready());
    CHECK_FALSE(ending.is_ready());
    cast[0].line->send(message_kind::result, call.id, cohort::wire::encode(6));
    const int value = co_await std::move(pending);
    CHECK(value == 6);
    auto finishing = cast[0].finish();
    co_await std::move(finishing);
    co_await std::move(ending);
    CHECK(all.state(0) == worker_state::gone);
  });
}

TEST_CASE("who waits for events is told when none can come", "[cluster][protocol]") {
  with_actors(1, [](workers all, actors& cast) -> asio::awaitable<void> {
    auto ending = asio::co_spawn(all.context(), all.shutdown(5s), cohort::as_future);
    auto finishing = cast[0].finish();
    co_await std::move(finishing);
    const auto first = co_await all.next_event();
    CHECK(first.what == cluster::worker_event::kind::registered);
    const auto second = co_await all.next_event();
    CHECK(second.what == cluster::worker_event::kind::deregistered);
    co_await std::move(ending);
    auto third = code_of(all.next_event());
    const std::error_code code = co_await std::move(third);
    CHECK(code == errc::closed);
  });
}

TEST_CASE("a handler that throws leaves the loop as it was", "[cluster][protocol]") {
  asio::io_context io;
  actors cast;
  const stage here(1);
  int value = 0;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = launched(io, here, cast);
    const workers all = co_await std::move(launching);
    for (int i = 0; i < 2; ++i) {
      all.call<&never_run>(0, 5, [](std::exception_ptr, int) { throw std::runtime_error("mine"); });
    }
    auto pending = all.call<&never_run>(0, 5, cohort::as_future);
    for (int i = 0; i < 3; ++i) {
      auto receiving = cast[0].next(message_kind::call);
      const message call = co_await std::move(receiving);
      cast[0].line->send(message_kind::result, call.id, cohort::wire::encode(i));
    }
    value = co_await std::move(pending);
    all.terminate();
    cast[0].line->close();
  };
  asio::co_spawn(io, work(), asio::detached);
  int thrown = 0;
  for (;;) {
    try {
      io.run();
      break;
    } catch (const std::runtime_error& problem) {
      CHECK(has(problem.what(), "mine"));
      ++thrown;
    }
  }
  CHECK(thrown == 2);
  CHECK(value == 2);
  CHECK(ends(here.launcher()));
}

TEST_CASE("a handle that is dropped inside a handler ends the calls that are left",
          "[cluster][protocol]") {
  asio::io_context io;
  actors cast;
  const stage here(1);
  const cohort::log::capture lines;
  std::error_code other;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = launched(io, here, cast);
    auto all = std::make_shared<workers>(co_await std::move(launching));
    auto left = code_of(all->call<&never_run>(0, 5));
    asio::co_spawn(io, std::move(left),
                   [&](std::exception_ptr, std::error_code code) { other = code; });
    all->call<&never_run>(0, 5, [all](std::exception_ptr, int) mutable { all.reset(); });
    all.reset();
    auto first = cast[0].next(message_kind::call);
    co_await std::move(first);
    auto receiving = cast[0].next(message_kind::call);
    const message call = co_await std::move(receiving);
    cast[0].line->send(message_kind::result, call.id, cohort::wire::encode(1));
    auto closing = cast[0].until_closed();
    co_await std::move(closing);
  };
  run(io, work());
  CHECK(other == errc::peer_lost);
  CHECK(lines.contains("without shutdown"));
  CHECK(ends(here.launcher()));
}

TEST_CASE("a loop may be destroyed while workers and calls are alive", "[cluster][protocol]") {
  for (const int how : {0, 1, 2}) {
    INFO(how);
    const stage here(1);
    bool begun = false;
    {
      actors cast;
      asio::io_context io;
      workers kept;
      auto work = [&]() -> asio::awaitable<void> {
        auto launching = asio::co_spawn(io, cluster::launch(io, here.options()), cohort::as_future);
        auto looking = here.facts(io);
        const told facts = co_await std::move(looking);
        cast.emplace_back(io, facts);
        if (how == 0) {  // in the middle of the launch
          begun = true;
          io.stop();
        }
        auto beginning = cast[0].begin(0, 1);
        co_await std::move(beginning);
        const workers all = co_await std::move(launching);
        if (how == 1) kept = all;
        std::optional<cohort::future<void>> ending;
        if (how == 2) {
          ending.emplace(asio::co_spawn(io, all.shutdown(5s), cohort::as_future));
        }
        begun = true;
        io.stop();
        static_cast<void>(co_await all.call<&never_run>(0, 5));
      };
      asio::co_spawn(io, work(), asio::detached);
      io.run();
      if (!cast.empty() && cast[0].line) cast[0].line->close();
      cast.clear();
    }
    CHECK(begun);
    CHECK(ends(here.launcher()));
  }
}
