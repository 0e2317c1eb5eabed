// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A submission with its handler: executor, cancellation, memory, completion.

#include <cohort/coordinator/instance.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort {

/// The name of an operation, and where it is submitted: converts from strings at the call. A string
/// that is passed as an rvalue is kept, others must live until the operation has been submitted,
/// which for `co_await` is at once. Names are 1 to 65 535 bytes, of which the first is not 1.
class operation_name {
 public:
  // User-provided constructors: g++ 12 mishandles other temporaries in co_await expressions.
  operation_name(const char* text,
                 std::source_location where = std::source_location::current()) noexcept
      : view_(text), where_(where) {}
  operation_name(std::string_view text,
                 std::source_location where = std::source_location::current()) noexcept
      : view_(text), where_(where) {}
  operation_name(const std::string& text,
                 std::source_location where = std::source_location::current()) noexcept
      : view_(text), where_(where) {}
  operation_name(std::string&& text, std::source_location where = std::source_location::current())
      : owned_(std::move(text)), where_(where) {}
  /// No name: one of the operations of a set that are matched in the order of submission.
  explicit operation_name(std::source_location where) noexcept : where_(where) {}
  operation_name(const operation_name& other) = default;
  operation_name(operation_name&& other) noexcept = default;
  operation_name& operator=(const operation_name&) = delete;
  ~operation_name() {}

  [[nodiscard]] std::string_view view() const noexcept {
    return view_.data() != nullptr ? view_ : std::string_view(owned_);
  }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  std::string_view view_;
  std::string owned_;
  std::source_location where_;
};

namespace coordination {

/// One operation of a coordinator. The body says what it is: `start(body, task, instance)` hands it
/// in once the body lies where it stays, `cancel(task, instance)` asks for its end, and `finish`
/// calls the handler with the error and the results.
template <class Handler, class Body>
class named_operation final
    : public progress::handler_operation<named_operation<Handler, Body>, Handler, task> {
 public:
  named_operation(Handler& handler, std::shared_ptr<instance_handle> where, Body&& body)
      : named_operation::handler_operation(handler),
        where_(std::move(where)),
        body_(std::move(body)) {}

  /// After this the operation may be gone.
  void start() {
    this->connect(owner(), true);
    Body::start(body_, *this, **where_);
  }

  [[nodiscard]] progress::engine& owner() const { return (**where_).engine(); }
  void cancel(asio::cancellation_type) { Body::cancel(*this, **where_); }
  [[nodiscard]] auto outcome(bool dropped) {
    if (dropped) {
      this->fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
    }
    return [where = std::move(where_), body = std::move(body_), why = std::move(this->error),
            result = this->number](Handler&& handler) mutable {
      body.finish(std::move(handler), std::move(why), result);
    };
  }

 private:
  std::shared_ptr<instance_handle> where_;
  Body body_;
};

/// Whether a handler is that of `asio::detached`, perhaps with an executor or a slot bound to it.
template <class Handler>
inline constexpr bool is_detached = std::is_same_v<Handler, asio::detail::detached_handler>;
template <class Handler>
  requires requires { typename Handler::target_type; }
inline constexpr bool is_detached<Handler> = is_detached<typename Handler::target_type>;

/// What the bodies of the verbs share where they say nothing else: there is no result, and what
/// ranks agree upon is withdrawn when it is cancelled.
struct plain_body {
  using signature = void(std::exception_ptr);
  static void cancel(task& of, instance& where) {
    where.withdraw(of, progress::emitting_deadline() ? protocol::withdrawal_reason::deadline
                                                     : protocol::withdrawal_reason::cancelled);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why));
  }
};

/// Submission under a name. A verb's `describe` fills in the task and the signature; a mistake of
/// this rank alone goes into `task::error`.
struct submitting_body : plain_body {
  explicit submitting_body(operation_name name_, const call_options& options_ = {})
      : name(std::move(name_)), options(options_), on(options_.on.get()) {}

