// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Who waits for many remote calls: for all ranks, or for a range.

#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/outcome.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster::detail {

template <class R>
[[nodiscard]] outcome<R> outcome_of_answer(std::exception_ptr failed, payload&& result) {
  if (failed) return outcome<R>(std::move(failed));
  if constexpr (std::is_void_v<R>) {
    return outcome<R>();
  } else {
    try {
      return outcome<R>(decode_result<R>(std::move(result)));
    } catch (...) {
      return outcome<R>(std::current_exception());
    }
  }
}

/// Several calls that one handler waits for; `map` and `call_all` say when which is made.
template <class R>
class many_calls : public std::enable_shared_from_this<many_calls<R>> {
 public:
  using results = std::vector<outcome<R>>;
  using done_function = std::function<void(results)>;

  /// `function`: its index in the table.
  many_calls(std::shared_ptr<job> over, call_options options, std::size_t function,
             std::string_view name, std::size_t count)
      : over_(std::move(over)),
        options_(options),
        name_(name),
        function_(function),
        outcomes_(count),
        left_(count) {}
  many_calls(const many_calls&) = delete;
  many_calls& operator=(const many_calls&) = delete;
  virtual ~many_calls() = default;

  void begin(done_function done) {
    done_ = std::move(done);
    if (left_ == 0) return finish();
    start();
  }
  /// Gives up everything that has not ended.
  void cancel() {
    give_up_all(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  }

 protected:
  [[nodiscard]] call_client& calls() const noexcept { return over_->calls(); }

  struct part final : waiting_call {
    part(std::shared_ptr<many_calls> all_, std::size_t index_, int rank_)
        : all(std::move(all_)), index(index_), rank(rank_) {}
    void complete(std::exception_ptr failed, payload&& result) override {
      all->part_ended(index, rank, std::move(failed), std::move(result));
    }
    std::shared_ptr<many_calls> all;
    std::size_t index;
    int rank;
  };

  virtual void start() = 0;
  /// A call has ended, and its outcome is set.
  virtual void ended(std::size_t index, int rank, const std::exception_ptr& failed) = 0;

  using time_limit = std::optional<std::chrono::steady_clock::time_point>;
  /// Of a call that begins now.
  [[nodiscard]] time_limit deadline() const {
    if (!options_.deadline()) return std::nullopt;
    return from_now(*options_.deadline());
  }
  /// Returns the call's id.
  std::uint64_t make(std::size_t index, int rank, payload arguments, std::uint32_t flags,
                     time_limit deadline) {
    const std::uint64_t id = calls().next_id();
    ids_.emplace_back(index, id);
    call_request request;
    request.rank = rank;
    request.function = function_;
    request.name = name_;
    request.arguments = std::move(arguments);
    request.flags = flags | (options_.on_thread() ? call_tail::on_thread : 0);
    request.deadline = deadline;
    calls().start(id, std::move(request),
                  std::make_shared<part>(this->shared_from_this(), index, rank));
    return id;
  }
  void set(std::size_t index, outcome<R> result) {
    if (outcomes_[index]) return;
    outcomes_[index].emplace(std::move(result));
    if (--left_ == 0) finish();
  }
  [[nodiscard]] bool open(std::size_t index) const { return !outcomes_[index]; }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  void cancel_callees() {
    for (const auto& each : ids_) calls().cancel_callee(each.second);
  }
  void give_up_all(const std::exception_ptr& why) {
    const auto self = this->shared_from_this();
    stopped_ = why;
    const auto ids = ids_;
    for (const auto& [index, id] : ids) {
      if (open(index)) calls().give_up(id, why);
    }
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      if (open(i)) set(i, outcome<R>(why));
    }
  }

  std::shared_ptr<job> over_;
  call_options options_;
  std::string_view name_;
  std::exception_ptr stopped_;

