// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::output_queue`: between the loop and sinks that may be slow.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Brings lines to the sinks on a thread of its own, so that a slow sink never stalls the loop. At
/// most `bound` bytes of lines wait.
///
/// What a sink throws is logged once for that sink; it misses that line and gets the next, the
/// other sinks miss nothing.
///
/// Everything pushed is given to the sinks before the destructor returns, unless that takes longer
/// than `last_bound`: then the rest is dropped, their number is logged, and the thread ends by
/// itself when the sink returns, so a sink must own what it uses.
template <class Any>
class basic_output_queue {
 public:
  using duration = std::chrono::nanoseconds;

  explicit basic_output_queue(std::vector<output_sink> sinks, std::size_t bound = 4 * 1024 * 1024,
                              overflow_policy overflow = overflow_policy::drop_oldest,
                              duration last_bound = std::chrono::seconds(2))
      : state_(std::make_shared<state>(std::move(sinks), bound, overflow)),
        last_bound_(last_bound) {
    state_->weak_ = state_;
    thread_ = std::thread([here = state_] { here->run(); });
  }
  ~basic_output_queue() {
    std::size_t left = 0;
    {
      std::unique_lock guard(state_->mutex);
      state_->stopping = true;
      state_->work.notify_one();
      const auto limit = from_now(last_bound_);
      if (!state_->end.wait_until(guard, limit, [&] { return state_->finished; })) {
        state_->abandoned = true;
        left = state_->entries.size();
      }
      if (!state_->abandoned) {
        guard.unlock();
        thread_.join();
        return;
      }
    }
    thread_.detach();
    log::write(log::level::warning,
               "a sink of the ranks' output does not return: lines that are lost with it: " +
                   std::to_string(left));
  }
  basic_output_queue(const basic_output_queue&) = delete;
  basic_output_queue& operator=(const basic_output_queue&) = delete;

  /// Copies the line into the queue; never blocks. Where it does not fit, `drop_oldest` drops older
  /// ones, and `block` takes it nevertheless: who reads a rank's output awaits room() before each
  /// read. Lines of the launcher, whose reader waits for nothing, are then dropped instead. A sink
  /// gets a notice in the place of dropped lines.
  void push(const output_line& line) { state_->push(line); }

  /// False when who reads should wait; always true with `drop_oldest`.
  [[nodiscard]] bool has_room() const {
    const std::lock_guard guard(state_->mutex);
    return state_->overflow == overflow_policy::drop_oldest || state_->bytes < state_->bound;
  }
  /// Until has_room(); having been full, not before half of the queue is free.
  [[nodiscard]] asio::awaitable<void> room() {
    if (has_room()) co_return;
    co_await waiting::until(state_, state::goal::room, clock::time_point::max());
  }
  /// Until the sinks have taken everything; false if that takes longer than `bound`.
  [[nodiscard]] asio::awaitable<bool> drained(duration bound) {
    return waiting::until(state_, state::goal::idle, from_now(bound));
  }

