// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Messages between ranks: send, recv and send_recv, whatever is sent and however it is received.

#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/p2p/probe.hpp>
#include <cohort/progress.hpp>

#include <array>
#include <chrono>
#include <complex>
#include <numeric>
#include <string>
#include <vector>

#include "p2p/support.hpp"

namespace {

using namespace p2p_test;
using cohort::send_mode;

struct particle {
  double position[3];
  int kind;
  bool operator==(const particle&) const = default;
};

const cohort::communicator_options with_bounds{.checks = cohort::checks::bounds};

/// Sends to the right and receives from the left, however many ranks there are.
template <class T>
task around(communicator world, std::vector<T> mine, std::vector<T>& received, int tag) {
  auto sent = cohort::send(world, mine, right_of(world), tag, cohort::as_future);
  const auto st = co_await cohort::recv(world, received, left_of(world), tag);
  co_await std::move(sent);
  CHECK(st.source() == left_of(world));
  CHECK(st.tag() == tag);
  CHECK(st.template count<T>() == mine.size());
}

template <class T>
void check_around(T first, T second) {
  on_world([&](communicator world) -> task {
    std::vector<T> mine(3, world.rank() % 2 == 0 ? first : second);
    std::vector<T> received(3);
    co_await around(world, mine, received, 3);
    CHECK(received == std::vector<T>(3, left_of(world) % 2 == 0 ? first : second));
  });
}

}  // namespace

TEST_CASE("a message of every kind of element goes round the ring") {
  check_around<char>('a', 'b');
  check_around<signed char>(1, -2);
  check_around<unsigned short>(1, 65535);
  check_around<int>(7, -9);
  check_around<long long>(1LL << 40, -1);
  check_around<float>(0.5F, -2.25F);
  check_around<double>(3.5, -1e300);
  check_around<std::complex<double>>({1, 2}, {3, -4});
  check_around<cohort::f16>(cohort::f16(1.5F), cohort::f16(-2.0F));
  check_around<std::array<int, 4>>({1, 2, 3, 4}, {5, 6, 7, 8});
  check_around<particle>({{1, 2, 3}, 4}, {{5, 6, 7}, 8});
  check_around<send_mode>(send_mode::ready, send_mode::synchronous);
}

TEST_CASE("an empty message arrives") {
  on_world([](communicator world) -> task {
    std::vector<int> received;
    co_await around(world, std::vector<int>(), received, 4);
  });
}

TEST_CASE("a large message arrives whole") {
  on_world([](communicator world) -> task {
    std::vector<int> mine(1 << 20);
    std::iota(mine.begin(), mine.end(), world.rank());
    std::vector<int> received(mine.size());
    co_await around(world, mine, received, 5);
    CHECK(received.front() == left_of(world));
    CHECK(received.back() == left_of(world) + (1 << 20) - 1);
  });
}

TEST_CASE("a scalar is a buffer of one") {
  on_world([](communicator world) -> task {
    const double mine = 1.5 * world.rank();
    double received = -1;
    auto sent = cohort::send(world, mine, right_of(world), 6, cohort::as_future);
    const auto st = co_await cohort::recv(world, received, left_of(world), 6);
    co_await std::move(sent);
    CHECK(received == 1.5 * left_of(world));
    CHECK(st.bytes() == sizeof(double));
  });
}

TEST_CASE("a message may be shorter than the buffer, whose rest is not touched") {
  on_world([](communicator world) -> task {
    const std::vector<int> mine{1, 2};
    std::vector<int> received(4, -1);
    auto sent = cohort::send(world, mine, right_of(world), 6, cohort::as_future);
    const auto st = co_await cohort::recv(world, received, left_of(world), 6);
    co_await std::move(sent);
    CHECK(st.count<int>() == 2);
    CHECK(received == std::vector<int>{1, 2, -1, -1});
  });
}

