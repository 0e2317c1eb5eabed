// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Who holds an operation up: ranks that do not lap, ranks that have not started it, and the
/// messages by which this is found out.

#include "gpu/nccl/support.hpp"

#include <cohort/nccl/faults/channel.hpp>
#include <cohort/nccl/faults/message.hpp>
#include <cohort/progress/deadline.hpp>

#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <variant>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

/// Whoever laps answers within the bound; only who does not is to wait for all of it.
nccl::communicator_options asking(std::chrono::nanoseconds answer_bound = 20s) {
  nccl::communicator_options made;
  made.on_deadline = cohort::on_deadline::abort;
  made.answer_bound = answer_bound;
  return made;
}

nccl::position_answer an_answer() {
  nccl::position_answer made;
  made.token = 0x123456789abcdef0U;
  made.number = 3;
  made.rank = 2;
  made.position = {7, nccl::standing::launching, 9, 4096, 12, "all_reduce"};
  return made;
}

std::vector<nccl::fault_message> messages() {
  return {nccl::fault_notice{5, true, "rank 1: the launch failed"},
          nccl::position_question{~std::uint64_t{0}, 17}, an_answer(),
          nccl::fault_goodbye{6, 70000}};
}

}  // namespace

TEST_CASE("a rank that does not lap is named by those that wait for it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto gpus = co_await nccl::make_communicator(world, asking(2s));
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum);
    outcome end;
    const bool between = world.rank() != 0 && world.rank() != last;
    if (between) nccl::all_reduce(gpus, s, v, op::sum, end.handler());
    co_await meet(world);
    if (world.rank() == last) {
      hold_the_loop();
    } else {
      co_await loop_is_held(last);
      if (between) {
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(end.code == nccl::make_error(ncclRemoteError));
      } else {
        auto reducing = nccl::all_reduce(gpus, s, v, op::sum);
        auto bounded = cohort::with_deadline(std::move(reducing), 20ms);
        const auto code = co_await code_of(std::move(bounded));
        CHECK(code == errc::deadline_exceeded);
        let_loop_go(last);
      }
      // Whoever has not asked is told.
      const std::string text = gpus.last_failure().text;
      INFO(text);
      const std::string silent = "silent for 2000 ms: rank " + std::to_string(last);
      const auto at = text.find(silent);
      REQUIRE(at != std::string::npos);
      CHECK(text.compare(at + silent.size(), 1, ",") != 0);  // nobody else
      CHECK(text.find("has not started") == std::string::npos);
      if (world.rank() == 0 && last > 1) {
        CHECK(text.find("others: rank 1 (all_reduce #") != std::string::npos);
      }
    }
    CHECK(co_await soon([&] { return gpus.stands() == nccl::phase::gone; }));
    co_await meet(world);
  });
}

TEST_CASE("a rank that laps and has not started the operation is named as behind") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto gpus = co_await nccl::make_communicator(world, asking());
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum);
    // Messages between some ranks put nobody behind.
    if (world.rank() == 0) co_await nccl::send(gpus, s, v, 1);
    if (world.rank() == 1) co_await nccl::recv(gpus, s, v, 0);
    outcome end;
    const bool between = world.rank() != 0 && world.rank() != last;
    if (between) nccl::all_reduce(gpus, s, v, op::sum, end.handler());
    co_await meet(world);
    if (between) {
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(static_cast<bool>(end.code));
    }
    if (world.rank() == 0) {
      auto reducing = nccl::all_reduce(gpus, s, v, op::sum);
      auto bounded = cohort::with_deadline(std::move(reducing), 20ms);
      const auto code = co_await code_of(std::move(bounded));
      CHECK(code == errc::deadline_exceeded);
      const std::string text = gpus.last_failure().text;
      INFO(text);
      const bool received = last == 1;
      const std::string at = received ? "recv #2" : "all_reduce #1";
      const std::string behind = "has not started it: rank " + std::to_string(last) + " (" + at +
                                 " of 40 bytes, has ended)";
      CHECK(text.find(behind) != std::string::npos);
      CHECK(text.find("silent") == std::string::npos);
      for (int rank = 1; rank < last; ++rank) {
        CHECK(text.find("has not started it: rank " + std::to_string(rank)) == std::string::npos);
      }
    }
    CHECK(co_await soon([&] { return gpus.stands() == nccl::phase::gone; }));
    co_await meet(world);
  });
}

