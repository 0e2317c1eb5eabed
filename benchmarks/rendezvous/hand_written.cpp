// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace hand_written {
namespace {

struct key {
  int source;
  int destination;
  std::string name;
  std::uint64_t frame;
  std::uint64_t iteration;
  bool operator==(const key&) const = default;
};
struct hash {
  std::size_t operator()(const key& one) const noexcept {
    return cohort::key_hash()({one.source, 0, one.destination, one.name, one.frame, one.iteration});
  }
};

/// What one writes in half an hour.
class table {
 public:
  using callback = std::function<void(double)>;
  explicit table(asio::any_io_executor executor) : executor_(std::move(executor)) {}

  void send(key where, double value) {
    callback ready;
    {
      const std::lock_guard hold(mutex_);
      entry& one = entries_[where];
      if (one.waiting.empty()) {
        one.values.push_back(value);
        return;
      }
      ready = std::move(one.waiting.front());
      one.waiting.erase(one.waiting.begin());
      if (one.waiting.empty()) entries_.erase(where);
    }
    asio::post(executor_, [ready = std::move(ready), value] { ready(value); });
  }
  void receive(key where, callback ready) {
    double value = 0;
    {
      const std::lock_guard hold(mutex_);
      entry& one = entries_[where];
      if (one.values.empty()) {
        one.waiting.push_back(std::move(ready));
        return;
      }
      value = one.values.front();
      one.values.erase(one.values.begin());
      if (one.values.empty()) entries_.erase(where);
    }
    asio::post(executor_, [ready = std::move(ready), value] { ready(value); });
  }

 private:
  struct entry {
    std::vector<double> values;
    std::vector<callback> waiting;
  };
  asio::any_io_executor executor_;
  std::mutex mutex_;
  std::unordered_map<key, entry, hash> entries_;
};

/// Matches once more when the last match has been called.
struct chain {
  table& where;
  int left;
  std::function<void()> done;
  void next(double value) {
    if (left-- == 0) return done();
    where.receive({0, 0, "activations", 0, 0}, [this](double got) { next(got); });
    where.send({0, 0, "activations", 0, 0}, value);
  }
};

}  // namespace

asio::awaitable<double> match(int rounds) {
  auto executor = co_await asio::this_coro::executor;
  table where(executor);
  asio::steady_timer finished(executor, asio::steady_timer::time_point::max());
  const auto start = bench::clock::now();
  double time = 0;
  chain run{where, rounds, [&] {
              time = bench::nanoseconds_since(start);
              finished.cancel();
            }};
  run.next(1);
  co_await finished.async_wait(cohort::as_tuple(asio::use_awaitable));
  co_return time / rounds;
}

}  // namespace hand_written