TEST_CASE("a synchronous send completes when it has been matched, not before") {
  on_world([](communicator world) -> task {
    const int mine = world.rank();
    int received = -1;
    auto sent =
        cohort::send<send_mode::synchronous>(world, mine, right_of(world), 7, cohort::as_future);
    for (int i = 0; i < 100; ++i) {
      cohort::poll(world);
      co_await asio::post(asio::use_awaitable);
    }
    CHECK_FALSE(sent.is_ready());
    co_await meet(world);
    co_await cohort::recv(world, received, left_of(world), 7);
    co_await std::move(sent);
    CHECK(received == left_of(world));
  });
}

TEST_CASE("a ready send finds the receive that is posted already") {
  on_world([](communicator world) -> task {
    int received = -1;
    auto arrived = cohort::recv(world, received, left_of(world), 9, cohort::as_future);
    const int go = 1;
    int may_go = 0;
    auto told = cohort::send(world, go, left_of(world), 10, cohort::as_future);
    co_await cohort::recv(world, may_go, right_of(world), 10);
    const int mine = world.rank();
    co_await cohort::send<send_mode::ready>(world, mine, right_of(world), 9);
    co_await std::move(told);
    co_await std::move(arrived);
    CHECK(received == left_of(world));
  });
}

TEST_CASE("any source and any tag take what comes, and the status tells what it was") {
  on_world([](communicator world) -> task {
    const int mine = world.rank();
    auto sent = cohort::send(world, mine, 0, 20 + world.rank(), cohort::as_future);
    if (world.rank() == 0) {
      std::vector<bool> seen(static_cast<std::size_t>(world.size()));
      for (int i = 0; i < world.size(); ++i) {
        int who = -1;
        const auto st = co_await cohort::recv(world, who, cohort::any_source, cohort::any_tag);
        CHECK(st.source() == who);
        CHECK(st.tag() == 20 + who);
        seen[static_cast<std::size_t>(who)] = true;
      }
      CHECK(seen == std::vector<bool>(seen.size(), true));
    }
    co_await std::move(sent);
  });
}

TEST_CASE("the status of a send that was waited for tells of no earlier message") {
  on_world([](communicator world) -> task {
    int mine = world.rank();
    int received = -1;
    auto arrived = cohort::recv(world, received, left_of(world), 30, cohort::as_future);
    co_await cohort::send(world, mine, right_of(world), 30);
    co_await std::move(arrived);
    auto second = cohort::recv(world, received, left_of(world), 31, cohort::as_future);
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Issend(&mine, 1, MPI_INT, right_of(world), 31, world.native(), &request);
    }
    const auto st = co_await cohort::wait(world, request);
    CHECK(st.tag() != 30);
    co_await std::move(second);
  });
}

TEST_CASE("messages of one pair of ranks do not overtake each other") {
  on_world([](communicator world) -> task {
    std::vector<cohort::future<>> sent;
    std::vector<int> mine(50);
    std::iota(mine.begin(), mine.end(), 0);
    for (const int& value : mine) {
      sent.push_back(cohort::send(world, value, right_of(world), 11, cohort::as_future));
    }
    for (int i = 0; i < 50; ++i) {
      int value = -1;
      co_await cohort::recv(world, value, left_of(world), cohort::any_tag);
      CHECK(value == i);
    }
    co_await cohort::when_all(std::move(sent));
  });
}

TEST_CASE("no_rank sends to nobody and receives nothing") {
  on_world([](communicator world) -> task {
    int value = 5;
    co_await cohort::send(world, value, cohort::no_rank, 1);
    const auto st = co_await cohort::recv(world, value, cohort::no_rank, 1);
    CHECK(st.source() == cohort::no_rank);
    CHECK(st.bytes() == 0);
    CHECK(value == 5);
  });
}

