// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "cpu_time.hpp"

#include <cohort/comm/channel.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/context.hpp>

#include <cstring>
#include <memory>

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

std::shared_ptr<cohort::comm::mailbox> mailbox_on(const cohort::communicator& world) {
  return std::make_shared<cohort::comm::mailbox>(world, cohort::comm::channel_options{.tag = 1});
}

asio::awaitable<void> send(cohort::communicator world, schedule plan) {
  const auto messages = mailbox_on(world);
  messages->open({});
  asio::steady_timer timer(world.get_executor());
  for (int i = 0; i < plan.messages; ++i) {
    timer.expires_after(plan.quiet + std::chrono::microseconds(370) * i);
    co_await timer.async_wait(asio::use_awaitable);
    const double sent = now();
    const auto bytes = std::as_bytes(std::span(&sent, 1));
    messages->send_at_once(0, 0, bytes);
  }
  messages->close();
}

/// Keeps the loop alive until so many have come, for a mailbox does not.
class control_receiver final : public cohort::comm::mailbox::owner {
 public:
  control_receiver(asio::io_context& io, int messages) : alive_(io), left_(messages) {
    alive_.expires_after(std::chrono::hours(1));
    alive_.async_wait([](std::error_code) {});
  }
  std::vector<double> wake_ups;

 private:
  void received(int, unsigned, std::span<const std::byte> message) override {
    double sent = 0;
    std::memcpy(&sent, message.data(), sizeof sent);
    wake_ups.push_back(now() - sent);
    if (--left_ == 0) alive_.cancel();
  }
  void sent(int, std::error_code) override {}
  void failed(int, std::error_code error) override { throw std::system_error(error); }

  asio::steady_timer alive_;
  int left_;
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
  const auto receiver = std::make_shared<control_receiver>(io, plan.messages);
  const auto messages = mailbox_on(world);
  messages->open(receiver);
  auto report = run(io);
  report.wake_ups = std::move(receiver->wake_ups);
  messages->close();
  return report;
}

void send_control(const cohort::communicator& world, asio::io_context& io, schedule plan) {
  asio::co_spawn(io, send(world, plan), cohort::rethrow);
  run(io);
}

}  // namespace with_cohort
