// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The algorithms of the stand-in for stdexec. Each does what stdexec's of that name does,
/// for senders that send one set of values.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "protocol.hpp"

namespace stand_in {

// ---- just, then, let_value ---------------------------------------------------------------------

struct just {
  using values = std::tuple<>;
  template <class Receiver>
  struct operation {
    Receiver receiver;
    void start() noexcept { std::move(receiver).set_value(); }
  };
  template <class Receiver>
  [[nodiscard]] operation<Receiver> connect(Receiver receiver) const {
    return {std::move(receiver)};
  }
};

template <class Function, class Values>
struct result_of;
template <class Function, class... Values>
struct result_of<Function, std::tuple<Values...>> {
  using type = std::invoke_result_t<Function, Values...>;
  using values = std::conditional_t<std::is_void_v<type>, std::tuple<>, std::tuple<type>>;
};
template <class Sender, class Function>
struct then {
  using values = typename result_of<Function, values_of<Sender>>::values;
  Sender sender;
  Function function;
  then(Sender from, Function what) : sender(std::move(from)), function(std::move(what)) {}

  template <class Next>
  struct receiver : passes_on<Next> {
    Function function;
    receiver(Next to, Function what) : passes_on<Next>{std::move(to)}, function(std::move(what)) {}
    template <class... Values>
    void set_value(Values&&... values) && noexcept {
      try {
        if constexpr (std::is_void_v<std::invoke_result_t<Function, Values...>>) {
          function(std::forward<Values>(values)...);
          std::move(this->next).set_value();
        } else {
          std::move(this->next).set_value(function(std::forward<Values>(values)...));
        }
      } catch (...) {
        std::move(this->next).set_error(std::current_exception());
      }
    }
  };
  template <class Next>
  [[nodiscard]] auto connect(Next next) && {
    return stand_in::connect(std::move(sender),
                             receiver<Next>(std::move(next), std::move(function)));
  }
};

/// Runs the sender that `function(values...)` returns; the values live until that has ended.
template <class Sender, class Function>
struct let_value {
  using second = typename result_of<Function, values_of<Sender>>::type;
  using values = values_of<second>;
  Sender sender;
  Function function;
  let_value(Sender from, Function what) : sender(std::move(from)), function(std::move(what)) {}

  template <class Next>
  struct operation {
    struct receiver {
      using receiver_concept = receiver_tag;
      operation* of;
      template <class... Values>
      void set_value(Values&&... values) && noexcept {
        of->go_on(std::forward<Values>(values)...);
      }
      void set_error(std::exception_ptr error) && noexcept { std::move(of->next).set_error(error); }
      void set_stopped() && noexcept { std::move(of->next).set_stopped(); }
      [[nodiscard]] auto get_env() const noexcept { return of->next.get_env(); }
    };
    operation(Sender from, Function what, Next to)
        : function(std::move(what)),
          next(std::move(to)),
          first(stand_in::connect(std::move(from), receiver{this})) {}
    operation(operation&&) = delete;

    void start() noexcept { first.start(); }
    template <class... Values>
    void go_on(Values&&... values) noexcept {
      try {
        auto& all = kept.emplace(std::forward<Values>(values)...);
        then_started.emplace(made_in_place{[&] {
          return stand_in::connect(
              std::apply([&](auto&... each) { return function(std::move(each)...); }, all),
              std::move(next));
        }});
      } catch (...) {
        return std::move(next).set_error(std::current_exception());
      }
      then_started->start();
    }

    Function function;
    Next next;
    operation_of<Sender, receiver> first;
    std::optional<values_of<Sender>> kept;
    std::optional<operation_of<second, Next>> then_started;
  };
  template <class Next>
  [[nodiscard]] operation<Next> connect(Next next) && {
    return {std::move(sender), std::move(function), std::move(next)};
  }
};

// ---- continues_on, starts_on -------------------------------------------------------------------

/// What the sender sends comes on a thread of the scheduler.
template <class Sender, class Scheduler>
[[nodiscard]] auto continues_on(Sender sender, Scheduler scheduler) {
  return let_value(std::move(sender), [scheduler]<class... Values>(Values... values) {
    return then(scheduler.schedule(), [kept = std::tuple(std::move(values)...)]() mutable {
      static_assert(sizeof...(Values) <= 1, "the stand-in sends one value");
      if constexpr (sizeof...(Values) == 1) return std::get<0>(std::move(kept));
    });
  });
}

/// Starts the sender on a thread of the scheduler.
template <class Scheduler, class Sender>
[[nodiscard]] auto starts_on(Scheduler scheduler, Sender sender) {
  return let_value(scheduler.schedule(),
                   [sender = std::move(sender)]() mutable { return std::move(sender); });
}

// ---- when_all ----------------------------------------------------------------------------------

/// Started from left to right. Where one fails or stops, the others are asked to stop; it ends when
/// all have ended.
template <class... Senders>
struct when_all {
  using values = decltype(std::tuple_cat(std::declval<values_of<Senders>>()...));
  std::tuple<Senders...> senders;
  explicit when_all(Senders... all) : senders(std::move(all)...) {}