TEST_CASE("a message of unknown size makes a container of its size") {
  for (const auto& options : {cohort::communicator_options{}, with_bounds}) {
    on_world(
        [](communicator world) -> task {
          const std::vector<int> mine(static_cast<std::size_t>(world.rank()) * 5000, world.rank());
          auto sent = cohort::send(world, mine, right_of(world), 12, cohort::as_future);
          auto [data, st] = co_await cohort::recv<std::vector<int>>(world, left_of(world), 12);
          CHECK(data ==
                std::vector<int>(static_cast<std::size_t>(left_of(world)) * 5000, left_of(world)));
          CHECK(st.source() == left_of(world));
          CHECK(st.count<int>() == data.size());
          co_await std::move(sent);
          const std::string text = "from " + std::to_string(world.rank());
          sent = cohort::send(world, text, right_of(world), 12, cohort::as_future);
          auto [got, st2] = co_await cohort::recv<std::string>(world, cohort::any_source, 12);
          CHECK(got == "from " + std::to_string(st2.source()));
          co_await std::move(sent);
        },
        options);
  }
}

TEST_CASE("a message that is no whole number of elements is refused, and taken") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::string seven = "seven B";
    auto sent = cohort::send(world, seven, right_of(world), 13, cohort::as_future);
    const auto code = co_await code_of(cohort::recv<std::vector<int>>(world, left_of(world), 13));
    CHECK(code == cohort::errc::size_mismatch);
    CHECK(logged.contains("message.bytes=7"));
    co_await std::move(sent);
    const auto again = co_await code_of(
        cohort::with_deadline(cohort::recv<std::vector<int>>(world, left_of(world), 13), 20ms));
    CHECK(again == cohort::errc::deadline_exceeded);
  });
}

TEST_CASE("with checks::bounds a part of an element is refused, and taken") {
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const std::string seven = "seven B";
        std::array<int, 4> received{-1, -1, -1, -1};
        auto sent = cohort::send(world, seven, right_of(world), 13, cohort::as_future);
        const auto code = co_await code_of(cohort::recv(world, received, left_of(world), 13));
        CHECK(code == cohort::errc::size_mismatch);
        CHECK(received == std::array<int, 4>{-1, -1, -1, -1});
        CHECK(logged.contains("message.bytes=7"));
        co_await std::move(sent);
        const int value = 8;
        sent = cohort::send(world, value, right_of(world), 13, cohort::as_future);
        co_await cohort::recv(world, received, left_of(world), 13);
        CHECK(received[0] == 8);
        co_await std::move(sent);
      },
      with_bounds);
}

TEST_CASE("with checks::bounds a message of any size that is too long is an error of its own") {
  for (const std::size_t count : {3U, 10000U}) {
    on_world(
        [count](communicator world) -> task {
          const cohort::log::capture logged;
          const std::vector<int> mine(count, 1);
          std::array<int, 4> received{-1, -1, -1, -1};
          auto sent = cohort::send(world, mine, right_of(world), 14, cohort::as_future);
          const auto code = co_await code_of(
              cohort::recv(world, std::span(received).first(2), left_of(world), 14));
          CHECK(code == cohort::errc::message_too_long);
          CHECK(received == std::array<int, 4>{-1, -1, -1, -1});
          const std::string bytes = "message.bytes=" + std::to_string(4 * count);
          CHECK(logged.contains(bytes));
          CHECK(world.last_failure().code == cohort::errc::message_too_long);
          CHECK_THAT(world.last_failure().text, Catch::Matchers::ContainsSubstring(bytes));
          co_await std::move(sent);
          // The message is gone, and the next one arrives.
          const int value = 8;
          sent = cohort::send(world, value, right_of(world), 14, cohort::as_future);
          const auto st =
              co_await cohort::recv(world, received, cohort::any_source, cohort::any_tag);
          CHECK(st.count<int>() == 1);
          CHECK(received[0] == 8);
          co_await std::move(sent);
        },
        with_bounds);
  }
}

