// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>

namespace with_cohort {

receives::receives(const cohort::communicator& world, asio::io_context& io, int tag, int count)
    : world_(world),
      io_(io),
      tag_(tag),
      values_(static_cast<std::size_t>(count)),
      signals_(values_.size()) {
  for (std::size_t slot = 0; slot < values_.size(); ++slot) post(slot);
}

receives::~receives() {
  for (auto& signal : signals_) signal.emit(asio::cancellation_type::terminal);
  io_.restart();
  io_.run();
}

void receives::post(std::size_t slot) {
  const auto finished = [this, slot](std::error_code error, const cohort::status&) {
    if (error) return;
    finished_.push_back(slot);
    if (finished_.size() == wanted_) all_finished_ = bench::clock::now();
  };
  cohort::recv(world_, values_[slot], world_.rank(), tag_,
               asio::bind_cancellation_slot(signals_[slot].slot(), finished));
}

double receives::test(std::chrono::nanoseconds duration) {
  const auto before = cohort::engine_stats(io_).tests;
  io_.restart();
  const auto start = bench::clock::now();
  io_.run_for(duration);
  const double elapsed = bench::nanoseconds_since(start);
  return elapsed / static_cast<double>(cohort::engine_stats(io_).tests - before);
}

double receives::complete(int count) {
  const double value = 1;
  for (int i = 0; i < count; ++i) {
    MPI_Send(&value, 1, MPI_DOUBLE, world_.rank(), tag_, world_.native());
  }
  wanted_ = static_cast<std::size_t>(count);
  io_.restart();
  const auto start = bench::clock::now();
  while (finished_.size() < wanted_) io_.poll_one();
  for (const std::size_t slot : std::exchange(finished_, {})) post(slot);
  return std::chrono::duration<double, std::nano>(all_finished_ - start).count();
}

namespace {

/// Sends, receives, and begins again with the next message.
struct pair_of_messages {
  cohort::communicator world;
  int tag;
  int left;
  double out = 1;
  double in = 0;

  void start() {
    if (left-- == 0) return;
    cohort::recv(world, in, world.rank(), tag, [this](std::error_code error, cohort::status) {
      if (error) throw std::system_error(error);
      start();
    });
    cohort::send(world, out, world.rank(), tag, [](std::error_code error) {
      if (error) throw std::system_error(error);
    });
  }
};

}  // namespace

void exchange(const cohort::communicator& world, asio::io_context& io, int total) {
  constexpr int in_flight = 64;
  std::vector<pair_of_messages> pairs;
  for (int i = 0; i < in_flight; ++i) pairs.push_back({world, 1000 + i, total / in_flight});
  for (auto& pair : pairs) pair.start();
  io.restart();
  io.run();
}

}  // namespace with_cohort
