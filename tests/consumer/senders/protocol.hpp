// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A stand-in for stdexec, with the names that senders.cpp uses of it: the protocol of senders and
/// receivers, a few algorithms, and a completion token of Asio that makes senders.
///
/// A sender has `values`, a tuple of what it sends, and `connect(receiver)`, which makes an
/// operation state with `start()`. Every operation state is made where it stays.

#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/error.hpp>
#include <asio/execution.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/require.hpp>
#include <asio/thread_pool.hpp>
#include <asio/version.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace stand_in {

struct receiver_tag {};
struct sender_tag {};

using inplace_stop_source = std::stop_source;
using inplace_stop_token = std::stop_token;
struct get_stop_token_t {};

struct empty_env {};

template <class Receiver>
[[nodiscard]] inplace_stop_token stop_token_of(const Receiver& receiver) noexcept {
  if constexpr (requires { receiver.get_env().query(get_stop_token_t()); }) {
    return receiver.get_env().query(get_stop_token_t());
  } else {
    return {};
  }
}

template <class Sender, class Receiver>
[[nodiscard]] auto connect(Sender&& sender, Receiver receiver) {
  return std::forward<Sender>(sender).connect(std::move(receiver));
}
template <class Operation>
void start(Operation& operation) noexcept {
  operation.start();
}
template <class Sender>
using values_of = typename std::remove_cvref_t<Sender>::values;
template <class Sender, class Receiver>
using operation_of = decltype(connect(std::declval<Sender>(), std::declval<Receiver>()));

/// Converts to what `make()` returns: makes an operation state inside an optional or a tuple.
template <class Make>
struct made_in_place {
  Make make;
  operator decltype(std::declval<Make&>()())() { return make(); }  // NOLINT: implicit
};
template <class Make>
made_in_place(Make) -> made_in_place<Make>;

/// What passes on to `next` everything that its own `set_value` does not take.
template <class Next>
struct passes_on {
  using receiver_concept = receiver_tag;
  Next next;
  void set_error(std::exception_ptr error) && noexcept { std::move(next).set_error(error); }
  void set_stopped() && noexcept { std::move(next).set_stopped(); }
  [[nodiscard]] auto get_env() const noexcept { return next.get_env(); }
};

// ---- Asio's completion token -------------------------------------------------------------------

/// Of a handler, its executor and its operation state. What the handler's operation does on the
/// executor, and what a request to stop does, exclude each other, as Asio asks of those who use a
/// cancellation signal. The lock is let go of before the receiver is called, which may destroy the
/// operation state. Recursive: a request to stop may come from the executor's thread.
class turns {
 public:
  /// Holds the lock; until the handler is called, if it is called inside.
  class turn {
   public:
    explicit turn(std::shared_ptr<turns> of) : of_(std::move(of)) {
      of_->mutex_.lock();
      was_over_ = of_->over_;
      if (!was_over_) ++of_->depth_;
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() {
      if (!was_over_ && of_->over_) return;  // end() has let go of it
      if (!was_over_) --of_->depth_;
      of_->mutex_.unlock();
    }
    [[nodiscard]] bool is_over() const noexcept { return of_->over_; }

   private:
    std::shared_ptr<turns> of_;
    bool was_over_ = false;
  };

  /// The handler is called: no thread of the operation's has the lock from now on.
  void end() noexcept {
    mutex_.lock();
    over_ = true;
    for (int left = std::exchange(depth_, 0); left > 0; --left) mutex_.unlock();
    mutex_.unlock();
  }

  asio::cancellation_signal signal;

 private:
  std::recursive_mutex mutex_;
  int depth_ = 0;
  bool over_ = false;
};

/// An executor that takes a turn for each function. Like stdexec's it can be copied but not
/// assigned, which is all that Asio asks for.
template <class Inner>
class in_turn {
 public:
  in_turn(std::shared_ptr<turns> of, Inner inner) : turns_(std::move(of)), inner_(inner) {}
  in_turn(const in_turn&) = default;
  in_turn& operator=(const in_turn&) = delete;

  template <class Function>
  void execute(Function function) const {
    auto call = [of = turns_, function = std::move(function)]() mutable {
      const turns::turn hold(of);
      std::move(function)();
    };
#if ASIO_VERSION < 102800  // the member is Asio's own affair
    asio::execution::execute(inner_, std::move(call));
#else
    inner_.execute(std::move(call));
#endif
  }
  template <class Property>
    requires asio::can_query<const Inner&, Property>::value
  [[nodiscard]] auto query(const Property& property) const {
    return asio::query(inner_, property);
  }
  template <class Property>
    requires asio::can_require<const Inner&, Property>::value
  [[nodiscard]] auto require(const Property& property) const {
    return wrap(asio::require(inner_, property));
  }
  template <class Property>
    requires asio::can_prefer<const Inner&, Property>::value
  [[nodiscard]] auto prefer(const Property& property) const {
    return wrap(asio::prefer(inner_, property));
  }
  friend bool operator==(const in_turn& a, const in_turn& b) noexcept {
    return a.turns_ == b.turns_ && a.inner_ == b.inner_;
  }
  friend bool operator!=(const in_turn& a, const in_turn& b) noexcept { return !(a == b); }