TEST_CASE("without it a short message that is too long is MPI's truncation error") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::vector<int> mine(3, 1);
    std::array<int, 2> received{-1, -1};
    auto sent = cohort::send(world, mine, right_of(world), 14, cohort::as_future);
    auto got = cohort::recv(world, received, left_of(world), 14, cohort::as_future);
    std::error_code code;
    std::string what;  // which message was too long for what
    try {
      co_await std::move(got);
    } catch (const std::system_error& failed) {
      code = failed.code();
      what = failed.what();
    }
    CHECK(code.category() == cohort::mpi::mpi_category());
    CHECK(cohort::mpi::error_class(code) == MPI_ERR_TRUNCATE);
    INFO(what);
    CHECK(what == world.last_failure().text);
    CHECK(what.find("recv #") != std::string::npos);
    CHECK(what.find("source=" + std::to_string(left_of(world))) != std::string::npos);
    CHECK(what.find("count=2") != std::string::npos);
    co_await std::move(sent);
  });
}

TEST_CASE("what an awaited verb throws says which operation has failed, and with what") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::vector<int> mine(3, 1);
    std::array<int, 2> received{-1, -1};
    const auto text_of = [](const std::system_error& failed) { return std::string(failed.what()); };
    auto sent = cohort::send(world, mine, right_of(world), 14, cohort::as_future);
    std::string what;
    try {
      co_await cohort::recv(world, received, left_of(world), 14);
    } catch (const std::system_error& failed) {
      CHECK(cohort::mpi::error_class(failed.code()) == MPI_ERR_TRUNCATE);
      what = text_of(failed);
    }
    CHECK(what == world.last_failure().text);
    CHECK(what.find("recv #") != std::string::npos);
    CHECK(what.find("count=2") != std::string::npos);
    co_await std::move(sent);

    what.clear();
    try {  // refused before MPI is called
      co_await cohort::send(world, mine, world.size(), 14);
    } catch (const std::system_error& failed) {
      what = text_of(failed);
    }
    CHECK(what == world.last_failure().text);
    CHECK(what.find("destination=" + std::to_string(world.size())) != std::string::npos);

    what.clear();
    try {  // there is nobody who could tell more
      co_await cohort::send(communicator(), mine, 0, 14);
    } catch (const std::system_error& failed) {
      what = text_of(failed);
    }
    CHECK(what == cohort::make_error_code(cohort::errc::invalid_communicator).message());

    // A cancelled one, whose end is told by the code alone.
    what.clear();
    try {
      co_await cohort::with_deadline(cohort::recv(world, received, left_of(world), 99),
                                     std::chrono::milliseconds(1));
    } catch (const cohort::deadline_error& failed) {
      what = text_of(failed);
    }
    CHECK(what.find("1 ms") != std::string::npos);
  });
}

TEST_CASE("strided views travel without a copy in between") {
  for (const auto& options : {cohort::communicator_options{}, with_bounds}) {
    on_world(
        [](communicator world) -> task {
          constexpr int n = 6;
          std::vector<int> matrix(n * n);
          std::iota(matrix.begin(), matrix.end(), 100 * world.rank());
          std::vector<int> into(n * n, -1);
          const cohort::strided_view column(matrix.data() + 2, n, 1, n);
          auto sent = cohort::send(world, column, right_of(world), 15, cohort::as_future);
          const auto st = co_await cohort::recv(
              world, cohort::strided_view(into.data() + 4, n, 1, n), left_of(world), 15);
          co_await std::move(sent);
          CHECK(st.count<int>() == n);
          for (int row = 0; row < n; ++row) {
            CHECK(into[static_cast<std::size_t>(row * n + 4)] ==
                  100 * left_of(world) + row * n + 2);
            CHECK(into[static_cast<std::size_t>(row * n + 3)] == -1);
          }
          // A column arrives as a row.
          std::array<int, n> row{};
          sent = cohort::send(world, column, right_of(world), 15, cohort::as_future);
          co_await cohort::recv(world, row, left_of(world), 15);
          co_await std::move(sent);
          CHECK(row[1] == 100 * left_of(world) + n + 2);
        },
        options);
  }
}

TEST_CASE("containers that are moved in come back") {
  on_world([](communicator world) -> task {
    std::vector<int> mine{world.rank(), 2, 3};
    const int* memory = mine.data();
    auto sent = cohort::send(world, std::move(mine), right_of(world), 16, cohort::as_future);
    auto [st, received] = co_await cohort::recv(world, std::vector<int>(5), left_of(world), 16);
    CHECK(st.count<int>() == 3);
    CHECK(received == std::vector<int>{left_of(world), 2, 3, 0, 0});
    std::vector<int> back = co_await std::move(sent);
    CHECK(back.data() == memory);
    CHECK(back.front() == world.rank());
  });
}

