// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Random operations, on devices and on the host, in another order on each rank.

#include "support.hpp"

#include <cstdint>
#include <memory>
#include <random>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using random_source = std::mt19937_64;

/// From 0 to n - 1; distributions differ between libraries.
std::size_t pick(random_source& from, std::size_t n) { return from() % n; }

/// One operation of one step, the same on all ranks but for its data.
class random_operation {
 public:
  virtual ~random_operation() = default;
  virtual asio::awaitable<void> prepare(device::stream on) = 0;
  virtual void submit(const coordinator& coord, const cohort::call_options& options) = 0;
  virtual asio::awaitable<void> check() = 0;

  std::string name;
  std::int32_t priority = 0;
  ending end;
};

template <class T>
class random_reduction final : public random_operation {
 public:
  random_reduction(random_source& common, int rank, int ranks, bool on_host)
      : rank_(rank), ranks_(ranks), on_host_(on_host) {
    size_ = pick(common, 8) == 0 ? 5000 + pick(common, 5000) : pick(common, 300);
    base_ = static_cast<int>(pick(common, 7)) - 3;
    which_ = pick(common, 4);
    if (std::is_floating_point_v<T> && pick(common, 3) == 0) scale_ = 2;
  }
  asio::awaitable<void> prepare(device::stream on) override {
    const T mine = static_cast<T>(base_ + rank_);
    if (on_host_) {
      host_.assign(size_, mine);
    } else {
      data_ = co_await filled(on, size_, mine);
    }
  }
  void submit(const coordinator& coord, const cohort::call_options& given) override {
    cohort::call_options options = given;
    options.prescale = scale_;
    if (on_host_) {
      options.ends = cohort::until::complete;
      start(coord, host_, options);
    } else {
      start(coord, data_, options);
    }
  }
  asio::awaitable<void> check() override {
    std::vector<T> got = host_;
    if (!on_host_ && size_ != 0) got = co_await now_in(data_);
    const int first = base_;
    const int last = base_ + ranks_ - 1;
    const int sum = ranks_ * base_ + ranks_ * (ranks_ - 1) / 2;
    T wanted{};
    if (which_ == 0) wanted = static_cast<T>(sum);
    if (which_ == 1) wanted = static_cast<T>(last);
    if (which_ == 2) wanted = static_cast<T>(first);
    if (which_ == 3) wanted = static_cast<T>(static_cast<T>(sum) / static_cast<T>(ranks_));
    wanted = static_cast<T>(wanted * static_cast<T>(scale_));
    INFO(name << " of " << size_ << ", reduction " << which_ << (on_host_ ? ", host" : ""));
    CHECK(got.size() == size_);
    // A factor of 1/ranks is rounded before the sum.
    const double room = which_ == 3 && std::is_floating_point_v<T> ? 1e-5 : 0;
    CHECK(std::all_of(got.begin(), got.end(), [&](T one) {
      return std::abs(static_cast<double>(one) - static_cast<double>(wanted)) <= room;
    }));
  }

 private:
  template <class Buffer>
  void start(const coordinator& coord, Buffer& buffer, const cohort::call_options& options) {
    if (which_ == 0) coord.all_reduce(name, buffer, op::sum, options, end.handler());
    if (which_ == 1) coord.all_reduce(name, buffer, op::max, options, end.handler());
    if (which_ == 2) coord.all_reduce(name, buffer, op::min, options, end.handler());
    if (which_ == 3) coord.all_reduce(name, buffer, op::average, options, end.handler());
  }
  int rank_;
  int ranks_;
  bool on_host_;
  std::size_t size_ = 0;
  int base_ = 0;
  std::size_t which_ = 0;
  double scale_ = 1;
  device::vector<T> data_;
  std::vector<T> host_;
};