 private:
  void part_ended(std::size_t index, int rank, std::exception_ptr failed, payload&& result) {
    const auto self = this->shared_from_this();
    std::erase_if(ids_, [&](const auto& each) { return each.first == index; });
    if (!retry(index, rank, failed)) {
      auto made = outcome_of_answer<R>(failed, std::move(result));
      if (!failed) failed = made.error();
      set(index, std::move(made));
    }
    ended(index, rank, failed);
  }
  /// Whether the call is made again elsewhere.
  virtual bool retry(std::size_t, int, const std::exception_ptr&) { return false; }

  void finish() {
    results all;
    all.reserve(outcomes_.size());
    for (auto& each : outcomes_) all.push_back(std::move(*each));
    outcomes_.clear();
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(all));
  }

  std::size_t function_;
  std::vector<std::optional<outcome<R>>> outcomes_;
  std::size_t left_;
  std::vector<std::pair<std::size_t, std::uint64_t>> ids_;  // of calls under way, by index
  done_function done_;
};

/// One call on every rank, in an order that is the same on all.
template <class R>
class call_on_all final : public many_calls<R> {
 public:
  call_on_all(std::shared_ptr<job> over, call_options options, std::size_t function,
              std::string_view name, payload arguments)
      : many_calls<R>(over, options, function, name,
                      static_cast<std::size_t>(over->size() + (options.include_manager() ? 1 : 0))),
        arguments_(std::move(arguments)),
        watched_(std::make_shared<call_of_all>()) {
    watched_->name = name;
    watched_->grace = options.grace();
    watched_->with_manager = options.include_manager();
  }

 private:
  void start() override {
    const bool here = this->options_.include_manager();
    const int first = this->over_->first();
    const int size = this->over_->size();
    std::uint32_t flags = call_tail::ordered;
    if (here) flags |= call_tail::with_manager;
    const auto self = this->shared_from_this();
    const auto limit = this->deadline();  // one: who is late first has the others cancelled
    for (int i = 0; i < size; ++i) {
      const auto index = static_cast<std::size_t>(here ? i + 1 : i);
      const auto id = this->make(index, first + i, arguments_, flags, limit);
      watched_->parts.push_back({first + i, id});
    }
    if (here) {
      watched_->parts.push_back({0, this->make(0, 0, arguments_, flags, limit)});
    }
    made_ = true;
    watched_->on_stall = [weak = std::weak_ptr(self)](int failed) {
      const auto alive = std::static_pointer_cast<call_on_all>(weak.lock());
      if (alive && alive->left() > 0) alive->stalled(failed);
    };
    this->over_->made(watched_);
    if (watched_->failed >= 0) one_has_failed();
  }
  void ended(std::size_t, int rank, const std::exception_ptr& failed) override {
    if (!failed || watched_->failed >= 0) return;
    if (this->over_->is_left_out(rank, this->options_.include_manager())) return;
    watched_->failed = rank;
    if (made_) one_has_failed();
  }
  void one_has_failed() {
    // Their callees may wait in a collective for the one that has failed.
    this->cancel_callees();
    this->over_->watch(watched_);
  }
  /// `failed`: of this call, or of one before it with whose communicator this one has begun.
  void stalled(int failed) {
    const bool itself = watched_->failed >= 0;
    if (!itself) watched_->failed = failed;
    const int first = watched_->failed;
    const std::string text = "call_all of " + std::string(this->name_) + ": rank " +
                             std::to_string(first) + " has failed" +
                             (itself ? "" : " in a call before, when this one had begun") +
                             ", and this one has not ended since";
    const auto over = this->over_;
    const bool ends = this->options_.on_stall() == stall_action::terminate;
    this->give_up_all(std::make_exception_ptr(rank_error(errc::stalled, {first}, text)));
    if (ends) over->terminate(text);
  }

  payload arguments_;
  std::shared_ptr<call_of_all> watched_;  // `failed`: the first, of this call or one before it
  bool made_ = false;                     // all calls have been
};

/// One call for every item of a range, on whichever rank has room.
template <class R>
class map_calls final : public many_calls<R> {
 public:
  map_calls(std::shared_ptr<job> over, call_options options, std::size_t function,
            std::string_view name, std::vector<payload> items)
      : many_calls<R>(over, options, function, name, items.size()),
        items_(std::move(items)),
        load_(static_cast<std::size_t>(over->size())),
        interrupts_(over->calls().interrupts()) {}

