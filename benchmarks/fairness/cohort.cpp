// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Does the engine leave the loop to others? Handlers, a timer and a socket are timed by turns alone
// and beside a receive that is pending for ever; then the timer beside a loop of all_reduce.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>

#include <CLI/CLI.hpp>

#include <thread>

namespace {

constexpr int nobody_sends = 77;

/// A receive that is pending while this lives.
class pending_receive {
 public:
  explicit pending_receive(const cohort::communicator& world) : state_(std::make_shared<state>()) {
    auto ended = [alive = state_](std::error_code, const cohort::status&) {};
    cohort::recv(world, state_->value, cohort::any_source, nobody_sends,
                 asio::bind_cancellation_slot(state_->signal.slot(), std::move(ended)));
  }
  ~pending_receive() { state_->signal.emit(asio::cancellation_type::terminal); }
  pending_receive(const pending_receive&) = delete;

 private:
  struct state {  // both are needed until the receive has ended
    asio::cancellation_signal signal;
    double value = 0;
  };
  std::shared_ptr<state> state_;
};

/// Lets what was cancelled end.
asio::awaitable<void> settle(asio::io_context& io) {
  for (int i = 0; i < 2000; ++i) co_await asio::post(io, asio::use_awaitable);
}

struct pair_of_series {
  std::vector<double> alone;
  std::vector<double> beside;
};

void report_ratio(const char* what, const pair_of_series& times, double target) {
  const auto ratio = bench::ratios(times.beside, times.alone);
  bench::print_row(what, bench::median(ratio), "x", target);
  std::printf("      %.0f ns beside, %.0f ns alone; half of the ratios %.3f to %.3f\n",
              bench::median(times.beside), bench::median(times.alone),
              bench::percentile(ratio, 0.25), bench::percentile(ratio, 0.75));
}

void report_lateness(const char* what, const pair_of_series& times, double share, double target) {
  const double beside = bench::percentile(times.beside, share) / 1000;
  const double alone = bench::percentile(times.alone, share) / 1000;
  bench::print_row(what, beside - alone, "us", target);
  std::printf("      late by %.1f us beside, %.1f us alone\n", beside, alone);
}

/// The post loop where no timer and no socket exists: Asio's fastest.
asio::awaitable<void> one_post_chunk(int rounds, double& time) {
  time = co_await plain_asio::post_loop(rounds);
}

void measure_bare_post_loop(int chunks) {
  pair_of_series times;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    double alone = 0;
    double beside = 0;
    asio::io_context bare;
    asio::co_spawn(bare, one_post_chunk(20'000, alone), cohort::rethrow);
    bare.run();
    {
      asio::io_context io;
      cohort::communicator self(io, MPI_COMM_SELF);
      auto forever = std::make_unique<pending_receive>(self);
      asio::co_spawn(io, one_post_chunk(20'000, beside), [&](std::exception_ptr problem) {
        forever.reset();
        if (problem) std::rethrow_exception(problem);
      });
      io.run();
    }
    times.alone.push_back(alone);
    times.beside.push_back(beside);
  }
  report_ratio("co_await post, loop without timers or sockets", times, 2.6);
}

asio::awaitable<void> measure_beside_receive(cohort::communicator world, asio::io_context& io,
                                             asio::ip::tcp::socket& socket, int chunks) {
  pair_of_series posts;
  pair_of_series echoes;
  pair_of_series timers;
  asio::steady_timer timer(io);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const bool beside : {false, true}) {
      std::unique_ptr<pending_receive> forever;
      if (beside) forever = std::make_unique<pending_receive>(world);
      const auto into = [&](pair_of_series& series) -> std::vector<double>& {
        return beside ? series.beside : series.alone;
      };
      const double post = co_await plain_asio::post_loop(20'000);
      into(posts).push_back(post);
      const double round_trip = co_await plain_asio::echo(socket, 100);
      into(echoes).push_back(round_trip);
      for (int i = 0; i < 20; ++i) {
        const double late = co_await plain_asio::timer_lateness(timer);
        into(timers).push_back(late);
      }
      forever.reset();
      co_await settle(io);
    }
  }
  report_ratio("co_await post, loop with a timer and a socket", posts, 2.6);
  report_ratio("TCP echo round trip", echoes, 1.3);
  report_lateness("timer of 1 ms, later at p50 by", timers, 0.5, 50);
}

asio::awaitable<void> reduce_until(cohort::communicator world, const bool& stop, long& rounds) {
  double value = 1;
  for (;;) {
    value = stop ? 1 : 0;
    co_await cohort::all_reduce(world, value, cohort::op::max);
    ++rounds;
    if (value != 0) co_return;
  }
}

asio::awaitable<void> measure_beside_all_reduce(cohort::communicator world, asio::io_context& io,
                                                int timers) {
  pair_of_series times;
  long rounds = 0;
  asio::steady_timer timer(io);
  double in_loop = 0;
  for (int turn = 0; turn < 10; ++turn) {
    for (int i = 0; i < timers / 10; ++i) {
      times.alone.push_back(co_await plain_asio::timer_lateness(timer));
    }
    bool stop = false;
    auto reducing = asio::co_spawn(io, reduce_until(world, stop, rounds), cohort::as_future);
    const auto start = bench::clock::now();
    for (int i = 0; i < timers / 10; ++i) {
      times.beside.push_back(co_await plain_asio::timer_lateness(timer));
    }
    stop = true;
    co_await std::move(reducing);
    in_loop += bench::nanoseconds_since(start);
  }
  if (world.rank() != 0) co_return;
  report_lateness("timer beside an 8 B all_reduce loop, later at p99 by", times, 0.99, 200);
  report_lateness("  the same at p50", times, 0.5, 0);
  std::printf("      %.0f ns per all_reduce meanwhile\n", in_loop / static_cast<double>(rounds));
}

asio::awaitable<void> measure_all(cohort::communicator world, asio::io_context& io,
                                  asio::ip::tcp::socket& socket, int chunks) {
  if (world.rank() == 0) co_await measure_beside_receive(world, io, socket, chunks);
  double ready = 0;
  co_await cohort::all_reduce(world, ready, cohort::op::max);
  co_await measure_beside_all_reduce(world, io, 2000);
}

}  // namespace

int main(int argc, char** argv) {
  int chunks = 100;
  CLI::App app("Whether the engine leaves the loop to others; start it with mpirun -np 2");
  app.add_option("--chunks", chunks, "chunks of each measurement");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    bench::print_machine(2);
    measure_bare_post_loop(chunks);
  }
  asio::io_context io;
  cohort::communicator world(io);
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  std::thread server([&] { plain_asio::serve_echo(acceptor); });
  asio::ip::tcp::socket socket(io);
  socket.connect(acceptor.local_endpoint());
  socket.set_option(asio::ip::tcp::no_delay(true));
  asio::co_spawn(io, measure_all(world, io, socket, chunks), cohort::rethrow);
  io.run();
  socket.close();
  server.join();
}