  template <class Next>
  class operation {
    struct env {
      operation* of;
      [[nodiscard]] inplace_stop_token query(get_stop_token_t) const noexcept {
        return of->stop_.get_token();
      }
    };
    template <std::size_t I>
    struct receiver {
      using receiver_concept = receiver_tag;
      operation* of;
      template <class... Values>
      void set_value(Values&&... values) && noexcept {
        std::get<I>(of->kept_).emplace(std::forward<Values>(values)...);
        of->one_has_ended();
      }
      void set_error(std::exception_ptr error) && noexcept {
        if (!of->failed_.exchange(true)) of->error_ = std::move(error);
        of->give_up();
      }
      void set_stopped() && noexcept {
        of->stopped_ = true;
        of->give_up();
      }
      [[nodiscard]] env get_env() const noexcept { return {of}; }
    };
    template <class Indices>
    struct children;
    template <std::size_t... I>
    struct children<std::index_sequence<I...>> {
      children(std::tuple<Senders...>&& from, operation* of)
          : all(made_in_place{[&from, of] {
              return stand_in::connect(std::get<I>(std::move(from)), receiver<I>{of});
            }}...) {}
      std::tuple<operation_of<Senders, receiver<I>>...> all;
    };

   public:
    operation(std::tuple<Senders...> from, Next to)
        : next_(std::move(to)), children_(std::move(from), this) {}
    operation(operation&&) = delete;

    void start() noexcept {
      on_stop_.emplace(stop_token_of(next_), request{this});
      std::apply([](auto&... each) { (each.start(), ...); }, children_.all);
      one_has_ended();  // all have been started
    }

   private:
    struct request {
      operation* of;
      void operator()() const noexcept { of->stop_.request_stop(); }
    };
    void give_up() noexcept {
      stop_.request_stop();
      one_has_ended();
    }
    void one_has_ended() noexcept {
      if (left_.fetch_sub(1) != 1) return;
      on_stop_.reset();
      if (failed_) return std::move(next_).set_error(std::move(error_));
      if (stopped_) return std::move(next_).set_stopped();
      auto all =
          std::apply([](auto&... each) { return std::tuple_cat(std::move(*each)...); }, kept_);
      Next next = std::move(next_);  // it may destroy this
      std::apply([&](auto&... each) { std::move(next).set_value(std::move(each)...); }, all);
    }

    Next next_;
    inplace_stop_source stop_;
    std::optional<std::stop_callback<request>> on_stop_;
    std::atomic<std::size_t> left_{sizeof...(Senders) + 1};
    std::atomic<bool> failed_{false};
    std::atomic<bool> stopped_{false};
    std::exception_ptr error_;
    std::tuple<std::optional<values_of<Senders>>...> kept_;
    children<std::index_sequence_for<Senders...>> children_;
  };
  template <class Next>
  [[nodiscard]] operation<Next> connect(Next next) && {
    return {std::move(senders), std::move(next)};
  }
};

// ---- sync_wait ---------------------------------------------------------------------------------

template <class Values>
class ending {
 public:
  struct receiver {
    using receiver_concept = receiver_tag;
    ending* to;
    template <class... Sent>
    void set_value(Sent&&... sent) && noexcept {
      to->values_.emplace(std::forward<Sent>(sent)...);
      to->set();
    }
    void set_error(std::exception_ptr error) && noexcept {
      to->error_ = std::move(error);
      to->set();
    }
    void set_stopped() && noexcept { to->set(); }
    [[nodiscard]] empty_env get_env() const noexcept { return {}; }
  };

  std::optional<Values> wait() {
    std::unique_lock hold(mutex_);
    changed_.wait(hold, [this] { return is_there_; });
    if (error_) std::rethrow_exception(error_);
    return std::move(values_);
  }

 private:
  void set() noexcept {
    const std::lock_guard hold(mutex_);  // also while it notifies: this goes with the waiter
    is_there_ = true;
    changed_.notify_one();
  }
  std::optional<Values> values_;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_there_ = false;
};

/// Blocks until the sender has ended: its values, nothing if it was stopped; throws its error.
template <class Sender>
std::optional<values_of<Sender>> sync_wait(Sender sender) {
  ending<values_of<Sender>> end;
  using receiver = typename ending<values_of<Sender>>::receiver;
  auto operation = stand_in::connect(std::move(sender), receiver{&end});
  stand_in::start(operation);
  return end.wait();
}

}  // namespace stand_in
