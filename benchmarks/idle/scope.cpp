// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "cpu_time.hpp"

#include <cohort/graph.hpp>
#include <cohort/progress/context.hpp>

namespace with_cohort {
namespace {

namespace graph = cohort::graph;

asio::awaitable<void> await_values(graph::scope& scope, schedule plan, wait_report* report) {
  auto value = scope.tasks<double>("value", graph::on(1));
  const cpu_time cpu;  // without the opening
  for (int i = 0; i < plan.messages; ++i) {
    const double sent = co_await value(i).get();
    report->wake_ups.push_back(now() - sent);
  }
  report->cpu_percent = cpu.percent();
}

asio::awaitable<void> put_values(graph::scope& scope, schedule plan, wait_report*) {
  auto value = scope.tasks<double>("value", graph::on(1));
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (int i = 0; i < plan.messages; ++i) {
    timer.expires_after(plan.quiet + std::chrono::microseconds(370) * i);
    co_await timer.async_wait(asio::use_awaitable);
    value(i).put(now());
  }
}

asio::awaitable<void> await_nobody(graph::scope& scope, schedule plan, wait_report* report) {
  auto value = scope.tasks<double>("value", graph::on(1));
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const cpu_time cpu;
  for (int i = 0; i < plan.messages; ++i) {
    timer.expires_after(plan.quiet);
    co_await timer.async_wait(asio::use_awaitable);
    const double begun = now();
    try {
      co_await value(i).get();
    } catch (const graph::error&) {
      report->wake_ups.push_back(now() - begun);
    }
  }
  report->cpu_percent = cpu.percent();
}

asio::awaitable<void> spawn_nothing_in(graph::scope&, schedule, wait_report*) { co_return; }

using program = asio::awaitable<void>(graph::scope&, schedule, wait_report*);

wait_report run(const cohort::communicator& world, asio::io_context& io, schedule plan,
                program* what) {
  wait_report report;
  const auto before = cohort::engine_stats(io);
  graph::tasks graphs{world};
  asio::co_spawn(io, graphs.run("idle", what, plan, &report), cohort::rethrow);
  io.restart();
  io.run();
  const auto after = cohort::engine_stats(io);
  report.laps = static_cast<double>(after.laps - before.laps);
  report.parked = static_cast<double>(after.parked - before.parked);
  return report;
}

}  // namespace

wait_report wait_in_scope(const cohort::communicator& world, asio::io_context& io, schedule plan) {
  return run(world, io, plan, &await_values);
}

void put_in_scope(const cohort::communicator& world, asio::io_context& io, schedule plan) {
  run(world, io, plan, &put_values);
}

wait_report wait_for_nobody(const cohort::communicator& world, asio::io_context& io,
                            schedule plan) {
  return run(world, io, plan, &await_nobody);
}

void spawn_nothing(const cohort::communicator& world, asio::io_context& io, schedule plan) {
  run(world, io, plan, &spawn_nothing_in);
}

}  // namespace with_cohort