TEST_CASE("a warning about an operation that takes long says who has not started it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    setenv("COHORT_STALL_WARNING", "1ms", 1);  // for this source alone
    asio::use_service<nccl::issue_source>(world.get_executor().context());
    unsetenv("COHORT_STALL_WARNING");
    const int last = world.size() - 1;
    nccl::communicator_options options;
    options.answer_bound = 20s;
    auto gpus = co_await nccl::make_communicator(world, options);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await meet(world);
    if (world.rank() == last) {
      co_await meet(world);
      co_await nccl::all_reduce(gpus, s, v, op::sum);
    } else {
      outcome end;
      nccl::all_reduce(gpus, s, v, op::sum, end.handler());
      // Others that have not started it by then are named before it.
      const std::string behind = "rank " + std::to_string(last) + " (has started nothing)";
      CHECK(co_await soon([&] { return log.contains(behind); }));
      CHECK(log.contains("has not started it: rank "));
      CHECK(!end.over);
      co_await meet(world);
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(!end.code);
    }
    auto got = co_await read(s, v);
    CHECK(got[9] == world.size());
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("an operation that ends after its deadline and before the answers is no failure") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto others = co_await world.split(world.rank() == last ? -1 : 0);
    auto gpus = co_await nccl::make_communicator(world, asking());
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::max);
    co_await meet(world);
    if (world.rank() == last) {
      // On the device it goes on without this rank's loop, which does not answer.
      nccl::all_reduce(gpus, s, v, op::sum, asio::detached);
      CHECK(co_await soon([&] { return fake_nccl::launches().size() == 2; }));
      hold_the_loop();
    } else {
      outcome end;
      const auto bounded = [&]() -> asio::awaitable<void> {
        auto reducing = nccl::all_reduce(gpus, s, v, op::sum);
        auto limited = cohort::with_deadline(std::move(reducing), 20ms);
        end.code = co_await code_of(std::move(limited));
        end.over = true;
      };
      device::stream late;
      fake_gpu::hold(late.get());
      s.wait(late.record());
      co_await loop_is_held(last);
      asio::co_spawn(world.get_executor(), bounded, asio::detached);
      const auto is_asked = [&] {
        auto& source = gpus.state()->source;
        return source.exclusively([&] { return gpus.state()->asked.has_value(); });
      };
      CHECK(co_await soon(is_asked));
      CHECK(!end.over);
      fake_gpu::release(late.get());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(!end.code);
      CHECK(gpus.stands() == nccl::phase::ready);
      auto got = co_await read(s, v);
      CHECK(got[9] == world.size());
      co_await meet(others);  // they may have asked, too
      if (world.rank() == 0) let_loop_go(last);
    }
    co_await meet(world);
    CHECK(gpus.stands() == nccl::phase::ready);
    co_await nccl::barrier(gpus, s);
  });
}

// Open MPI gives the number of a communicator that was freed to the next one, here one of a single
// rank, and crashes if a message to the old one comes then.
TEST_CASE("what ranks have asked each other is heard before their communicator of MPI is freed") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    for (int round = 0; round < 10; ++round) {
      const cohort::log::capture log;
      nccl::communicator_options options;
      options.answer_bound = cohort_test::patient(10s);
      auto gpus = co_await nccl::make_communicator(world, options);
      auto state = gpus.state();
      held_stream held(s);
      std::error_code code;
      bool over = false;
      const auto bounded = [&]() -> asio::awaitable<void> {
        auto reducing = nccl::all_reduce(gpus, s, v, op::max);
        auto limited = cohort::with_deadline(std::move(reducing), 1ms);
        code = co_await code_of(std::move(limited));
        over = true;
      };
      asio::co_spawn(world.get_executor(), bounded, asio::detached);
      // It has asked, and nobody waits for the answers.
      CHECK(co_await soon([&] { return log.contains("NCCL cannot give it up"); }));
      held.let_go();
      CHECK(co_await soon([&] { return over; }));
      CHECK(!code);
      gpus = {};
      CHECK(co_await soon([&] { return state->stands == nccl::phase::gone; }));
      const bool heard_all = co_await soon([&] {
        return source.exclusively([&] { return state->channel->is_over(world.rank()); });
      });
      CHECK(heard_all);
      const auto questions = source.exclusively([&] {
        const auto& peers = state->channel->peers;
        return std::count_if(peers.begin(), peers.end(), [](auto& one) { return one.received; });
      });
      CHECK(questions == world.size() - 1);
      CHECK(co_await soon([&] { return source.pending() == 0; }));
      state.reset();
      auto alone = co_await world.split(world.rank());
      co_await meet(alone);
    }
    co_await meet(world);
  });
}