TEST_CASE("a send whose future is dropped over an owned buffer goes on alone") {
  on_world([](communicator world) -> task {
    static_cast<void>(cohort::send(world, std::vector<int>(50000, world.rank()), right_of(world),
                                   17, cohort::as_future));
    auto [data, st] = co_await cohort::recv<std::vector<int>>(world, left_of(world), 17);
    CHECK(data == std::vector<int>(50000, left_of(world)));
  });
}

TEST_CASE("a cancelled receive takes no message, and the next one does") {
  on_world([](communicator world) -> task {
    int first = -1;
    const auto code = co_await code_of(
        cohort::with_deadline(cohort::recv(world, first, left_of(world), 18), 5ms));
    CHECK(code == cohort::errc::deadline_exceeded);
    co_await meet(world);  // nobody sends before everybody has given up
    const int mine = world.rank();
    auto sent = cohort::send(world, mine, right_of(world), 18, cohort::as_future);
    int second = -1;
    co_await cohort::recv(world, second, left_of(world), 18);
    co_await std::move(sent);
    CHECK(first == -1);
    CHECK(second == left_of(world));
  });
}

TEST_CASE("a cancelled receive ends with operation_aborted, whichever way it was posted") {
  for (const auto& options : {cohort::communicator_options{}, with_bounds}) {
    on_world(
        [](communicator world) -> task {
          int value = -1;
          asio::cancellation_signal stop;
          std::vector<std::error_code> codes;
          const auto note = [&](std::error_code code, auto&&...) { codes.push_back(code); };
          cohort::recv(world, value, cohort::any_source, 19,
                       asio::bind_cancellation_slot(stop.slot(), note));
          co_await asio::post(asio::use_awaitable);
          stop.emit(asio::cancellation_type::total);
          stop.emit(asio::cancellation_type::terminal);  // a second time does no harm
          CHECK(codes.empty());                          // never from inside
          while (codes.empty()) co_await asio::post(asio::use_awaitable);
          CHECK(codes.front() == asio::error::operation_aborted);
          cohort::recv<std::vector<int>>(world, cohort::any_source, 19,
                                         asio::bind_cancellation_slot(stop.slot(), note));
          stop.emit(asio::cancellation_type::partial);
          while (codes.size() < 2) co_await asio::post(asio::use_awaitable);
          CHECK(codes.back() == asio::error::operation_aborted);
        },
        options);
  }
}

TEST_CASE("a borrowed send ignores cancellation until it is done") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::vector<int> mine(100000, world.rank());
    std::vector<int> received(mine.size());
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer later(executor, 30ms);
    auto sent =
        cohort::send<send_mode::synchronous>(world, mine, right_of(world), 21, cohort::as_future);
    auto limited =
        asio::co_spawn(executor, cohort::with_deadline(std::move(sent), 2ms), cohort::as_future);
    co_await later.async_wait(asio::use_awaitable);
    CHECK_FALSE(limited.is_ready());
    co_await meet(world);
    co_await cohort::recv(world, received, left_of(world), 21);
    co_await std::move(limited);
    CHECK(received.back() == left_of(world));
    CHECK(logged.contains("send<synchronous>"));
    CHECK(logged.contains("MPI cannot give it up"));
  });
}

TEST_CASE("an exchange along the ring needs no order") {
  for (const auto& options : {cohort::communicator_options{}, with_bounds}) {
    on_world(
        [](communicator world) -> task {
          for (const std::size_t count : {1U, 100000U}) {
            const std::vector<int> out(count, world.rank());
            std::vector<int> in(count, -1);
            const auto st =
                co_await cohort::send_recv(world, out, right_of(world), in, left_of(world), 22);
            CHECK(in == std::vector<int>(count, left_of(world)));
            CHECK(st.source() == left_of(world));
            CHECK(st.count<int>() == count);
          }
        },
        options);
  }
}

