// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/cluster/call_context.hpp>

#include <chrono>
#include <ctime>
#include <stdexcept>

namespace with_cohort {
namespace {

using cohort::cluster::call_context;

// What the worker runs.
void nothing() {}
asio::awaitable<void> nothing_awaited() { co_return; }
std::vector<std::byte> echo(std::vector<std::byte> bytes) { return bytes; }
std::uint16_t start_raw(call_context& call, std::uint64_t size) {
  return raw_asio::serve(call.context(), size);
}

template <auto Function>
asio::awaitable<std::vector<double>> empty_calls(workers all, int rounds) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(rounds));
  const int id = all.ids().front();
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    co_await all.call<Function>(id);
    times.push_back(bench::nanoseconds_since(start));
  }
  co_return times;
}

double processor_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}
void start_ping_pong(int rounds) { raw_mpi::answer(rounds); }

}  // namespace

asio::awaitable<std::vector<double>> idle(workers all, std::chrono::seconds time) {
  std::vector<double> shares;
  std::vector<double> before{processor_time()};
  for (const int id : all.ids()) before.push_back(co_await all.call<&processor_time>(id));
  const auto start = bench::clock::now();
  asio::steady_timer timer(all.context(), time);
  co_await timer.async_wait(asio::use_awaitable);
  const double seconds = bench::nanoseconds_since(start) * 1e-9;
  shares.push_back((processor_time() - before[0]) / seconds);
  for (const int id : all.ids()) {
    const double after = co_await all.call<&processor_time>(id);
    shares.push_back((after - before[shares.size()]) / seconds);
  }
  co_return shares;
}

asio::awaitable<std::vector<double>> raw_ping_pong(workers all, int rounds) {
  all.notify<&start_ping_pong>(all.ids().front(), rounds);
  asio::steady_timer until_it_is_there(all.context(), std::chrono::milliseconds(1));
  co_await until_it_is_there.async_wait(asio::use_awaitable);
  co_return raw_mpi::ask(rounds);
}

asio::awaitable<asio::ip::tcp::socket> connect_raw(workers all, std::size_t size) {
  const std::uint16_t port = co_await all.call<&start_raw>(0, size);
  co_return co_await raw_asio::connect(port);
}

asio::awaitable<std::vector<double>> calls(workers all, int rounds) {
  return empty_calls<&nothing>(std::move(all), rounds);
}
asio::awaitable<std::vector<double>> coroutine_calls(workers all, int rounds) {
  return empty_calls<&nothing_awaited>(std::move(all), rounds);
}

asio::awaitable<std::vector<double>> echoes(workers all, const std::vector<std::byte>& message,
                                            int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    const auto back = co_await all.call<&echo>(all.ids().front(), message);
    times.push_back(bench::nanoseconds_since(start));
    if (back.size() != message.size()) throw std::runtime_error("an echo of another size");
  }
  co_return times;
}

asio::awaitable<std::vector<double>> moved_echoes(workers all, std::vector<std::byte>& message,
                                                  int rounds) {
  const std::size_t size = message.size();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    message = co_await all.call<&echo>(all.ids().front(), std::move(message));
    times.push_back(bench::nanoseconds_since(start));
    if (message.size() != size) throw std::runtime_error("an echo of another size");
  }
  co_return times;
}

}  // namespace with_cohort