TEST_CASE("a peer that ends without a goodbye is waited for no longer than its answers") {
  const gpus_of_ranks machine;
  asio::io_context io;
  const communicator world(io);
  if (world.size() < 2) return;
  const bool stops = world.rank() == world.size() - 1;  // its context, with what it has
  const auto body = [&]() -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world, asking(200ms));
    const device::stream s;
    co_await nccl::barrier(gpus, s);
    co_await meet(world);
    if (stops) {
      io.stop();
      co_await pause(1h);
    }
    const auto state = gpus.state();
    gpus = {};
    CHECK(co_await soon([&] { return state->stands == nccl::phase::gone; }));
    CHECK(co_await soon([&] { return state->source.pending() == 0; }));
    const bool over =
        state->source.exclusively([&] { return state->channel->is_over(world.rank()); });
    CHECK_FALSE(over);
  };
  asio::co_spawn(io, body(), asio::detached);
  io.run();
}

DOUBLE_TEST_CASE("goodbyes that come while a rank computes are heard afterwards") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto gpus = co_await nccl::make_communicator(world, asking(200ms));
    const auto state = gpus.state();
    const auto has_parted = [&] {
      return state->source.exclusively([&] { return state->channel->parted; });
    };
    const auto tell = [](int rank) { MPI_Send(nullptr, 0, MPI_BYTE, rank, 5, MPI_COMM_WORLD); };
    const auto listen_to = [](int rank) {
      MPI_Recv(nullptr, 0, MPI_BYTE, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    co_await meet(world);
    gpus = {};
    if (world.rank() == 0) {
      CHECK(co_await soon(has_parted));
      for (int peer = 1; peer < world.size(); ++peer) tell(peer);
      for (int peer = 1; peer < world.size(); ++peer) listen_to(peer);
      std::this_thread::sleep_for(400ms);
    } else {
      CHECK(co_await soon([] { return fake_nccl::calls("ncclCommFinalize") == 1; }));
      listen_to(0);
      CHECK(co_await soon(has_parted));
      co_await pause(1ms);  // what was posted before has been sent
      tell(0);
    }
    CHECK(co_await soon([&] { return state->source.pending() == 0; }));
    if (world.rank() == 0) {
      CHECK(state->source.exclusively([&] { return state->channel->is_over(0); }));
    }
    co_await meet(world);
  });
}

TEST_CASE("a rank that drops a borrowed communicator early does not wait for the others") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto making = own_communicator(world);
    const ncclComm_t theirs = co_await std::move(making);
    auto gpus = co_await nccl::borrow_communicator(world, theirs);
    const auto state = gpus.state();
    auto& source = state->source;
    const auto is_over = [&] {
      return source.exclusively([&] { return state->channel->is_over(world.rank()); });
    };
    if (world.rank() == 0) {
      gpus = {};
      CHECK(co_await soon([&] { return state->stands == nccl::phase::gone; }));
      CHECK(source.pending() == 0);  // its loop could end
      CHECK_FALSE(is_over());
    }
    co_await meet(world);
    gpus = {};
    CHECK(co_await soon([&] { return state->stands == nccl::phase::gone; }));
    CHECK(co_await soon(is_over));
    co_await meet(world);
    CHECK(ncclCommDestroy(theirs) == ncclSuccess);  // on a thread that need not lap any more
  });
}