TEST_CASE("an exchange may be of different types, with nobody on one side, and owned") {
  on_world([](communicator world) -> task {
    const int last = world.size() - 1;
    const int to = world.rank() == last ? cohort::no_rank : world.rank() + 1;
    const int from = world.rank() == 0 ? cohort::no_rank : world.rank() - 1;
    double value = world.rank();
    std::array<double, 2> halo{-1, -1};
    const auto st = co_await cohort::send_recv(world, value, to, halo, from, 23);
    CHECK(halo[0] == (world.rank() == 0 ? -1.0 : world.rank() - 1.0));
    CHECK(halo[1] == -1);
    CHECK(st.source() == from);

    std::string text = "rank " + std::to_string(world.rank());
    auto [st2, sent, got] = co_await cohort::send_recv(
        world, std::move(text), right_of(world), std::vector<char>(20), cohort::any_source, 24);
    CHECK(sent == "rank " + std::to_string(world.rank()));
    CHECK(std::string(got.data(), st2.count<char>()) == "rank " + std::to_string(left_of(world)));
  });
}

TEST_CASE("cancelling an exchange gives up the receive and waits for the send") {
  for (const auto& options : {cohort::communicator_options{}, with_bounds}) {
    on_world(
        [](communicator world) -> task {
          if (world.size() < 3) co_return;  // nobody may send what is given up
          const std::vector<int> out(100000, world.rank());
          int in = -1;
          asio::cancellation_signal stop;
          std::error_code ended;
          bool done = false;
          const auto note = [&](std::error_code code, auto&&...) {
            ended = code;
            done = true;
          };
          cohort::send_recv(world, out, right_of(world), in, right_of(world), 25,
                            asio::bind_cancellation_slot(stop.slot(), note));
          stop.emit(asio::cancellation_type::terminal);
          asio::steady_timer later(co_await asio::this_coro::executor, 10ms);
          co_await later.async_wait(asio::use_awaitable);
          CHECK_FALSE(done);  // the send is large and nobody receives it
          co_await meet(world);
          auto [data, st] = co_await cohort::recv<std::vector<int>>(world, left_of(world), 25);
          CHECK(data == std::vector<int>(100000, left_of(world)));
          while (!done) {
            co_await asio::post(asio::use_awaitable);
          }
          CHECK(ended == asio::error::operation_aborted);
          CHECK(in == -1);
        },
        options);
  }
}

TEST_CASE("an exchange with a message that is too long says so and completes its send") {
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const std::vector<int> out(5, world.rank());
        std::array<int, 2> in{-1, -1};
        const auto code = co_await code_of(
            cohort::send_recv(world, out, right_of(world), in, left_of(world), 26));
        CHECK(code == cohort::errc::message_too_long);
        CHECK(logged.contains("message.bytes=20"));
        CHECK(in[0] == -1);
      },
      with_bounds);
}

TEST_CASE("a thousand messages in flight find their buffers") {
  on_world([](communicator world) -> task {
    constexpr int count = 1000;
    std::vector<int> out(count);
    std::iota(out.begin(), out.end(), 0);
    std::vector<int> in(count, -1);
    std::vector<cohort::future<cohort::status>> received;
    std::vector<cohort::future<>> sent;
    for (int i = count - 1; i >= 0; --i) {
      received.push_back(cohort::recv(world, in[static_cast<std::size_t>(i)], left_of(world), i,
                                      cohort::as_future));
    }
    for (int i = 0; i < count; ++i) {
      sent.push_back(cohort::send(world, out[static_cast<std::size_t>(i)], right_of(world), i,
                                  cohort::as_future));
    }
    co_await cohort::when_all(std::move(sent));
    const auto all = co_await cohort::when_all(std::move(received));
    CHECK(in == out);
    for (int i = 0; i < count; ++i) CHECK(all[static_cast<std::size_t>(i)].tag() == count - 1 - i);
  });
}