/// A broadcast, or an all_gather of as many elements as the rank says.
class random_move final : public random_operation {
 public:
  random_move(random_source& common, int rank, int ranks)
      : rank_(rank), ranks_(ranks), gathers_(pick(common, 2) == 0) {
    size_ = 1 + pick(common, 200);
    root_ = static_cast<int>(pick(common, static_cast<std::size_t>(ranks)));
  }
  asio::awaitable<void> prepare(device::stream on) override {
    const std::size_t mine = gathers_ ? size_ + static_cast<std::size_t>(rank_) : size_;
    data_ = co_await filled(on, mine, std::int64_t{rank_});
  }
  void submit(const coordinator& coord, const cohort::call_options& options) override {
    if (!gathers_) {
      coord.broadcast(name, data_, root_, options, end.handler());
      return;
    }
    cohort::call_options whole = options;
    whole.ends = cohort::until::complete;
    coord.all_gather(name, data_, whole,
                     [this](std::exception_ptr why, device::vector<std::int64_t> come) {
                       data_ = std::move(come);
                       end.handler()(why);
                     });
  }
  asio::awaitable<void> check() override {
    std::vector<std::int64_t> wanted(gathers_ ? 0 : size_, root_);
    for (int rank = 0; gathers_ && rank < ranks_; ++rank) {
      wanted.insert(wanted.end(), size_ + static_cast<std::size_t>(rank), rank);
    }
    INFO(name << (gathers_ ? ": all_gather" : ": broadcast"));
    CHECK(co_await now_in(data_) == wanted);
  }

 private:
  int rank_;
  int ranks_;
  bool gathers_;
  std::size_t size_ = 0;
  int root_ = 0;
  device::vector<std::int64_t> data_;
};

std::unique_ptr<random_operation> random_one(random_source& common, int rank, int ranks) {
  const bool on_host = pick(common, 4) == 0;
  switch (pick(common, 5)) {
    case 0:
      return std::make_unique<random_reduction<std::int32_t>>(common, rank, ranks, on_host);
    case 1:
      return std::make_unique<random_reduction<double>>(common, rank, ranks, on_host);
    case 2:
      return std::make_unique<random_move>(common, rank, ranks);
    default:
      return std::make_unique<random_reduction<float>>(common, rank, ranks, on_host);
  }
}

asio::awaitable<void> random_job(communicator world, std::uint64_t seed) {
  INFO("seed " << seed);
  random_source common(seed);
  random_source mine(seed * 1000 + static_cast<std::uint64_t>(world.rank()));
  nccl::backend_options how;
  how.pack_below = pick(common, 2) == 0 ? 4096 : std::size_t{4} << 20U;
  coordinator coord(world, nccl::backend(how));
  std::vector<device::stream> streams(3);
  for (int step = 0; step < 4; ++step) {
    std::vector<std::unique_ptr<random_operation>> all;
    for (int i = 0; i < 24; ++i) {
      all.push_back(random_one(common, world.rank(), world.size()));
      // Some names come again with other sizes.
      all.back()->name = std::to_string(i) + (i % 3 == 0 ? "" : " of " + std::to_string(step));
      all.back()->priority = static_cast<std::int32_t>(pick(common, 3));
    }
    for (const auto& each : all) co_await each->prepare(streams[pick(mine, streams.size())]);
    std::vector<random_operation*> order;
    for (const auto& each : all) order.push_back(each.get());
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[pick(mine, i)]);
    for (random_operation* const each : order) {
      cohort::call_options options;
      options.priority = each->priority;
      if (pick(mine, 2) == 0) options.ends = cohort::until::enqueued;
      each->submit(coord, options);
      if (pick(mine, 6) == 0) co_await pause(1ms);
    }
    CHECK(co_await soon([&] {
      return std::all_of(all.begin(), all.end(), [](const auto& one) { return one->end.over; });
    }));
    for (const auto& each : all) {
      INFO(each->name << ": " << each->end.text());
      CHECK(each->end.well());
    }
    for (const auto& each : all) co_await each->check();
  }
  co_await coord.shutdown();
  CHECK_DOUBLE(fake_nccl::cycles().empty());
}

}  // namespace

TEST_CASE("random operations in another order on each rank are right") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4, 5, 6);
  on_gpus([seed](communicator world) { return random_job(world, seed); });
}