 private:
  template <class Other>
  [[nodiscard]] in_turn<Other> wrap(Other inner) const {
    return in_turn<Other>(turns_, std::move(inner));
  }
  const std::shared_ptr<turns> turns_;
  Inner inner_;
};

/// Calls the receiver of `Operation`, once; `set_stopped` if it is dropped without being called.
template <class Operation>
class sender_handler {
 public:
  using cancellation_slot_type = asio::cancellation_slot;

  explicit sender_handler(Operation& of) noexcept : of_(&of), turns_(of.turns_) {}
  sender_handler(sender_handler&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), turns_(other.turns_) {}
  sender_handler& operator=(sender_handler&&) = delete;
  ~sender_handler() {
    if (of_ != nullptr) (*this)(asio::error::make_error_code(asio::error::operation_aborted));
  }

  template <class... Values>
  void operator()(std::error_code error, Values&&... values) noexcept {
    Operation& of = *std::exchange(of_, nullptr);
    turns_->end();
    of.on_stop_.reset();  // waits for one that runs on another thread
    auto receiver = std::move(of.receiver_);
    if (!error) {
      if constexpr (sizeof...(Values) != 0 || std::tuple_size_v<typename Operation::values> == 0) {
        return std::move(receiver).set_value(std::forward<Values>(values)...);
      }
    }
    if (error == asio::error::operation_aborted) return std::move(receiver).set_stopped();
    std::move(receiver).set_error(std::make_exception_ptr(std::system_error(error)));
  }

  [[nodiscard]] asio::cancellation_slot get_cancellation_slot() const noexcept {
    return turns_->signal.slot();
  }
  [[nodiscard]] const std::shared_ptr<turns>& shared() const noexcept { return turns_; }

 private:
  Operation* of_;
  std::shared_ptr<turns> turns_;
};

template <class Receiver, class Values, class Initiation, class Arguments>
class asio_operation {
 public:
  using values = Values;
  asio_operation(Receiver receiver, Initiation initiation, Arguments arguments)
      : receiver_(std::move(receiver)),
        initiation_(std::move(initiation)),
        arguments_(std::move(arguments)) {}
  asio_operation(asio_operation&&) = delete;

  void start() noexcept {
    const std::shared_ptr<turns> shared = turns_;
    const turns::turn hold(shared);  // a handler that is called on another thread waits for it
    auto begin = std::move(initiation_);
    auto with = std::move(arguments_);
    try {
      std::apply(
          [&](auto&... each) {
            std::move(begin)(sender_handler<asio_operation>(*this), std::move(each)...);
          },
          with);
    } catch (...) {
      // The handler was dropped, so the receiver has been told.
    }
    if (!hold.is_over()) on_stop_.emplace(stop_token_of(receiver_), request{shared});
  }

 private:
  friend class sender_handler<asio_operation>;
  struct request {
    std::shared_ptr<turns> shared;
    void operator()() const {
      const turns::turn hold(shared);
      shared->signal.emit(asio::cancellation_type::all);
    }
  };

  Receiver receiver_;
  Initiation initiation_;
  Arguments arguments_;
  std::shared_ptr<turns> turns_ = std::make_shared<turns>();
  std::optional<std::stop_callback<request>> on_stop_;
};

template <class Values, class Initiation, class... Arguments>
struct asio_sender {
  using sender_concept = sender_tag;
  using values = Values;
  Initiation initiation;
  std::tuple<Arguments...> arguments;

  template <class Receiver>
  [[nodiscard]] auto connect(Receiver receiver) && {
    return asio_operation<Receiver, Values, Initiation, std::tuple<Arguments...>>(
        std::move(receiver), std::move(initiation), std::move(arguments));
  }
};

struct use_sender_t {};
inline constexpr use_sender_t use_sender;

// ---- threads -----------------------------------------------------------------------------------

class static_thread_pool {
 public:
  explicit static_thread_pool(std::size_t threads) : pool_(threads) {}
  ~static_thread_pool() { pool_.join(); }

  struct schedule_sender {
    using values = std::tuple<>;
    asio::thread_pool* on;
    template <class Receiver>
    struct operation {
      asio::thread_pool* on;
      Receiver receiver;
      void start() noexcept {
        asio::post(*on, [this] { std::move(receiver).set_value(); });
      }
    };
    template <class Receiver>
    [[nodiscard]] operation<Receiver> connect(Receiver receiver) const {
      return {on, std::move(receiver)};
    }
  };
  struct scheduler {
    asio::thread_pool* on;
    [[nodiscard]] schedule_sender schedule() const noexcept { return {on}; }
  };
  [[nodiscard]] scheduler get_scheduler() noexcept { return {&pool_}; }

 private:
  asio::thread_pool pool_;
};

}  // namespace stand_in

/// A handler's executor: Asio asks with the one that it would have without.
template <class Operation, class Inner>
struct asio::associated_executor<stand_in::sender_handler<Operation>, Inner> {
  using type = stand_in::in_turn<Inner>;
  static type get(const stand_in::sender_handler<Operation>& of, const Inner& inner) noexcept {
    return type(of.shared(), inner);
  }
};

template <class... Values>
struct asio::async_result<stand_in::use_sender_t, void(std::error_code, Values...)> {
  template <class Initiation, class... Arguments>
  static auto initiate(Initiation&& initiation, stand_in::use_sender_t, Arguments&&... arguments) {
    return stand_in::asio_sender<std::tuple<std::decay_t<Values>...>, std::decay_t<Initiation>,
                                 std::decay_t<Arguments>...>{
        std::forward<Initiation>(initiation), {std::forward<Arguments>(arguments)...}};
  }
};