 private:
  void start() override { fill(); }

  void ended(std::size_t, int rank, const std::exception_ptr&) override {
    --load_[place(rank)];
    fill();
  }
  bool retry(std::size_t index, int rank, const std::exception_ptr& failed) override {
    if (!failed || !this->options_.idempotent() || this->stopped_) return false;
    if (!this->over_->starts_again()) {
      if (this->over_->state(rank) == worker_state::ready || free_rank() < 0) return false;
    }
    try {
      std::rethrow_exception(failed);
    } catch (const peer_lost_error&) {
      again_.push_back(index);
      return true;
    } catch (...) {
      return false;  // of the function itself
    }
  }

  [[nodiscard]] std::size_t place(int rank) const {
    return static_cast<std::size_t>(rank - this->over_->first());
  }
  [[nodiscard]] int free_rank() const {
    int best = -1;
    if (this->over_->starts_again()) return best;
    for (int i = 0; i < static_cast<int>(load_.size()); ++i) {
      const int rank = this->over_->first() + i;
      if (this->over_->state(rank) != worker_state::ready) continue;
      if (best < 0 || load_[place(rank)] < load_[place(best)]) best = rank;
    }
    return best;
  }

  void fill() {
    if (filling_) return;  // a call that fails at once comes back here
    filling_ = true;
    const auto self = this->shared_from_this();
    if (this->calls().interrupts() != interrupts_ && !this->stopped_) this->cancel();
    while (!this->stopped_ && (next_ < items_.size() || !again_.empty())) {
      const int rank = free_rank();
      if (rank >= 0 && load_[place(rank)] >= this->options_.per_worker()) break;
      if (rank < 0 && this->over_->starts_again()) {
        wait_for_start();
        break;
      }
      std::size_t index = 0;
      if (again_.empty()) {
        index = next_++;
      } else {
        index = again_.back();
        again_.pop_back();
      }
      if (rank < 0) {
        this->set(index, outcome<R>(std::make_exception_ptr(none_left(index))));
        continue;
      }
      ++load_[place(rank)];
      const bool kept = this->options_.idempotent();
      this->make(index, rank, kept ? items_[index] : std::move(items_[index]), 0, this->deadline());
    }
    filling_ = false;
  }
  [[nodiscard]] peer_lost_error none_left(std::size_t index) const {
    std::vector<int> all(load_.size());
    std::iota(all.begin(), all.end(), this->over_->first());
    std::string text = "map of " + std::string(this->name_) + ": item " + std::to_string(index) +
                       ": no worker is left";
    if (!all.empty()) {
      text += "; rank " + std::to_string(all[0]) + ": " + this->over_->cause(all[0]);
    }
    return {std::move(all), text};
  }
  void wait_for_start() {
    if (std::exchange(waits_for_start_, true)) return;
    auto self = std::static_pointer_cast<map_calls>(this->shared_from_this());
    this->over_->when_started_again([self] {
      self->waits_for_start_ = false;
      self->fill();
    });
  }

  std::vector<payload> items_;
  std::vector<int> load_;
  std::vector<std::size_t> again_;
  std::size_t next_ = 0;
  std::uint64_t interrupts_;  // before it began
  bool filling_ = false;
  bool waits_for_start_ = false;
};

template <class R>
struct start_many : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler>
  void operator()(Handler&& handler, const std::shared_ptr<many_calls<R>>& calls,
                  asio::io_context& io) const {
    using posted = progress::posted_handler<std::decay_t<Handler>>;
    const auto made = std::make_shared<posted>(std::forward<Handler>(handler),
                                               asio::use_service<progress::engine>(io));
    if (auto slot = made->slot(); slot.is_connected()) {
      slot.assign([calls = std::weak_ptr(calls)](asio::cancellation_type) {
        if (const auto here = calls.lock()) here->cancel();
      });
    }
    calls->begin([made](typename many_calls<R>::results all) {
      made->post(std::exception_ptr(), std::move(all));
    });
  }
};

}  // namespace cohort::cluster::detail
