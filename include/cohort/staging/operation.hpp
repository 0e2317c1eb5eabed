// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How a verb of MPI becomes one of device memory: the same operation, with copies before and
/// after.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/comm/operation.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/mpi/status.hpp>
#include <cohort/staging/inspection.hpp>
#include <cohort/staging/staged_range.hpp>
#include <cohort/staging/transfer.hpp>
#include <cohort/staging/transfer_source.hpp>

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::staging {

// ---- the operation ---------------------------------------------------------------------------

namespace detail {

template <class Signature>
struct values_of;
template <class... Values>
struct values_of<void(std::error_code, Values...)> {
  using type = std::tuple<std::decay_t<Values>...>;
};

/// What the caller gets of a value that the verb of MPI delivers.
template <class Value>
auto kept(Value&& value) {
  using plain = std::decay_t<Value>;
  if constexpr (is_staged<plain>) {
    return value.take();
  } else {
    return std::tuple<plain>(std::forward<Value>(value));
  }
}
template <class... Values>
auto all_kept(std::tuple<Values...>&& values) {
  return std::apply([](auto&&... each) { return std::tuple_cat(kept(std::move(each))...); },
                    std::move(values));
}

template <class Kept>
struct signature_of_kept;
template <class... Values>
struct signature_of_kept<std::tuple<Values...>> {
  using type = void(std::error_code, Values...);
};

template <class Tuple>
inline constexpr bool has_status = false;
template <class... Values>
inline constexpr bool has_status<std::tuple<Values...>> = (std::same_as<Values, status> || ...);

}  // namespace detail

/// The body of a verb over staged ranges. It is posted when the data are in the memory that MPI is
/// given, and ends when the result is in device memory. `Leased`: the memory stays when the awaiter
/// has left.
template <class Body, bool Leased>
class staged_body {
  using values = typename detail::values_of<typename Body::signature>::type;
  using kept_values = decltype(detail::all_kept(std::declval<values>()));

 public:
  using signature = typename detail::signature_of_kept<kept_values>::type;
  static constexpr const char* name = Body::name;
  static constexpr bool gated = true;
  static constexpr comm::cancels cancellation =
      !Leased && Body::cancellation == comm::cancels::detach ? comm::cancels::never
                                                             : Body::cancellation;

  staged_body(Body&& body, std::vector<std::shared_ptr<stage>> stages, bool can_be_direct)
      : body_(std::move(body)), stages_(std::move(stages)), can_be_direct_(can_be_direct) {}
  staged_body(staged_body&&) = default;

  [[nodiscard]] errc check(const comm::communicator_state& state) const noexcept {
    if (state.options.device_memory == device_memory::refused) return errc::not_supported;
    if (goes_direct(state)) {
      for (const auto& one : stages_) {
        if (!one->is_empty() && has_nccl(*one)) return errc::device_ordered;
      }
    }
    return body_.check(state);
  }
  void explain(failure_text& text) const {
    for (const auto& one : stages_) {
      text.with(one->field, "memory of device " + std::to_string(one->where.device));
      if (can_be_direct_ && !one->is_empty() && has_nccl(*one)) text.note("which NCCL works on");
    }
    body_.explain(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return body_.bytes(); }
  [[nodiscard]] int peer() const noexcept requires requires(const Body& body) { body.peer(); }
  { return body_.peer(); }
  [[nodiscard]] auto agreed() const requires requires(const Body& body) { body.agreed(); }
  { return body_.agreed(); }

  void begin(comm::poster& post, comm::argument_check* check) {
    phase_ = phase::fetching;
    const bool direct = goes_direct(post.state());
    for (const auto& one : stages_) {
      one->direct = direct;
      if (one->is_empty()) continue;
      device::check_usable(one->where.device);
      if (direct) one->lend();
    }
    auto& source = asio::use_service<transfer_source>(post.state().engine.context());
    transfer_.to = std::make_shared<transfer>(source, post, check, stages_);
    transfer_.to->start_in();
    // The others are told in the comparison, and do not post what this rank never will.
    if (post.level() == checks::cross_rank) post.operation().fail(transfer_.to->failure());
  }
  int post(comm::poster& post) {
    if (phase_ == phase::fresh) {  // a message
      begin(post, nullptr);
      post.hold();
      return MPI_SUCCESS;
    }
    phase_ = phase::posted;
    const int rc = body_.post(post);
    if (rc == MPI_SUCCESS && !post.has_requests()) bring_out(post);
    return rc;
  }
  bool advance(comm::poster& post) {
    post.resume();
    if (post.operation().failed()) return false;
    try {
      if (phase_ == phase::fetching) {
        post.check(this->post(post));
        return true;
      }
      if (phase_ == phase::storing) return false;
      if constexpr (requires { body_.advance(post); }) {
        if (body_.advance(post)) return true;
        if (post.operation().failed()) return false;
      }
      return bring_out(post);
    } catch (const std::system_error& failed) {
      post.operation().fail(failed.code());
    } catch (...) {
      post.operation().fail(std::make_error_code(std::errc::not_enough_memory));
    }
    return false;
  }
  void let_go() noexcept {
    if (transfer_.to) transfer_.to->let_go();
  }
  void give_up() {
    if (transfer_.to) transfer_.to->give_up();
  }

  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests& outcome) {
    if (!result_) take_result(error, outcome);
    std::apply([&](auto&&... each) { std::forward<Handler>(handler)(error, std::move(each)...); },
               detail::all_kept(std::move(*result_)));
  }

 private:
  enum class phase : std::uint8_t { fresh, fetching, posted, storing };
  /// An operation is moved before it begins, and when it ends: then its transfer must not go on.
  struct transfer_handle {
    transfer_handle() noexcept {}
    transfer_handle(transfer_handle&& other) noexcept : to(std::move(other.to)) {
      if (to) to->forget();
    }
    ~transfer_handle() {
      if (to) to->forget();
    }
    std::shared_ptr<transfer> to;
  };

  [[nodiscard]] bool goes_direct(const comm::communicator_state& state) const noexcept {
    return can_be_direct_ && state.options.device_memory == device_memory::cuda_aware;
  }
  [[nodiscard]] static bool has_nccl(const stage& one) noexcept {
    return one.where.device >= 0 && device::state_of(one.where.device).has_launcher();
  }
  /// What the verb of MPI does at its end: it averages, and says what has come.
  void take_result(std::error_code error, const comm::outcome_of_requests& outcome) {
    body_.finish([this](std::error_code, auto&&... each) { result_.emplace(std::move(each)...); },
                 error, outcome);
  }
  /// True if something is on its way.
  bool bring_out(comm::poster& post) {
    const comm::request_operation& op = post.operation();
    phase_ = phase::storing;
    take_result({}, {op.status, op.left, op.message});
    std::size_t most = std::numeric_limits<std::size_t>::max();
    if constexpr (detail::has_status<values>) most = std::get<status>(*result_).bytes();
    bool any = false;
    for (const auto& one : stages_) any = any || (one->is_written && !one->direct);
    if (!any || most == 0 || !transfer_.to->is_wanted()) return false;
    post.hold();
    transfer_.to->start_out(most);
    return true;
  }

  Body body_;
  std::vector<std::shared_ptr<stage>> stages_;
  bool can_be_direct_;
  phase phase_ = phase::fresh;
  transfer_handle transfer_;
  std::optional<values> result_;
};

// ---- the call --------------------------------------------------------------------------------

/// The token that a verb of MPI is called with: it makes another operation of its body.
template <class Token, bool Leased>
struct staged_token {
  template <class... Values>
  void operator()(std::error_code, Values&&...) const {}  // so that it is one

  template <class Body>
  auto take_body(const communicator& comm, Body&& body) {
    using made = staged_body<std::remove_cvref_t<Body>, Leased>;
    return comm::start(comm, made(std::move(body), std::move(stages), can_be_direct), token);
  }

  Token& token;
  std::vector<std::shared_ptr<stage>> stages;
  bool can_be_direct;
};

namespace detail {

/// Asks whether a call fits.
struct probe_token {
  struct fits {};
  template <class... Values>
  void operator()(std::error_code, Values&&...) const {}
  template <class Body>
  fits take_body(const communicator&, Body&&) {
    return {};
  }
};

template <class B>
struct element_of_located {
  using pointer = decltype(std::declval<std::remove_reference_t<B>&>().data());
  using type = std::remove_pointer_t<pointer>;
};

template <class Argument>
struct stand_in {
  using type = Argument&&;
};
template <located_buffer Argument>
struct stand_in<Argument> {
  using type = std::span<typename element_of_located<Argument>::type>;
};

template <class Verb, class... Arguments>
concept fits =
    std::same_as<decltype(Verb::call(std::declval<const communicator&>(),
                                     std::declval<typename stand_in<Arguments>::type>()...,
                                     std::declval<probe_token&>())),
                 probe_token::fits>;

template <class Verb, class Indices, class... Arguments>
inline constexpr bool fit_first = false;
template <class Verb, std::size_t... I, class... Arguments>
inline constexpr bool fit_first<Verb, std::index_sequence<I...>, Arguments...> =
    fits<Verb, std::tuple_element_t<I, std::tuple<Arguments&&...>>...>;

/// The last argument is a token.
template <class Verb, class... Arguments>
inline constexpr bool has_token =
    fit_first<Verb, std::make_index_sequence<sizeof...(Arguments) - 1>, Arguments...>;

}  // namespace detail

/// A call of a verb with buffers in device memory: the verb would take it with buffers of the host.
template <class Verb, class... Arguments>
concept takes = (located_buffer<Arguments> || ...) &&
                (detail::fits<Verb, Arguments...> || detail::has_token<Verb, Arguments...>);

/// What a verb does with a buffer on this rank.
struct traffic {
  const char* field;
  bool is_read;
  bool is_written;
};

namespace detail {

template <class Argument>
[[nodiscard]] int root_in(const Argument& last) {
  if constexpr (std::integral<Argument>) {
    return static_cast<int>(last);
  } else {
    return -1;
  }
}

/// In place of an argument: a staged range for a device buffer, else the argument.
template <class Argument>
decltype(auto) staged(Argument&& argument, const traffic& how,
                      std::vector<std::shared_ptr<stage>>& stages) {
  if constexpr (located_buffer<Argument>) {
    using buffer = std::remove_cvref_t<Argument>;
    using value = std::remove_const_t<typename element_of_located<Argument>::type>;
    const std::size_t size = argument.size();
    stages.push_back(stage_of<buffer>(argument, how.field, argument.data(), size * sizeof(value)));
    stages.back()->is_read = how.is_read;
    stages.back()->is_written = how.is_written;
    if constexpr (owned_located_buffer<Argument>) {
      return staged_range<value, buffer>(stages.back(), size, std::move(argument));
    } else {
      return staged_range<value>(stages.back(), size);
    }
  } else {
    return std::forward<Argument>(argument);
  }
}

/// A lease of its kind keeps the memory: that of device::vector.
template <class Argument>
inline constexpr bool is_leased = true;
template <class T>
inline constexpr bool is_leased<device::span<T>> = false;

template <class Argument>
inline constexpr bool needs_host = is_average<Argument> || requires {
  typename std::remove_cvref_t<Argument>::function_type;
};

template <class Verb, class Token, std::size_t... I, class Arguments>
auto run(const communicator& comm, Token& token, std::index_sequence<I...>, Arguments&& arguments) {
  using all = std::remove_cvref_t<Arguments>;
  constexpr std::size_t count = sizeof...(I);
  constexpr bool leased = (is_leased<std::remove_cvref_t<std::tuple_element_t<I, all>>> && ...);
  constexpr bool on_host = (needs_host<std::tuple_element_t<I, all>> || ...);
  const int root = root_in(std::get<count - 1>(arguments));
  const bool is_root = comm && root == comm.rank();
  staged_token<Token, leased> with{
      token, {}, !on_host && Verb::template can_be_direct<std::tuple_element_t<I, all>...>};
  // Braces: in the order of the arguments, and before the call.
  std::tuple<decltype(staged(std::get<I>(std::move(arguments)), traffic(), with.stages))...> made{
      staged(std::get<I>(std::move(arguments)),
             Verb::template role<I, std::tuple_element_t<I, all>...>(is_root), with.stages)...};
  return Verb::call(
      comm, std::forward<std::tuple_element_t<I, decltype(made)>>(std::get<I>(made))..., with);
}

}  // namespace detail

/// Does what the verb would do with buffers of the host.
template <class Verb, class... Arguments>
requires takes<Verb, Arguments...>
auto run(const communicator& comm, Arguments&&... arguments) {
  auto all = std::forward_as_tuple(std::forward<Arguments>(arguments)...);
  constexpr std::size_t count = sizeof...(Arguments);
  if constexpr (detail::fits<Verb, Arguments...>) {
    default_token token{};
    return detail::run<Verb>(comm, token, std::make_index_sequence<count>(), std::move(all));
  } else {
    auto&& token = std::get<count - 1>(all);
    return detail::run<Verb>(comm, token, std::make_index_sequence<count - 1>(), std::move(all));
  }
}

}  // namespace cohort::staging

#endif