  template <class Self>
  static void start(Self& self, task& of, instance& where) {
    protocol::signature sig;
    sig.priority = self.options.priority;
    sig.prescale = self.options.prescale;
    sig.postscale = self.options.postscale;
    const std::string_view text = self.name.view();
    if (text.empty()) sig.flags |= protocol::signature_flag::unnamed;
    self.describe(of, sig, where);
    of.take(sig);
    of.wanted = self.options.compression;
    self.choose_device(of, sig);
    where.submit(of, text, sig, self.name.where(), self.options.deadline);
  }
  /// Once the tensors are described.
  void choose_device(task& of, protocol::signature& sig) {
    sig.space = of.space;
    if (of.device) {
      of.device->on = std::move(on);
      of.device->ends = options.ends;
      check_device(of);
    } else if (of.space == memory_space::host && (options.on || options.ends != until::complete)) {
      of.fail(errc::invalid_argument, "the options `on` and `ends` are for device memory");
    }
  }
  /// What would let a device use memory that is not there, or without any order.
  void check_device(task& of) const {
    if (const comm::device_buffer* const one = of.device->without_order(); one != nullptr) {
      of.fail(errc::invalid_argument, std::string(one->field) + lacks_order);
    }
    if (!detached) return;
    const auto& all = of.device->buffers;
    const auto borrowed = std::find_if(
        all.begin(), all.end(), [](const auto& each) { return each.bytes != 0 && !each.lease; });
    if (borrowed == all.end()) return;
    const std::string text = std::string(borrowed->field) +
                             ": a detached operation takes memory that it can keep, not a span";
    log::write(log::level::error, std::string(name.view()) + ": " + text);
    of.fail(errc::invalid_argument, text);
  }

  operation_name name;
  call_options options;
  stream_ref on;          ///< the stream of the options, kept
  bool detached = false;  ///< nobody hears of its end
};

/// Calls the handler with what was kept of the arguments, which it gets back.
template <class Handler, class... Kept>
void give_back(Handler&& handler, std::exception_ptr why, std::tuple<Kept...>&& all) {
  std::apply(
      [&](Kept&... kept) { std::forward<Handler>(handler)(std::move(why), std::move(kept)...); },
      all);
}

struct start_named : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler, class Body>
  void operator()(Handler&& handler, std::shared_ptr<instance_handle> where, Body&& body) const {
    using handler_type = std::decay_t<Handler>;
    using body_type = std::decay_t<Body>;
    if (!where) {
      progress::post_without_engine(
          std::forward<Handler>(handler), [body = std::move(body)](handler_type&& own) mutable {
            auto why = std::make_exception_ptr(error(errc::invalid_communicator, "no coordinator"));
            body.finish(std::move(own), std::move(why), 0);
          });
      return;
    }
    if constexpr (std::is_base_of_v<submitting_body, body_type>) {
      body.detached = is_detached<handler_type>;
    }
    handler_type own(std::forward<Handler>(handler));
    named_operation<handler_type, body_type>::make(own, std::move(where), std::move(body))->start();
  }
};

template <class Body, class Token>
auto initiate(const std::shared_ptr<instance_handle>& where, Body&& body, Token&& token) {
  using signature = typename std::decay_t<Body>::signature;
  progress::engine* const engine = where ? &(**where).engine() : nullptr;
  return asio::async_initiate<std::remove_reference_t<Token>, signature>(start_named(engine), token,
                                                                         where, std::move(body));
}

// ---- the end of a verb's arguments ------------------------------------------------------------

/// Stands for a completion token behind options that was not given.
struct not_given {};
template <class First>
inline constexpr bool is_options = std::same_as<std::remove_cvref_t<First>, call_options>;

/// What stands where a completion token may, and is none: a buffer or a number, of another form of
/// the verb.
template <class T>
concept is_data =
    std::ranges::range<T> || located_buffer<T> || std::is_arithmetic_v<std::remove_cvref_t<T>>;

/// The last two parameters of a verb: nothing, call_options, a completion token, or both in this
/// order. A list in braces is call_options, since `First` is that where it cannot be deduced.
template <class First, class Second>
concept call_tail = is_options<First> || (std::same_as<Second, not_given> && !is_data<First>);

template <class First>
[[nodiscard]] decltype(auto) options_in([[maybe_unused]] First& first) {
  if constexpr (is_options<First>) {
    return (first);
  } else {
    return call_options();
  }
}
template <class First, class Second>
[[nodiscard]] decltype(auto) token_in([[maybe_unused]] First& first,
                                      [[maybe_unused]] Second& second) {
  if constexpr (!is_options<First>) {
    return (first);
  } else if constexpr (std::same_as<Second, not_given>) {
    return default_token();
  } else {
    return (second);
  }
}

}  // namespace coordination
}  // namespace cohort