TEST_CASE("messages of the fault channel come back from their bytes") {
  for (const nccl::fault_message& one : messages()) {
    const nccl::fault_bytes bytes = nccl::encode(one);
    const auto back = nccl::decode(bytes);
    REQUIRE(back);
    CHECK(*back == one);
  }
  nccl::fault_notice long_one{1, false, std::string(1000, 'x') + "\n"};
  auto cut = nccl::decode(nccl::encode(long_one));
  REQUIRE(cut);
  CHECK(std::get<nccl::fault_notice>(*cut).text == std::string(230, 'x'));
  auto lines = nccl::decode(nccl::encode(nccl::fault_notice{1, false, "one\ntwo"}));
  REQUIRE(lines);
  CHECK(std::get<nccl::fault_notice>(*lines).text == "one two");
}

TEST_CASE("bytes that are no message of the fault channel are dropped") {
  for (const nccl::fault_message& one : messages()) {
    const nccl::fault_bytes good = nccl::encode(one);
    CHECK(!nccl::decode(std::span(good).first(good.size() - 1)));
    auto bad = good;
    bad[0] = std::byte{2};  // another version
    CHECK(!nccl::decode(bad));
    bad = good;
    bad[1] = std::byte{4};  // another kind
    CHECK(!nccl::decode(bad));
    bad = good;
    bad.back() = std::byte{1};  // behind its end
    CHECK(!nccl::decode(bad));
  }
  const std::string text = "rank 1: the launch failed";
  auto notice = nccl::encode(messages().front());
  auto* const at =
      std::search(notice.data(), notice.data() + notice.size(), text.begin(), text.end(),
                  [](std::byte one, char two) { return one == static_cast<std::byte>(two); });
  REQUIRE(at != notice.data() + notice.size());
  at[-1] = std::byte{0x7f};  // longer than its bytes, which are zero then
  CHECK(!nccl::decode(notice));
  at[-1] = static_cast<std::byte>(text.size());
  CHECK(nccl::decode(notice));
  at[-2] = std::byte{2};  // no bool
  CHECK(!nccl::decode(notice));
}

TEST_CASE("the reader of the fault channel survives any bytes") {
  std::mt19937_64 random(20);
  std::size_t taken = 0;
  for (int round = 0; round < 20000; ++round) {
    auto all = messages();
    nccl::fault_bytes bytes = nccl::encode(all[random() % all.size()]);
    const std::size_t changes = random() % 6;
    for (std::size_t i = 0; i < changes; ++i) {
      bytes[random() % (random() % 2 == 0 ? 48 : bytes.size())] = static_cast<std::byte>(random());
    }
    const auto read = nccl::decode(bytes);
    if (!read) continue;
    ++taken;
    const auto again = nccl::decode(nccl::encode(*read));
    REQUIRE(again);
    REQUIRE(*again == *read);
  }
  CHECK(taken > 1000);  // unchanged ones at least
  CHECK(taken < 20000);
}

TEST_CASE("findings name eight ranks of each kind at most") {
  nccl::inquiry asked;
  asked.collective = 5;
  asked.answers.resize(30);
  for (std::size_t rank = 12; rank < 24; ++rank) asked.answers[rank].emplace().collectives = 4;
  for (std::size_t rank = 24; rank < 30; ++rank) asked.answers[rank].emplace().collectives = 5;
  CHECK(!asked.is_answered());
  const std::string text = nccl::findings(asked, 0, 20ms);
  INFO(text);
  CHECK(text.find("silent for 20 ms: rank 1, rank 2, ") == 0);
  CHECK(text.find("rank 8 and 3 more; has not started it: rank 12 (") != std::string::npos);
  CHECK(text.find("rank 19 (has started nothing) and 4 more; others: rank 24 (") !=
        std::string::npos);
  CHECK(text.find("rank 29 (") != std::string::npos);
  CHECK(text.find("rank 9,") == std::string::npos);
}