  /// How many lines were dropped until now.
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard guard(state_->mutex);
    return state_->dropped_ever;
  }

 private:
  using clock = std::chrono::steady_clock;

  /// What the loop and the thread share. Everything but the sinks is guarded by the mutex.
  class state {
   public:
    struct entry {
      int rank;
      output_stream stream;
      bool complete;
      std::string text;

      /// Short lines cost more than their bytes.
      [[nodiscard]] std::size_t cost() const noexcept { return text.size() + sizeof(entry); }
    };
    /// A coroutine of the loop that waits for a change.
    struct waiter {
      asio::steady_timer* timer;
      asio::any_io_executor executor;
    };
    enum class goal { room, idle };

    state(std::vector<output_sink> to, std::size_t most, overflow_policy policy)
        : sinks(std::move(to)), failed(sinks.size()), bound(most), overflow(policy) {}

    /// What the thread does.
    void run() {
      std::unique_lock guard(mutex);
      for (;;) {
        work.wait(guard, [&] { return stopping || !empty(); });
        if (abandoned || empty()) break;
        busy = true;
        const auto notices = std::exchange(dropped_now, {});
        entry next{};
        const bool has_line = !entries.empty();
        if (has_line) next = take_oldest();
        guard.unlock();
        for (const auto& [from, count] : notices) {
          const std::string text =
              "... " + std::to_string(count) + (count == 1 ? " line dropped" : " lines dropped");
          deliver({from.first, from.second, text, true, count});
        }
        if (has_line) deliver({next.rank, next.stream, next.text, next.complete});
        guard.lock();
        busy = false;
        wake_waiters();
      }
      finished = true;
      end.notify_all();
    }

    void push(const output_line& line) {
      entry next{line.rank, line.stream, line.complete, std::string(line.text)};
      const std::lock_guard guard(mutex);
      if (stopping) return;
      const std::size_t cost = next.cost();
      if (overflow == overflow_policy::drop_oldest) {
        // One that alone is too long for the queue still goes through it.
        while (!entries.empty() && bytes + cost > bound) count_dropped(take_oldest());
      } else if (line.rank == launcher_rank && bytes >= bound) {
        count_dropped(next);
        return;
      }
      bytes += cost;
      entries.push_back(std::move(next));
      work.notify_one();
    }

    [[nodiscard]] bool empty() const { return entries.empty() && dropped_now.empty(); }
    [[nodiscard]] bool has_reached(goal which) const {
      return which == goal::idle ? empty() && !busy : bytes <= bound / 2;
    }

    std::mutex mutex;
    std::condition_variable work;  ///< for the thread
    std::condition_variable end;   ///< for the destructor
    std::vector<output_sink> sinks;
    std::vector<bool> failed;  ///< sinks that have thrown; as the sinks, the thread's own
    std::size_t bound;
    overflow_policy overflow;
    std::deque<entry> entries;
    std::size_t bytes = 0;
    std::map<std::pair<int, output_stream>, std::uint64_t> dropped_now;  ///< not reported yet
    std::uint64_t dropped_ever = 0;
    bool busy = false;       ///< a sink has a line
    bool stopping = false;   ///< the queue is being destroyed
    bool abandoned = false;  ///< and has waited for long enough
    bool finished = false;   ///< the thread has left
    std::vector<waiter> waiters;
    bool waking = false;  ///< a handler that wakes the waiters is on its way

   private:
    entry take_oldest() {
      entry oldest = std::move(entries.front());
      entries.pop_front();
      bytes -= oldest.cost();
      return oldest;
    }

    void count_dropped(const entry& lost) {
      ++dropped_now[{lost.rank, lost.stream}];
      ++dropped_ever;
    }

    void deliver(const output_line& line) {
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        try {
          sinks[i](line);
        } catch (const std::exception& error) {
          report(i, error.what());
        } catch (...) {
          report(i, "an exception");
        }
      }
    }

    void report(std::size_t sink, const char* what) {
      if (failed[sink]) return;
      failed[sink] = true;
      log::write(
          log::level::error,
          std::string("a sink of the ranks' output threw, which is told only once: ") + what);
    }

    /// The timers belong to the loop, so it is there that they are cancelled. A waiter that is in
    /// the list keeps its loop alive, and leaves the list under the mutex.
    void wake_waiters() {
      if (waiters.empty() || waking) return;
      if (!has_reached(goal::room) && !has_reached(goal::idle)) return;
      waking = true;
      asio::post(waiters.front().executor, [weak = weak_] {
        const auto here = weak.lock();
        if (!here) return;
        const std::lock_guard guard(here->mutex);
        here->waking = false;
        for (const waiter& one : here->waiters) one.timer->cancel();
      });
    }

    friend basic_output_queue;
    std::weak_ptr<state> weak_;
  };

  /// A coroutine's place in the list of waiters.
  class waiting {
   public:
    waiting(std::shared_ptr<state> where, const asio::any_io_executor& executor)
        : state_(std::move(where)), timer_(executor) {
      const std::lock_guard guard(state_->mutex);
      state_->waiters.push_back({&timer_, executor});
    }
    ~waiting() {
      const std::lock_guard guard(state_->mutex);
      std::erase_if(state_->waiters, [&](const auto& one) { return one.timer == &timer_; });
      if (state_->waiters.empty()) state_->waking = false;  // the handler may go with its loop
    }
    waiting(const waiting&) = delete;
    waiting& operator=(const waiting&) = delete;

    [[nodiscard]] bool has_reached(typename state::goal which) const {
      const std::lock_guard guard(state_->mutex);
      return state_->has_reached(which);
    }

    static asio::awaitable<bool> until(std::shared_ptr<state> where, typename state::goal which,
                                       clock::time_point deadline) {
      waiting here(std::move(where), co_await asio::this_coro::executor);
      for (;;) {
        if (here.has_reached(which)) co_return true;
        if (clock::now() >= deadline) co_return false;
        here.timer_.expires_at(deadline);
        std::error_code woken;
        co_await here.timer_.async_wait(asio::redirect_error(awaiting<Any>, woken));
      }
    }

   private:
    std::shared_ptr<state> state_;
    asio::steady_timer timer_;
  };

  std::shared_ptr<state> state_;
  std::thread thread_;
  duration last_bound_;
};
using output_queue = basic_output_queue<void>;

}  // namespace cohort::cluster
