// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "cpu_time.hpp"

#include <cohort/comm/control.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/context.hpp>

#include <array>
#include <cstring>

namespace with_cohort {
namespace {

/// Runs the loop until it has nothing to do, and says what that has cost.
wait_report run(asio::io_context& io) {
  const auto before = cohort::engine_stats(io);
  const cpu_time cpu;
  io.restart();
  io.run();
  const auto after = cohort::engine_stats(io);
  wait_report report;
  report.cpu_percent = cpu.percent();
  report.laps = static_cast<double>(after.laps - before.laps);
  report.parked = static_cast<double>(after.parked - before.parked);
  return report;
}

asio::awaitable<void> receive(cohort::communicator world, schedule plan,
                              std::vector<double>& wake_ups) {
  for (int i = 0; i < plan.messages; ++i) {
    double sent = 0;
    co_await cohort::recv(world, sent, 1, 0);
    wake_ups.push_back(now() - sent);
  }
}

asio::awaitable<void> send(cohort::communicator world, schedule plan) {
  asio::steady_timer timer(world.get_executor());
  for (int i = 0; i < plan.messages; ++i) {
    timer.expires_after(plan.quiet + std::chrono::microseconds(370) * i);
    co_await timer.async_wait(asio::use_awaitable);
    const double sent = now();
    const auto bytes = std::as_bytes(std::span(&sent, 1));
    co_await cohort::comm::control_send(world, bytes, 0, 0, asio::use_awaitable);
  }
}

/// Posts the next control receive when one has completed.
struct control_receiver {
  cohort::communicator world;
  asio::steady_timer alive;  // control receives do not keep the loop alive
  int left;
  std::vector<double> wake_ups;
  std::array<std::byte, sizeof(double)> message;

  void post() {
    const auto received = [this](std::error_code error, const cohort::status&) {
      if (error) throw std::system_error(error);
      double sent = 0;
      std::memcpy(&sent, message.data(), sizeof sent);
      wake_ups.push_back(now() - sent);
      if (--left == 0) {
        alive.cancel();
      } else {
        post();
      }
    };
    cohort::comm::control_recv(world, std::span(message), 1, 0, received);
  }
};

}  // namespace

wait_report wait_for_timer(asio::io_context& io, std::chrono::milliseconds duration) {
  asio::steady_timer timer(io, duration);
  timer.async_wait([](std::error_code) {});
  return run(io);
}

wait_report wait_for_messages(const cohort::communicator& world, asio::io_context& io,
                              schedule plan) {
  std::vector<double> wake_ups;
  asio::co_spawn(io, receive(world, plan, wake_ups), cohort::rethrow);
  auto report = run(io);
  report.wake_ups = std::move(wake_ups);
  return report;
}

wait_report wait_for_control(const cohort::communicator& world, asio::io_context& io,
                             schedule plan) {
  control_receiver receiver{world, asio::steady_timer(io), plan.messages, {}, {}};
  receiver.alive.expires_after(std::chrono::hours(1));
  receiver.alive.async_wait([](std::error_code) {});
  receiver.post();
  auto report = run(io);
  report.wake_ups = std::move(receiver.wake_ups);
  return report;
}

void send_control(const cohort::communicator& world, asio::io_context& io, schedule plan) {
  asio::co_spawn(io, send(world, plan), cohort::rethrow);
  run(io);
}

}  // namespace with_cohort
